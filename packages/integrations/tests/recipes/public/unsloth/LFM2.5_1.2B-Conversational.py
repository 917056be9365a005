import transformers
import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/LFM2.5-1.2B-Instruct', max_seq_length=2048, load_in_4bit=False, load_in_8bit=False, load_in_16bit=True, full_finetuning=False)
FastLanguageModel.get_peft_model(r=16, target_modules=['q_proj', 'k_proj', 'v_proj', 'out_proj', 'in_proj', 'w1', 'w2', 'w3'], lora_alpha=16, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=3407, use_rslora=False, loftq_config=None)
load_dataset('mlabonne/FineTome-100k', split='train[:3000]')
SFTTrainer(eval_dataset=None)
SFTConfig(dataset_text_field='text', per_device_train_batch_size=2, gradient_accumulation_steps=4, warmup_steps=5, max_steps=60, learning_rate=0.0002, logging_steps=1, optim='adamw_8bit', weight_decay=0.01, lr_scheduler_type='linear', seed=3407, report_to='none')
FastModel.from_pretrained(model_name='lfm_lora')
AutoPeftModelForCausalLM.from_pretrained('lfm_lora')
AutoTokenizer.from_pretrained('lfm_lora')
