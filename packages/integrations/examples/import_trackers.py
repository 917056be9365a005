"""Runs that lie in a tracker become measurements: the time of a step, and what the settings say of the job.

The same from the command line: precision-time import runs mlruns
"""

# needs: torch tensorboard mlflow
import os
import time

os.environ["MLFLOW_ALLOW_FILE_STORE"] = "true"
import mlflow
import torch
from torch.utils.tensorboard import SummaryWriter

from precision_time_integrations.importers.api import import_runs

settings = {
    "per_device_train_batch_size": 64,
    "precision": "32-true",
    "max_steps": 40,
    "optim": "adamw_torch",
}
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
optimizer = torch.optim.AdamW(model.parameters())
writer = SummaryWriter("runs/first")
mlflow.set_tracking_uri("file:./mlruns")

with mlflow.start_run(run_name="first"):
    mlflow.log_params(settings)
    for step in range(1, settings["max_steps"] + 1):
        optimizer.zero_grad()
        loss = model(torch.randn(64, 256)).square().mean()
        loss.backward()
        optimizer.step()
        time.sleep(0.02)  # the data of a real loop
        writer.add_scalar("train/loss", loss.item(), step)
        mlflow.log_metric("train/loss", loss.item(), step=step)
        if step % 15 == 0:
            time.sleep(0.2)  # an evaluation
            writer.add_scalar("eval/loss", loss.item(), step)
            mlflow.log_metric("eval/loss", loss.item(), step=step)
writer.add_hparams(settings, {"hparam/loss": loss.item()})
writer.close()

for run in import_runs(["runs", "mlruns"]).runs:
    steady = run.steady()
    print(f"{run.importer}: {1e3 * steady.step_time_s:.0f} ms a step, {steady.text}")
    print(f"  says {dict(run.fields)}, does not say {', '.join(run.missing)}")

# prints: tensorboard: \d+ ms a step, \d\d of \d\d steps used
# prints: mlflow: \d+ ms a step, \d\d of \d\d steps used
# prints: 'batch_size': 64.*'optimizer': 'adamw'.*does not say model, device
