import transformers
import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/codegemma-7b-bnb-4bit', max_seq_length=4096, dtype=None, load_in_4bit=True)
FastLanguageModel.get_peft_model(r=16, target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'], lora_alpha=16, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=3407, use_rslora=False, loftq_config=None)
load_dataset('philschmid/guanaco-sharegpt-style', split='train')
SFTTrainer(packing=False)
SFTConfig(per_device_train_batch_size=1, gradient_accumulation_steps=4, warmup_steps=5, max_steps=20, learning_rate=0.0002, optim='adamw_8bit', weight_decay=0.001, lr_scheduler_type='linear', seed=3407, dataset_text_field='text', report_to='none', max_grad_norm=0.3)
FastLanguageModel.from_pretrained(model_name='codegemma_lora', max_seq_length=4096, dtype=None, load_in_4bit=True)
AutoPeftModelForCausalLM.from_pretrained('codegemma_lora', load_in_4bit=True)
AutoTokenizer.from_pretrained('codegemma_lora')
