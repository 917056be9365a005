"""What our own predictor answers for a point: the grey box's divisor, and the features only it may read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, model_validator

from precision_time.cost.job import Job
from precision_time.errors import ConfigError
from precision_time.request.request import Request

from .features import Column, Feature

Floats = NDArray[np.float64]

FIELDS = (
    "model", "device", "workers", "nodes", "node_type", "batch_per_worker", "precision", "stack", "optimizer",
    "num_microbatches", "seq_len", "image_size",
)  # fmt: skip
"""What a job is described by."""
_NEEDED = ("model", "device", "workers", "batch_per_worker")
_OPTIONS = {"workers": "gpus", "batch_per_worker": "batch_size"}
_COUNTS = ("workers", "nodes", "num_microbatches", "seq_len", "image_size")


class GreyBox(BaseModel):
    """Where the fields of a job are found in a row."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    PREDICTED: ClassVar[str] = "predicted_s"
    SHARE: ClassVar[str] = "predicted_exposed_share"
    FEATURES: ClassVar[tuple[Feature, ...]] = ((("log", PREDICTED),), (("value", SHARE),))
    """What only a grey box reads: the predicted time, and the share of it that waits for others."""

    fields: dict[str, str] = {}
    """Field of FIELDS to the column that holds it."""
    constants: dict[str, Any] = {}
    """Field of FIELDS to its value in every row."""
    times: str = ""
    """Column with the number of steps that the target spans; empty for one step."""
    given: bool = False
    """The columns `predicted_s` and `predicted_exposed_share` are in the data: nothing is predicted."""

    @model_validator(mode="after")
    def _names_a_job(self) -> GreyBox:
        named = (*self.fields, *self.constants)
        unknown = [name for name in named if name not in FIELDS]
        missing = [name for name in _NEEDED if name not in named]
        if unknown and not self.given:
            raise ValueError(f"unknown field {unknown[0]!r}; use some of {', '.join(FIELDS)}")
        if missing and not self.given:
            raise ValueError(
                f"{', '.join(missing)} not given: name its column in `fields`, or its value in `constants`"
            )
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a row must have for it."""
        if self.given:
            return (self.PREDICTED, self.SHARE)
        return tuple(dict.fromkeys((*self.fields.values(), *((self.times,) if self.times else ()))))

    def predictions(self, columns: Mapping[str, Column]) -> dict[str, Floats]:
        """Predicted times and shares of waiting, shape (n,) each.

        Args:
            columns: Columns of the rows.

        Raises:
            ConfigError: If a row names an invalid job; as `predict_time` otherwise.
        """
        from precision_time.learn.artifact import shipped_predictor
        from precision_time.learn.priced import predict_step_times

        if self.given:
            return {name: columns[name].astype(np.float64) for name in (self.PREDICTED, self.SHARE)}
        places: dict[tuple[tuple[str, str], ...], int] = {}
        jobs: list[Job] = []
        order: list[int] = []
        for row in range(len(next(iter(columns.values())))):
            described = {**self.constants, **{name: columns[at][row] for name, at in self.fields.items()}}
            key = tuple(sorted((name, str(value)) for name, value in described.items()))
            if key not in places:
                places[key] = len(jobs)
                jobs.append(job_named(described))
            order.append(places[key])
        times = predict_step_times(jobs, shipped_predictor(), coverage=0.9)
        seconds = times.step_time_s[order]
        if self.times:
            seconds = seconds * columns[self.times].astype(np.float64)
        share = (times.exposed_s / times.step_time_s)[order]
        return {self.PREDICTED: seconds, self.SHARE: share}


def job_named(described: Mapping[str, Any]) -> Job:
    """The data-parallel job that some of FIELDS name, resolved as every request is."""
    given = {name: value for name, value in described.items() if value not in (None, "")}
    options = {_OPTIONS.get(name, name): str(value) for name, value in given.items()}
    counts = {_OPTIONS.get(name, name): _count(name, given[name]) for name in _COUNTS if name in given}
    batch_size = float(given["batch_per_worker"])
    request = Request.of(
        {"precision": "fp32", **options, **counts, "batch_size": batch_size, "zero_stage": 0}
    )
    return request.resolve(named_only=True)


def _count(name: str, value: Any) -> int:
    number = float(value)
    if number < 1 or not number.is_integer():
        raise ConfigError(f"grey_box: {name} = {value} is not a count. To fix: give a whole number from 1.")
    return int(number)
