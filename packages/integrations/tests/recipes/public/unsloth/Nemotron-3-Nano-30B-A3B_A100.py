import transformers
import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/Nemotron-3-Nano-30B-A3B', max_seq_length=2048, load_in_4bit=False, load_in_8bit=False, full_finetuning=False, trust_remote_code=True, unsloth_force_compile=True, attn_implementation='eager')
FastLanguageModel.get_peft_model(r=8, target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj', 'in_proj', 'out_proj'], lora_alpha=16, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=3407, use_rslora=False, loftq_config=None)
load_dataset('unsloth/OpenMathReasoning-mini', split='cot')
SFTTrainer(eval_dataset=None)
SFTConfig(dataset_text_field='text', per_device_train_batch_size=4, gradient_accumulation_steps=2, warmup_steps=5, max_steps=60, learning_rate=0.0002, logging_steps=1, optim='adamw_8bit', weight_decay=0.001, lr_scheduler_type='linear', seed=3407, report_to='none')
FastLanguageModel.from_pretrained(model_name='nemotron_lora', max_seq_length=2048, load_in_4bit=True)
