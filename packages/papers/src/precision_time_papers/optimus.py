r"""Optimus: the speed of one job over workers, from 5 to 10 short runs of it.

Formula: $t = \theta_0 M/w + \theta_1 + \theta_2 (w-1)/w + \theta_3 w$, all coefficients >= 0 by non-negative
least squares; M is the global batch, w the workers.
Source: Peng et al., Optimus, EuroSys 2018 (as remembered in papers.md 5.5), its form for all-reduce: the one
with parameter servers has two more terms. Like Ernest it is refitted for every job; its points are short runs
on the worker counts that the job offers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from precision_time.errors import required_module

from .contract import Floats, Ints
from .per_job import Configurations, MeasurementBudget, cheapest_first

_LEAST_S = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedOptimus:
    """Coefficients of the all-reduce form."""

    coefficients: Floats

    def predict(self, configurations: Configurations) -> Floats:
        """Step times [s], shape (k,)."""
        seconds: Floats = (
            all_reduce_terms(configurations.global_batch, configurations.devices) @ self.coefficients
        )
        return np.maximum(seconds, _LEAST_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimus:
    """See the module."""

    title: ClassVar[str] = "Optimus"
    citation: ClassVar[str] = "Peng et al., EuroSys 2018"

    def fit(self, budget: MeasurementBudget, *, seed: int) -> FittedOptimus:
        """Short runs on as many worker counts as there are, then a second batch on each."""
        del seed
        rows = spread_over_workers(budget.offered)[: budget.limit]
        measured_s = budget.run_all(rows)
        chosen = budget.offered.take(rows)
        terms = all_reduce_terms(chosen.global_batch, chosen.devices)
        return FittedOptimus(coefficients=non_negative(terms, measured_s))


def all_reduce_terms(global_batch: Floats, workers: Floats) -> Floats:
    """Terms of the all-reduce form, shape (k, 4)."""
    return np.stack(
        [global_batch / workers, np.ones(len(workers)), (workers - 1.0) / workers, workers], axis=1
    )


def non_negative(terms: Floats, seconds: Floats) -> Floats:
    """Non-negative least squares, columns brought to one scale first."""
    nnls = required_module("scipy.optimize", package="scipy", extra="train", purpose="fit Optimus").nnls
    scale = np.maximum(np.abs(terms).max(axis=0), 1e-12)
    coefficients, _ = nnls(terms / scale, seconds)
    scaled: Floats = coefficients / scale
    return scaled


def spread_over_workers(offered: Configurations) -> Ints:
    """All configurations in the order in which to run them.

    Worker counts alternate between few and many, and on them the smallest and the largest batches, so that
    any first few span both ranges.
    """
    order = cheapest_first(offered)
    counts = _ends_first(np.unique(offered.devices))
    by_count = [order[offered.devices[order] == count].tolist() for count in counts]
    rows: list[int] = []
    largest = False
    while any(by_count):
        for runs in by_count:
            if runs:
                rows.append(runs.pop(-1 if largest else 0))
                largest = not largest
    return np.array(rows, dtype=np.intp)


def _ends_first(counts: Floats) -> list[float]:
    """Smallest, largest, second smallest, second largest ...

    >>> _ends_first(np.array([1.0, 2.0, 4.0, 8.0]))
    [1.0, 8.0, 2.0, 4.0]
    """
    left = counts.tolist()
    ordered: list[float] = []
    while left:
        ordered.append(left.pop(0))
        if left:
            ordered.append(left.pop())
    return ordered
