"""Trials: one kernel, one training step on one device, or one training run of a group of Ray workers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelTrial:
    """One operator at one shape, type and phase."""

    op: str
    dtype: str
    shape: Mapping[str, Any]
    phase: str
    """fwd, bwd (gradients of all inputs), or step (optimizers, loss scaling: no gradient)."""
    rank: int = 0
    """Trials of lower rank are measured first."""

    @property
    def shape_json(self) -> str:
        """The shape as the CSV holds it."""
        return json.dumps(dict(self.shape), separators=(",", ":"))

    @property
    def key(self) -> str:
        """Equal for trials that measure the same thing."""
        return "|".join((self.op, self.dtype, self.phase, self.shape_json))

    @property
    def precision(self) -> str:
        """Type of the GEMM."""
        return self.dtype

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.phase} {self.shape_json}"


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """How a model is built and what its row says of it."""

    name: str
    """Name in the rows: one that the model catalog knows, unless the model is user-defined."""
    library: str
    """timm, transformers, torch (an architecture of steps/models.py) or own (package.module:function)."""
    build: Mapping[str, Any] = field(default_factory=dict)
    """For the library: architecture, configuration, arguments."""
    sizes: Mapping[str, Any] = field(default_factory=dict)
    """Sizes that the row states (model_config)."""
    task: str = ""
    optimizer: str = "sgd_with_momentum"
    unit: str = "samples/s"
    image_size: int | None = None
    seq_len: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTrial:
    """A whole optimizer step of one model in one configuration, on one device."""

    model: ModelSpec
    precision: str
    batch_size: int
    """Samples per forward pass; 0 where a user-defined function decides."""
    channels_last: bool = False
    compiled: bool = False
    fused_optimizer: bool = False
    checkpointing: bool = False
    grad_accum: int = 1
    rank: int = 0
    """Trials of lower rank are measured first."""

    @property
    def key(self) -> str:
        """Equal for trials that measure the same thing; the `run_id` of the row."""
        marks = {
            "nhwc": self.channels_last,
            "compiled": self.compiled,
            "fused": self.fused_optimizer,
            "checkpointed": self.checkpointing,
            f"accum{self.grad_accum}": self.grad_accum > 1,
            f"s{self.model.seq_len}": self.model.seq_len is not None,
            f"i{self.model.image_size}": self.model.image_size is not None,
        }
        words = (self.model.name, self.precision, f"b{self.batch_size}", self.model.optimizer)
        return "/".join((*words, *(mark for mark, holds in marks.items() if holds)))

    def __str__(self) -> str:
        return self.key


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class WorkerGroup:
    """Workers and their resources: trials with equal groups share the same processes."""

    num_workers: int
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    num_nodes: int = 1
    """Ray nodes that the workers are placed on; 1: any nodes with free resources."""
    cpu_limit: str = ""
    """cgroup: `cpus_per_worker` is enforced; empty: Ray counts it only."""
    cores: tuple[int, ...] = ()
    """Of each node, on which its workers run; empty: on all."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of the workers' processes."""

    def __str__(self) -> str:
        parts = [f"w{self.num_workers}", f"c{self.cpus_per_worker:g}"]
        parts += [f"g{self.gpus_per_worker:g}"] if self.gpus_per_worker else []
        parts += [f"n{self.num_nodes}"] if self.num_nodes > 1 else []
        parts += [f"-{self.cpu_limit}"] if self.cpu_limit else []
        return "".join(parts)


DATA_ORIGINS: Mapping[str, str] = {
    "synthetic": "random numbers in memory",
    "digits": "digits of scikit-learn in memory",
    "generated-images": "images from disk, generated, no CIFAR",
}
"""Dataset of a trial to what its samples are; every other one is a folder of images."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingTrial:
    """One training run of a group of workers."""

    model: str
    dataset: str
    """synthetic, digits, generated-images, or the folder of an ImageFolder."""
    dataset_samples: int
    """Of the whole dataset."""
    fraction: float
    """Share of the dataset, above 0 to 1."""
    group: WorkerGroup
    batch_per_worker: int
    precision: str
    optimizer: str
    sizes: Mapping[str, float] = field(default_factory=dict)
    """Of the model, where the campaign overrides them."""
    repeat: int = 0
    epochs: int = 1
    """Most epochs."""
    seconds: float | None = None
    """Most seconds of training after the warm-up, about; None: all epochs."""
    warmup_steps: int = 2
    """After iteration 0."""
    time_limit_s: float = 120.0
    """Of the whole run; one that takes longer is recorded as failed."""
    machine: str = ""
    """What the campaign calls the type of its machines; trials on other types measure something else."""
    link_bytes_per_s: float | None = None
    """Of the network of a node, as the campaign states it."""
    evaluation_share: float = 0.0
    """Held-out samples that the job evaluates after each epoch, over those of the epoch."""
    checkpoint: bool = False
    """Whether rank 0 writes a checkpoint after each epoch."""

    @property
    def data_origin(self) -> str:
        """What the samples are and where they are read from."""
        return DATA_ORIGINS.get(self.dataset, "images from disk")

    @property
    def num_samples(self) -> int:
        """Of an epoch, over all workers."""
        return max(1, round(self.dataset_samples * self.fraction))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches of a worker's share."""
        return self.num_samples // (self.group.num_workers * self.batch_per_worker)

    @property
    def evaluation_batches(self) -> int:
        """Batches of held-out samples that a worker evaluates after an epoch; one where there are fewer."""
        held_out = self.evaluation_share * self.num_samples
        return math.ceil(held_out / (self.group.num_workers * self.batch_per_worker))

    @property
    def key(self) -> str:
        """Equal for trials that measure the same thing, repeats apart."""
        sizes = ",".join(f"{name}={value:g}" for name, value in sorted(self.sizes.items()))
        marks = {
            f"@{self.machine}": bool(self.machine),
            f"eval{self.evaluation_share:g}": self.evaluation_share > 0,
            "checkpoint": self.checkpoint,
        }
        return "/".join(
            (
                f"{self.model}({sizes})" if sizes else self.model,
                f"{self.dataset}-{self.dataset_samples}x{self.fraction:g}",
                str(self.group),
                f"b{self.batch_per_worker}",
                self.precision,
                self.optimizer,
                *(mark for mark, holds in marks.items() if holds),
            )
        )

    @property
    def identity(self) -> tuple[str, int]:
        """What a store holds once."""
        return self.key, self.repeat

    def __str__(self) -> str:
        return f"{self.key}#{self.repeat}"


LocalTrial = KernelTrial | StepTrial
"""What `precision-time measure` runs on the device of this machine."""
Trial = LocalTrial | TrainingTrial
