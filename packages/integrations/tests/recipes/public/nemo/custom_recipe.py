import nemo
llama3_8b.pretrain_recipe(num_nodes=1, num_gpus_per_node=8)
llama3_70b.pretrain_recipe(num_nodes=1, num_gpus_per_node=8)
pretrain.trainer.val_check_interval = 400
pretrain.log.ckpt.save_top_k = -1
pretrain.log.ckpt.every_n_train_steps = 400
pretrain.trainer.max_steps = 1000
