import transformers
import unsloth
FastLanguageModel.from_pretrained(model_name='LiquidAI/LFM2.5-1.2B-Base', max_seq_length=2048, dtype=None, load_in_4bit=False)
FastLanguageModel.get_peft_model(r=128, target_modules=['q_proj', 'k_proj', 'v_proj', 'out_proj', 'in_proj', 'w1', 'w2', 'w3', 'embed_tokens', 'lm_head'], lora_alpha=32, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=3407, use_rslora=True, loftq_config=None)
load_dataset('wikimedia/wikipedia', '20231101.ko', split='train')
UnslothTrainer(dataset_text_field='text', max_seq_length=2048, dataset_num_proc=4)
UnslothTrainingArguments(per_device_train_batch_size=2, gradient_accumulation_steps=8, max_steps=120, warmup_steps=10, learning_rate=5e-05, embedding_learning_rate=1e-05, logging_steps=1, optim='adamw_8bit', weight_decay=0.001, lr_scheduler_type='linear', seed=3407, output_dir='outputs', report_to='none')
load_dataset('FreedomIntelligence/alpaca-gpt4-korean', split='train')
UnslothTrainer(dataset_text_field='text', max_seq_length=2048, dataset_num_proc=8)
UnslothTrainingArguments(per_device_train_batch_size=2, gradient_accumulation_steps=8, max_steps=120, warmup_steps=10, learning_rate=5e-05, embedding_learning_rate=1e-05, logging_steps=1, optim='adamw_8bit', weight_decay=0.0, lr_scheduler_type='linear', seed=3407, output_dir='outputs', report_to='none')
FastLanguageModel.from_pretrained(model_name='lfm_lora', max_seq_length=2048, dtype=None, load_in_4bit=False)
AutoPeftModelForCausalLM.from_pretrained('lfm_lora', load_in_4bit=False)
AutoTokenizer.from_pretrained('lfm_lora')
