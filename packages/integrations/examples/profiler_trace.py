"""What a step of a profiled loop is made of, read from the trace of torch.profiler.

With the model and the device the prediction stands beside it:
precision-time import trace.json --set model=resnet50 --set batch_size=64 --set device=A100 --compare
"""

# needs: torch
import time

import torch
from torch.profiler import ProfilerActivity, profile, schedule

from precision_time_integrations.importers.api import import_runs

model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 1))
optimizer = torch.optim.AdamW(model.parameters())


class Slow(torch.utils.data.Dataset):
    """Samples that take their time: the loop waits for its input."""

    def __len__(self) -> int:
        return 14 * 32

    def __getitem__(self, index: int) -> torch.Tensor:
        time.sleep(0.0005)
        return torch.randn(512)


with profile(
    activities=[ProfilerActivity.CPU],
    schedule=schedule(wait=2, warmup=2, active=10, repeat=1),
    on_trace_ready=lambda profiler: profiler.export_chrome_trace("trace.json"),
) as profiler:
    for batch in torch.utils.data.DataLoader(Slow(), batch_size=32):
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        profiler.step()

(run,) = import_runs(["trace.json"]).runs
print(f"{len(run.steps)} steps, {1e3 * run.steady().step_time_s:.1f} ms each, of which")
for name, seconds in sorted(run.terms_s.items(), key=lambda item: -item[1]):
    print(f"  {name.removesuffix('_s'):8} {1e3 * seconds:6.2f} ms")

# prints: 10 steps, \d+\.\d ms each
# prints: input +\d\d\.\d\d ms
# prints: kernels +\d+\.\d\d ms
