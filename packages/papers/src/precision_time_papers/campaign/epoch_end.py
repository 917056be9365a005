"""What a job does after each epoch beside training: it evaluates held-out samples and writes a checkpoint.

Their times are parts of a whole job (`total_time_s`), apart from those of epochs and steps. Where there are
several workers, an evaluation takes as long as the slowest of them, and all wait while rank 0 writes.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from precision_time_integrations.measure.execution import synchronize
from precision_time_integrations.measure.steps.tasks import Batches
from precision_time_integrations.measure.steps.training import Trainer, endless
from precision_time_integrations.measure.trial import TrainingTrial

_HELD_OUT = 2**31
"""Number of the epoch whose shuffle gives the held-out samples: beyond all that are trained."""


@dataclass(kw_only=True, slots=True)
class EpochEnd:
    """Called after each whole epoch."""

    trial: TrainingTrial
    trainer: Trainer
    batches: Batches
    rank: int
    all_gather: Callable[[str, Any], list[Any]]
    evaluations_s: list[float] = field(default_factory=list)
    checkpoints_s: list[float] = field(default_factory=list)
    checkpoint_bytes: int = 0

    def __call__(self) -> None:
        """Evaluate and write, as far as the trial asks for it."""
        if self.trial.evaluation_batches:
            name = f"evaluation {len(self.evaluations_s)}"
            self.evaluations_s.append(max(self.all_gather(name, self._evaluated_s())))
        if self.trial.checkpoint:
            name, written_s = f"checkpoint {len(self.checkpoints_s)}", 0.0
            if self.rank == 0:
                written_s = self._written_s()
            self.checkpoints_s.append(max(self.all_gather(name, written_s)))

    def figures(self) -> Mapping[str, Any]:
        """Fields of a `TrialResult`."""
        given: dict[str, Any] = {}
        if self.evaluations_s:
            share = self.trial.group.num_workers * self.trial.batch_per_worker
            given["evaluation_s"] = sum(self.evaluations_s)
            given["evaluation_samples"] = self.trial.evaluation_batches * share
        if self.checkpoints_s:
            given["checkpoint_s"] = sum(self.checkpoints_s)
            given["checkpoint_bytes"] = float(self.checkpoint_bytes) if self.rank == 0 else None
        return given

    def _evaluated_s(self) -> float:
        """Forward passes over this worker's share of the held-out samples [s]."""
        module, kind = self.trainer.module, self.trainer.device.type
        plain = getattr(module, "module", module)  # DDP would send its buffers
        begin_s = time.perf_counter()
        plain.eval()
        with torch.no_grad(), self.trainer.autocast:
            for batch in islice(endless(self.batches, first=_HELD_OUT), self.trial.evaluation_batches):
                plain(*(tensor.to(self.trainer.device) for tensor in batch))
        plain.train()
        synchronize(kind)
        return time.perf_counter() - begin_s

    def _written_s(self) -> float:
        """A checkpoint of model and optimizer, until it is on the disk [s]."""
        module = self.trainer.module
        state = {
            "model": getattr(module, "module", module).state_dict(),
            "optimizer": self.trainer.optimizer.state_dict(),
        }
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "checkpoint.pt"
            begin_s = time.perf_counter()
            with path.open("wb") as file:
                torch.save(state, file)
                file.flush()
                os.fsync(file.fileno())
            spent_s = time.perf_counter() - begin_s
            self.checkpoint_bytes = path.stat().st_size
        return spent_s
