"""What PredictDDL reads of a request (`requests.py`), and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

FIELDS = (
    "device", "gpus", "nodes", "node_type", "intra_node", "inter_node", "network", "cluster",
    "custom",
    "precision", "batch_size", "global_batch_size", "num_microbatches", "seq_len", "image_size", "sizes",
    "task", "dataset", "samples", "epochs", "steps", "optimizer",
    "framework", "stack", "software", "compiler", "channels_last", "fused_optimizer", "unpadded_sequences",
    "real_input", "trust", "example_inputs",
)  # fmt: skip
"""Fields of a request that PredictDDL reads besides its model: it knows data-parallel jobs only."""


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
    """1 - CKA of the embeddings of the probe networks by both GHNs; 0 under one shared GHN."""
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
    epochs: float | None
    """None where steps were asked for and the number of samples is not known."""
    training_time_s: float | None
    """Steps times step time; None where the number of samples is not known."""
    predictor: PredictorName
    task: TaskMatch
    expected_error_percent: float
    """Median absolute error of the regressor on architectures held out in training."""
    p90_error_percent: float
    """Ninetieth percentile of the same."""
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
