import transformers
import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/functiongemma-270m-it', max_seq_length=4096, load_in_4bit=False, load_in_8bit=False, load_in_16bit=True, full_finetuning=False)
FastLanguageModel.get_peft_model(r=16, target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'], lora_alpha=16, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=3407, use_rslora=False, loftq_config=None)
load_dataset('google/mobile-actions', split='train')
SFTTrainer()
SFTConfig(dataset_text_field='text', per_device_train_batch_size=4, gradient_accumulation_steps=2, warmup_steps=5, max_steps=100, eval_steps=2, eval_strategy='steps', learning_rate=0.0002, logging_steps=1, optim='adamw_8bit', weight_decay=0.001, lr_scheduler_type='linear', seed=3407, report_to='none')
FastLanguageModel.from_pretrained(model_name='functiongemma_lora', max_seq_length=2048, load_in_4bit=False)
