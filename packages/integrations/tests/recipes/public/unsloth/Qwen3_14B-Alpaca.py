import transformers
import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/Qwen3-14B-Base-unsloth-bnb-4bit', max_seq_length=2048, dtype=None, load_in_4bit=True)
FastLanguageModel.get_peft_model(r=16, target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'], lora_alpha=16, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=3407, use_rslora=False, loftq_config=None)
load_dataset('unsloth/alpaca-cleaned', split='train')
SFTTrainer(dataset_text_field='text', max_seq_length=2048)
SFTConfig(per_device_train_batch_size=2, gradient_accumulation_steps=4, warmup_steps=5, max_steps=60, learning_rate=0.0002, logging_steps=1, optim='adamw_8bit', weight_decay=0.001, lr_scheduler_type='linear', seed=3407, output_dir='outputs', report_to='none')
FastLanguageModel.from_pretrained(model_name='qwen_lora', max_seq_length=2048, dtype=None, load_in_4bit=True)
AutoPeftModelForCausalLM.from_pretrained('qwen_lora', load_in_4bit=True)
AutoTokenizer.from_pretrained('qwen_lora')
