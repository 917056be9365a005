import trl
import unsloth
FastLanguageModel.from_pretrained(model_name='unsloth/Qwen3-0.6B', max_seq_length=1024, full_finetuning=True, qat_scheme='phone-deployment')
load_dataset('unsloth/OpenMathReasoning-mini', split='cot')
load_dataset('mlabonne/FineTome-100k', split='train')
SFTTrainer(eval_dataset=None)
SFTConfig(dataset_text_field='text', per_device_train_batch_size=2, gradient_accumulation_steps=4, warmup_steps=5, max_steps=100, learning_rate=5e-05, logging_steps=1, optim='adamw_8bit', weight_decay=0.001, lr_scheduler_type='linear', seed=3407, report_to='none')
data.name = 'text'
