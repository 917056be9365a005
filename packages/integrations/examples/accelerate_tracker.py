"""Accelerate: a tracker that counts the steps and adds the remaining time to what the others log."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from precision_time_integrations.online.accelerate import EtaTracker

EPOCHS = 2

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(
    TensorDataset(torch.randn(3200, 128), torch.randint(0, 10, (3200,))), batch_size=32, shuffle=True
)

eta = EtaTracker(total_steps=EPOCHS * len(loader), say=print)
accelerator = Accelerator(cpu=True, log_with=[eta])  # before the other trackers, such as "tensorboard"
accelerator.init_trackers("my-project")
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
eta.watch(model, optimizer=optimizer)

step = 0
for _ in range(EPOCHS):
    for inputs, targets in loader:
        loss = functional.cross_entropy(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        values = {"loss": loss.item()}
        accelerator.log(values, step=step)
        if step == 50:
            print(f"step 50: loss {values['loss']:.2f}, {values['eta/remaining_s']:.2f} s left")
accelerator.end_training()

print(f"{eta.record.steps} steps, {eta.record.step_time_s * 1e3:.1f} ms each")

# needs: accelerate
# prints: precision-time: a step of Sequential should take .* batch 32 per device. 200 steps: .* left
# prints: step 50: loss .*, .* s left
# prints: 200 steps, .* ms each
