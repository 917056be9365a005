"""Hugging Face Trainer: the remaining time in its progress bar, its logs and trainer_state.json."""

# First: transformers imports torchvision, which does not load beside a torch of another build without this.
from precision_time_integrations.online.transformers import EtaCallback

# isort: split
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=1000,
)
tokens = torch.randint(0, 1000, (400, 32), generator=torch.Generator().manual_seed(0))
samples = [{"input_ids": row, "labels": row} for row in tokens]
arguments = TrainingArguments(
    output_dir="out",
    num_train_epochs=2,
    per_device_train_batch_size=4,
    gradient_accumulation_steps=2,
    eval_strategy="steps",
    eval_steps=50,
    logging_steps=20,
    save_strategy="no",
    report_to="none",
    use_cpu=True,
)

eta = EtaCallback(say=print)
trainer = Trainer(
    model=LlamaForCausalLM(config),
    args=arguments,
    train_dataset=samples,
    eval_dataset=samples[:32],
    callbacks=[eta],
)
trainer.train()

first = next(entry for entry in trainer.state.log_history if "eta/remaining_s" in entry)
print(f"logged at step {first['step']}: {first['eta/remaining_s']:.2f} s left")
print(f"{eta.record.steps} steps; pauses: {', '.join(eta.record.pauses_s)}")

# needs: transformers accelerate
# prints: precision-time: a step of llama-h64-l2 should take .* batch 4 per device. 100 steps: .* left
# prints: logged at step 20: .* s left
# prints: 100 steps; pauses: evaluation
