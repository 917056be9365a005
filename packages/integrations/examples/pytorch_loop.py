"""A plain PyTorch loop that says when it will end, before the first step and after each."""

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from precision_time_integrations.online.pytorch import track

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(4),
    nn.Flatten(),
    nn.Linear(256, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
images, labels = torch.randn(640, 3, 32, 32), torch.randint(0, 10, (640,))
loader = DataLoader(TensorDataset(images, labels), batch_size=16, shuffle=True)

steps = track(loader, model=model, optimizer=optimizer, loss=functional.cross_entropy, epochs=2, say=print)
for inputs, targets in steps:
    optimizer.zero_grad()
    functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()
    if steps.step % 40 == 0:
        with steps.pause("evaluation"), torch.no_grad():  # no step: it is told apart
            accuracy = (model(images).argmax(1) == labels).float().mean()
        print(f"after {steps.step} steps: accuracy {accuracy:.2f}, {steps.eta.text}")

print(f"{steps.record.steps} steps, {steps.record.step_time_s * 1e3:.1f} ms each")

# needs: torch
# prints: precision-time: a step of Sequential should take .* on 1 x CPU-.*fp32, batch 16 per device
# prints: after 40 steps: accuracy .* left
# prints: 80 steps, .* ms each
