"""DeepSpeed: the remaining time of a loop around an engine, here with ZeRO 2 on one processor."""

import os
import socket

with socket.socket() as free:  # `deepspeed train.py` sets these
    free.bind(("127.0.0.1", 0))
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
os.environ.update(address, RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", LOCAL_WORLD_SIZE="1")
os.environ["DS_ACCELERATOR"] = "cpu"

import deepspeed
import torch

from precision_time_integrations.online.deepspeed import track

# One process exchanges nothing: without this DeepSpeed compiles its exchange between processes for a minute.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

config = {
    "train_micro_batch_size_per_gpu": 32,
    "gradient_accumulation_steps": 2,
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}


class Net(torch.nn.Module):
    """Three layers and their loss."""

    def __init__(self) -> None:
        """Build them."""
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024), torch.nn.ReLU(),
            torch.nn.Linear(1024, 10),
        )  # fmt: skip

    def forward(self, inputs, labels):
        """The loss of a batch."""
        return torch.nn.functional.cross_entropy(self.layers(inputs), labels)


net = Net()
data = torch.utils.data.TensorDataset(torch.randn(4096, 256), torch.randint(0, 10, (4096,)))
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
engine, *_ = deepspeed.initialize(model=net, model_parameters=net.parameters(), config=config)

with track(engine, total_steps=64, line_every_s=1.0) as run:  # follows engine.step()
    for inputs, labels in run.batches(loader):  # optional: measures how long batches are waited for
        loss = engine(inputs, labels)
        engine.backward(loss)
        engine.step()
        if engine.global_steps == 32 and engine.is_gradient_accumulation_boundary():
            print(f"half way: {run.eta.text}")

print(
    f"predicted {run.prediction.step_time_s * 1e3:.1f} ms per step, took {run.record.step_time_s * 1e3:.1f}"
)
print(f"{run.record.steps} steps, {run.record.waited_s * 1e3:.2f} ms of each waiting for batches")
torch.distributed.destroy_process_group()

# needs: torch deepspeed
# prints: half way: [\d.]+ \w+ left
# prints: predicted [\d.]+ ms per step, took [\d.]+
# prints: 64 steps, [\d.]+ ms of each waiting for batches
