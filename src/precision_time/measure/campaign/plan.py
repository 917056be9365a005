"""A campaign and its points: every training run that is to be measured."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ...errors import ConfigError
from .catalog import GPU_PRECISIONS, check_model


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class Setting:
    """Workers and their resources: points that share them can share a group of workers."""

    num_workers: int
    cpus_per_worker: float = 1.0
    gpus_per_worker: float = 0.0
    num_nodes: int = 1
    """Ray nodes that the workers are spread over; 1: wherever there is room."""

    def __str__(self) -> str:
        parts = [f"w{self.num_workers}", f"c{self.cpus_per_worker:g}"]
        parts += [f"g{self.gpus_per_worker:g}"] if self.gpus_per_worker else []
        return "".join([*parts, f"n{self.num_nodes}"] if self.num_nodes > 1 else parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """One training run to be measured."""

    model: str
    dataset: str
    """synthetic, digits, or the folder of an ImageFolder."""
    dataset_samples: int
    """Of the whole data set."""
    fraction: float
    setting: Setting
    batch_per_worker: int
    precision: str
    optimizer: str
    sizes: Mapping[str, float] = field(default_factory=dict)
    repeat: int = 0
    epochs: int = 1
    """Most epochs."""
    seconds: float | None = None
    """Most seconds of training after the warm-up, about; None: all epochs."""
    warmup_steps: int = 2
    """After iteration 0."""
    time_limit_s: float = 120.0
    """Of the whole run; one that takes longer is recorded as failed."""

    @property
    def num_samples(self) -> int:
        """Of an epoch, over all workers."""
        return max(1, round(self.dataset_samples * self.fraction))

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches of a worker's share."""
        return self.num_samples // (self.setting.num_workers * self.batch_per_worker)

    @property
    def key(self) -> str:
        """Equal for points that measure the same thing, repeats apart."""
        sizes = ",".join(f"{name}={value:g}" for name, value in sorted(self.sizes.items()))
        return "/".join(
            (
                f"{self.model}({sizes})" if sizes else self.model,
                f"{self.dataset}-{self.dataset_samples}x{self.fraction:g}",
                str(self.setting),
                f"b{self.batch_per_worker}",
                self.precision,
                self.optimizer,
            )
        )

    @property
    def identity(self) -> tuple[str, int]:
        """What a store holds once."""
        return self.key, self.repeat

    def __str__(self) -> str:
        return f"{self.key}#{self.repeat}"

    def to_dict(self) -> dict[str, Any]:
        """As it goes to the workers."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Point:
        """What `to_dict` gave."""
        return cls(**{**values, "setting": Setting(**values["setting"])})


@dataclass(frozen=True, kw_only=True, slots=True)
class Campaign:
    """What a campaign file or the flags of the command ask for."""

    name: str
    points: tuple[Point, ...]
    """In the order of the file, round after round: every point once before any is repeated."""
    oversubscribe: bool = False
    """A local Ray may offer more CPUs than this machine has; such points are labelled."""

    @property
    def settings(self) -> tuple[Setting, ...]:
        """Those of the points, in their order."""
        return tuple(dict.fromkeys(point.setting for point in self.points))


def check_points(points: Sequence[Point]) -> None:
    """Refuse what cannot be measured anywhere, and say which point it is.

    Raises:
        ConfigError: If a point holds less than a batch, or asks a CPU for a precision of GPUs.
        UnknownNameError: If nobody knows its model.
    """
    if not points:
        raise ConfigError("The campaign has no points. To fix: give at least one value on every axis.")
    for model, sizes in {(point.model, tuple(sorted(point.sizes.items()))) for point in points}:
        check_model(model, dict(sizes))
    for point in points:
        if not point.steps_per_epoch:
            share = point.num_samples / point.setting.num_workers
            raise ConfigError(
                f"The point {point} has {share:g} samples per worker, less than its batch of "
                f"{point.batch_per_worker}. To fix: more samples, a larger fraction or a smaller batch."
            )
        if point.precision in GPU_PRECISIONS and not point.setting.gpus_per_worker:
            raise ConfigError(
                f"The point {point} asks for {point.precision} on workers without a GPU. To fix: set "
                "gpus_per_worker, or leave this precision out."
            )


def repeated(points: Sequence[Point], repeats: int) -> Iterator[Point]:
    """Every point `repeats` times, round after round; each key once per round."""
    unique = {point.key: point for point in points}
    for repeat in range(repeats):
        yield from (replace(point, repeat=repeat) for point in unique.values())


def cores_needed(settings: Sequence[Setting]) -> int:
    """CPUs that the largest setting reserves."""
    return max(math.ceil(each.num_workers * each.cpus_per_worker) for each in settings)
