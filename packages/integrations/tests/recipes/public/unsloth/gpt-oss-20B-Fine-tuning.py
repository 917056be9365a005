import transformers
import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/gpt-oss-20b', dtype=None, max_seq_length=1024, load_in_4bit=True, full_finetuning=False)
FastLanguageModel.get_peft_model(r=8, target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'], lora_alpha=16, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=3407, use_rslora=False, loftq_config=None)
load_dataset('HuggingFaceH4/Multilingual-Thinking', split='train')
SFTTrainer()
SFTConfig(per_device_train_batch_size=1, gradient_accumulation_steps=4, warmup_steps=5, max_steps=30, learning_rate=0.0002, logging_steps=1, optim='adamw_8bit', weight_decay=0.001, lr_scheduler_type='linear', seed=3407, output_dir='outputs', report_to='none')
FastLanguageModel.from_pretrained(model_name='gpt_oss_lora', max_seq_length=1024, dtype=None, load_in_4bit=True)
