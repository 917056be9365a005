import transformers
import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/llama-3-8b-bnb-4bit', max_seq_length=4096, dtype=None, load_in_4bit=True)
FastLanguageModel.get_peft_model(r=16, target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'], lora_alpha=16, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=3407, use_rslora=False, loftq_config=None)
load_dataset('reciperesearch/dolphin-sft-v0.1-preference')
PatchDPOTrainer()
ORPOTrainer()
ORPOConfig(max_length=4096, max_prompt_length=2048, max_completion_length=2048, per_device_train_batch_size=2, gradient_accumulation_steps=4, beta=0.1, logging_steps=1, optim='adamw_8bit', lr_scheduler_type='linear', max_steps=30, output_dir='outputs', report_to='none')
_FastLanguageModel.from_pretrained(model_name='llama_lora', max_seq_length=4096, dtype=None, load_in_4bit=True)
_AutoPeftModelForCausalLM.from_pretrained('llama_lora', load_in_4bit=True)
_AutoTokenizer.from_pretrained('llama_lora')
