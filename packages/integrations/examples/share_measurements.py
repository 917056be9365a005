"""Keep what runs took, predict with it, and share it without what tells whose it is."""

import subprocess
import sys

import torch

import precision_time
from precision_time_integrations.online.offer import own_runs
from precision_time_integrations.online.pytorch import track

model = torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.utils.data.TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)))

for batch_size in (16, 32, 64, 128):
    loader = torch.utils.data.DataLoader(data, batch_size=batch_size)
    run = track(
        loader, model=model, optimizer=optimizer, loss=torch.nn.functional.cross_entropy,
        share_with_corpus=True, bar=False,
    )  # fmt: skip
    for inputs, labels in run:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()

# The same model with another batch, before and after the four runs are taken into account.
request = {**run.record.request, "batch_size": 96, "steps": None}
plain_s = precision_time.predict_time(**request).step_time_s
own_s = precision_time.predict_time(**request, calibration=own_runs()).step_time_s
print(f"batch 96: predicted {1e3 * plain_s:.2f} ms, with own runs {1e3 * own_s:.2f} ms")

shared = subprocess.run([sys.executable, "-m", "precision_time", "share", "for-others.csv"], check=False)
print("shared" if shared.returncode == 0 else "not shared")

# prints: batch 96: predicted [\d.]+ ms, with own runs [\d.]+ ms
# prints: runs +4
# prints: models given as operators +1
# prints: shared
