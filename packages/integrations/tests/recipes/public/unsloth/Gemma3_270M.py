import transformers
import trl
import unsloth
FastModel.from_pretrained(model_name='unsloth/gemma-3-270m-it', max_seq_length=2048, load_in_4bit=False, load_in_8bit=False, full_finetuning=False)
FastModel.get_peft_model(r=128, target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'], lora_alpha=128, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=3407, use_rslora=False, loftq_config=None)
load_dataset('Thytu/ChessInstruct', split='train[:10000]')
SFTTrainer(eval_dataset=None)
SFTConfig(dataset_text_field='text', per_device_train_batch_size=4, gradient_accumulation_steps=1, warmup_steps=5, max_steps=100, learning_rate=5e-05, logging_steps=1, optim='adamw_8bit', weight_decay=0.001, lr_scheduler_type='linear', seed=3407, output_dir='outputs', report_to='none')
FastLanguageModel.from_pretrained(model_name='gemma_3_lora', max_seq_length=2048, load_in_4bit=False)
