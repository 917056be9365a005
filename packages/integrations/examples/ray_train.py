"""Ray Train: the remaining time in the metrics of the workers, and in lines of the driver."""

import os

import ray
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

from precision_time_integrations.online.pytorch import track
from precision_time_integrations.online.ray_train import EtaCallback, report


def train(config: dict) -> None:
    """What each worker runs."""
    net = torch.nn.Sequential(torch.nn.Linear(64, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10))
    model = prepare_model(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = torch.nn.functional.cross_entropy
    data = torch.utils.data.TensorDataset(torch.randn(2048, 64), torch.randint(0, 10, (2048,)))
    loader = torch.utils.data.DataLoader(data, batch_size=32)
    run = track(loader, model=model, optimizer=optimizer, loss=loss_of, epochs=2, bar=False)
    for inputs, labels in run:
        optimizer.zero_grad()
        loss = loss_of(model(inputs), labels)
        loss.backward()
        optimizer.step()
        if run.step % 32 == 31:
            report(run, {"loss": loss.item()})  # ray.train.report, and "eta/remaining_s" of rank 0


ray.init(num_cpus=2, include_dashboard=False)
trainer = TorchTrainer(
    train,
    scaling_config=ScalingConfig(num_workers=1),
    run_config=RunConfig(storage_path=os.getcwd(), callbacks=[EtaCallback(say=print, line_every_s=0.0)]),
)
trainer.fit()
ray.shutdown()
print("done")

# needs: torch ray
# prints: precision-time: step \d+ of 128: .* left
# prints: done
