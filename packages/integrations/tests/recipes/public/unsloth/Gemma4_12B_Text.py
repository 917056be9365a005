import transformers
import trl
import unsloth
FastModel.from_pretrained(model_name='unsloth/gemma-4-12b-it', dtype=None, max_seq_length=2048, load_in_4bit=False, full_finetuning=False)
FastModel.get_peft_model(finetune_vision_layers=False, finetune_language_layers=True, finetune_attention_modules=True, finetune_mlp_modules=True, r=8, lora_alpha=8, lora_dropout=0, bias='none', random_state=3407)
load_dataset('mlabonne/FineTome-100k', split='train[:3000]')
SFTTrainer(eval_dataset=None)
SFTConfig(dataset_text_field='text', per_device_train_batch_size=1, gradient_accumulation_steps=4, warmup_steps=5, max_steps=60, learning_rate=0.0002, logging_steps=1, optim='adamw_8bit', weight_decay=0.001, lr_scheduler_type='linear', seed=3407, report_to='none')
FastModel.from_pretrained(model_name='gemma_4_lora', max_seq_length=2048, load_in_4bit=True)
