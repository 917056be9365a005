"""Requests to PredictDDL and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from ...errors import ConfigError
from ...hardware.device import Cluster
from ...hardware.inventory import ClusterResources
from .columns import PRECISION
from .datasets import DatasetFacts

_COUNTS = ("batch_size", "epochs", "num_micro_batches")


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One training run whose time is wanted."""

    model: Any
    """A known name, an `OpGraph`, a configuration, or a user-defined module (needs torch)."""
    cluster: Cluster | ClusterResources
    batch_size: float
    """Samples per device and forward pass."""
    dataset: str | DatasetFacts | None = None
    """None for the one the model is usually trained on."""
    epochs: float = 1.0
    precision: str = "fp32"
    num_micro_batches: int = 1
    """Forward passes per optimizer step (gradient accumulation)."""
    seq_len: int | None = None
    image_size: int | None = None
    sizes: Mapping[str, Any] = field(default_factory=dict)
    """Sizes of a parametric model, as `load_workload` takes them."""
    task: str = ""
    example_inputs: Any = None
    """Of a user-defined module."""
    stack: str | None = None
    """Stack profile; None for the usual one of the model's family. Only `predictddl-precision` reads it."""
    variant: str = PRECISION
    """`predictddl`, as the paper describes it and blind to precision, or `predictddl-precision`."""
    regressor: str | None = None
    """linear, polynomial-2, svr or mlp; None for the one that cross-validation chose."""
    version: int | None = None
    """Of the predictor; None for the newest."""
    name: str = ""
    """The caller's name of the request; empty for none."""

    def __post_init__(self) -> None:
        for count in _COUNTS:
            value = getattr(self, count)
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e13:
                raise ConfigError(
                    f"{count}={value!r} is invalid: it must be a number above 0. To fix: {count}=1 or more."
                )


class Outcome(StrEnum):
    """What the task checker found."""

    HIT = "hit"
    CLOSEST = "closest"
    TRAINED = "trained"


@dataclass(frozen=True, kw_only=True, slots=True)
class TaskMatch:
    """Which predictor serves a dataset, and how far it is from what was asked."""

    outcome: Outcome
    wanted: str
    """Dataset type asked for, or the dataset where it is of no type."""
    used: str
    """Dataset type of the predictor."""
    data_distance: float = 0.0
    """Between the datasets: standard deviations of log samples, log classes, log elements."""
    embedding_distance: float = 0.0
    """1 - mean cosine similarity of the embeddings of the probe networks; 0 under one shared GHN."""
    notes: tuple[str, ...] = ()

    @property
    def distance(self) -> float:
        """Both together; 0 for a hit."""
        return self.data_distance + self.embedding_distance

    def __str__(self) -> str:
        """`hit`, `closest(1.23)` or `trained`."""
        exact = self.outcome is not Outcome.CLOSEST
        return self.outcome.value if exact else f"closest({self.distance:.2f})"


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictorName:
    """Which regressor answered."""

    dataset_type: str
    version: int
    variant: str
    regressor: str
    target: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """The predicted time of one request."""

    name: str
    """The caller's name of the request."""
    model: str
    precision: str
    step_time_s: float
    """Of one optimizer step."""
    steps_per_epoch: int | None
    """None where the number of samples is not known."""
    epochs: float
    training_time_s: float | None
    """Steps times step time; None where the number of samples is not known."""
    predictor: PredictorName
    task: TaskMatch
    expected_error_percent: float
    """Median absolute error of the regressor on architectures held out in training."""
    unknown_ops: Mapping[str, int]
    """Operators that the vocabulary of the GHN lacks: the embedding skips them."""
    substitutions: tuple[str, ...]
    """What was substituted, assumed, or is outside the training data, in words."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        detail = {**asdict(self.task), "distance": self.task.distance}
        return {**asdict(self), "task": str(self.task), "task_detail": detail}


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A request of a batch that could not be answered; the others are."""

    name: str
    error: str
    line: int | None = None
    """Of a batch file, the first being 1."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        where = {} if self.line is None else {"line": self.line}
        return {"name": self.name, **where, "error": self.error}
