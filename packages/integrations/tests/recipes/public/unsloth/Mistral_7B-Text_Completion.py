import transformers
import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/mistral-7b-v0.3', max_seq_length=2048, dtype=None, load_in_4bit=True)
FastLanguageModel.get_peft_model(r=128, target_modules=['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj', 'embed_tokens', 'lm_head'], lora_alpha=32, lora_dropout=0, bias='none', use_gradient_checkpointing='unsloth', random_state=3407, use_rslora=True, loftq_config=None)
load_dataset('roneneldan/TinyStories', split='train[:2500]')
UnslothTrainer(dataset_text_field='text', max_seq_length=2048, dataset_num_proc=8)
UnslothTrainingArguments(per_device_train_batch_size=2, gradient_accumulation_steps=8, warmup_ratio=0.1, num_train_epochs=1, learning_rate=5e-05, embedding_learning_rate=5e-06, logging_steps=1, optim='adamw_8bit', weight_decay=0.0, lr_scheduler_type='cosine', seed=3407, output_dir='outputs', report_to='none')
