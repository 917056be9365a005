import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/gemma-3-270m-it', max_seq_length=2048, dtype=None, load_in_4bit=False, full_finetuning=True, qat_scheme='int4')
load_dataset('mlabonne/FineTome-100k', split='train')
SFTTrainer(eval_dataset=None)
SFTConfig(dataset_text_field='text', per_device_train_batch_size=8, gradient_accumulation_steps=4, max_steps=60, warmup_steps=5, learning_rate=5e-06, optim='adamw_torch', max_grad_norm=1.0, logging_steps=1, weight_decay=0.01, lr_scheduler_type='linear', seed=3407, report_to='none')
