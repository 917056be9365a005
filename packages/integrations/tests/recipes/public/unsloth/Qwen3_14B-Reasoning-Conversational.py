import transformers
import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/Qwen3-14B', max_seq_length=2048, load_in_4bit=True, load_in_8bit=False, full_finetuning=False)
FastLanguageModel.get_peft_model(r=32, target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'], lora_alpha=32, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=3407, use_rslora=False, loftq_config=None)
load_dataset('unsloth/OpenMathReasoning-mini', split='cot')
load_dataset('mlabonne/FineTome-100k', split='train')
SFTTrainer(eval_dataset=None)
SFTConfig(dataset_text_field='text', per_device_train_batch_size=2, gradient_accumulation_steps=4, warmup_steps=5, max_steps=30, learning_rate=0.0002, logging_steps=1, optim='adamw_8bit', weight_decay=0.001, lr_scheduler_type='linear', seed=3407, report_to='none', padding_free=False)
_FastLanguageModel.from_pretrained(model_name='qwen_lora', max_seq_length=2048, load_in_4bit=True)
data.name = 'text'
