"""Predictors that must run the queried job itself: how they get their samples, and what the samples cost.

A job here is one model at one precision in one software on one type of device; its configurations differ in
devices, nodes and batch. Such a predictor is offered configurations, chooses which to run, and is queried for
the others. Every run goes through a `MeasurementBudget`, which counts it: nothing is measured for free.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from precision_time.errors import ConfigError

from .contract import Floats, Ints, PublishedPredictor

STEPS_PER_RUN = 50
"""Steps that one sample run takes: enough for a median after warm-up. Start-up is not counted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Configurations:
    """k configurations of one job; arrays have shape (k,)."""

    devices: Floats
    nodes: Floats
    global_batch: Floats
    """Samples per optimizer step over all devices."""
    largest_batch: float
    """Of the whole job: what a share of 1 stands for."""

    def __len__(self) -> int:
        return len(self.devices)

    @property
    def share(self) -> Floats:
        """Work of one step over that of the largest: Ernest's input fraction s."""
        share: Floats = self.global_batch / self.largest_batch
        return share

    def take(self, rows: Ints) -> Configurations:
        """Some of them."""
        return Configurations(
            devices=self.devices[rows],
            nodes=self.nodes[rows],
            global_batch=self.global_batch[rows],
            largest_batch=self.largest_batch,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementBudget:
    """Runs configurations of a job on request, returns their measured times and counts the runs."""

    offered: Configurations
    step_time_s: Floats
    """Measured, shape (k,); only `run` returns it."""
    limit: int
    """How many may be run; at least 1; running one again costs nothing and gives the same."""
    chosen: list[int] = field(default_factory=list)
    """Configurations run, in order."""

    def __post_init__(self) -> None:
        if self.limit < 1:
            raise ConfigError(
                f"A budget of {self.limit} sample runs gives nothing to fit. To fix: allow at least 1."
            )

    def run(self, index: int) -> float:
        """Step time of one configuration [s].

        Raises:
            ConfigError: If the limit is spent.
        """
        if index not in self.chosen:
            if len(self.chosen) >= self.limit:
                raise ConfigError(
                    f"A predictor wants more than {self.limit} sample runs of a job. "
                    "To fix: choose fewer, or raise the limit for all predictors."
                )
            self.chosen.append(index)
        return float(self.step_time_s[index])

    def run_all(self, rows: Ints) -> Floats:
        """Step times of some configurations [s]."""
        return np.array([self.run(int(row)) for row in rows])

    @property
    def wall_s(self) -> float:
        """Wall-clock seconds of the runs, one after the other."""
        return STEPS_PER_RUN * float(self.step_time_s[self.chosen].sum())

    @property
    def device_s(self) -> float:
        """Device-seconds of the runs."""
        return STEPS_PER_RUN * float((self.step_time_s * self.offered.devices)[self.chosen].sum())


class FittedJob(Protocol):
    """A predictor of one job."""

    def predict(self, configurations: Configurations) -> Floats:
        """Step times [s], shape (k,)."""
        ...


class SamplingEstimator(PublishedPredictor, Protocol):
    """A predictor that is fitted to runs of a few configurations of one job."""

    def fit(self, budget: MeasurementBudget, *, seed: int) -> FittedJob:
        """Choose configurations of `budget.offered`, run up to `budget.limit` of them, and fit."""
        ...


def cheapest_first(offered: Configurations) -> Ints:
    """Configurations in the order of their least cost: work per device, then devices, then nodes."""
    order: Ints = np.lexsort((offered.nodes, offered.devices, offered.share / offered.devices)).astype(
        np.intp
    )
    return order
