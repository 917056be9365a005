import transformers
import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/Llama-3.2-1B-Instruct', max_seq_length=2048, load_in_4bit=True, load_in_8bit=False, full_finetuning=False)
FastLanguageModel.get_peft_model(r=16, target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'], lora_alpha=16, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=2025, use_rslora=False, loftq_config=None)
TrainingArguments(output_dir='llama32_1bn_raft_v2', report_to='wandb', run_name='RAFT_SFT_Take7', eval_steps=5, eval_strategy='steps', per_device_train_batch_size=1, per_device_eval_batch_size=1, gradient_accumulation_steps=8, learning_rate=2e-05, num_train_epochs=5, save_strategy='no', gradient_checkpointing=True, logging_strategy='steps', logging_steps=5, seed=42, optim='adamw_torch', lr_scheduler_type='cosine')
SFTTrainer(dataset_text_field='text')
