"""Lightning: the remaining time in the progress bar and in the loggers."""

# First: lightning imports torchvision, which does not load beside a torch of another build without this.
from precision_time_integrations.online.lightning import EtaCallback

# isort: split
import csv

import lightning
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset


class Classifier(lightning.LightningModule):
    """Two layers."""

    def __init__(self) -> None:
        """Build them."""
        super().__init__()
        self.net = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))

    def training_step(self, batch, batch_idx):
        """The loss of a batch."""
        inputs, targets = batch
        return functional.cross_entropy(self.net(inputs), targets)

    def validation_step(self, batch, batch_idx):
        """The same, logged."""
        self.log("val_loss", self.training_step(batch, batch_idx))

    def configure_optimizers(self):
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def loader(samples: int) -> DataLoader:
    """Random vectors with labels."""
    return DataLoader(
        TensorDataset(torch.randn(samples, 128), torch.randint(0, 10, (samples,))), batch_size=32
    )


eta = EtaCallback(say=print)
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=2,
    accumulate_grad_batches=2,
    log_every_n_steps=10,
    logger=CSVLogger("logs"),
    callbacks=[eta],
)
trainer.fit(Classifier(), loader(3200), loader(320))

with open(f"{trainer.logger.log_dir}/metrics.csv") as file:
    logged = [row for row in csv.DictReader(file) if row["eta/remaining_s"]]
print(f"logged at step {logged[0]['step']}: {float(logged[0]['eta/remaining_s']):.2f} s left")
print(f"{eta.record.steps} steps; pauses: {', '.join(eta.record.pauses_s)}")

# needs: lightning
# prints: precision-time: a step of Classifier should take .* 100 steps: .* left
# prints: logged at step 9: .* s left
# prints: 100 steps; pauses: .*evaluation
