r"""Optimus: the speed of one job over workers (and parameter servers), from 5 to 10 short runs of it.

Formula, all-reduce: $t = \theta_0 M/w + \theta_1 + \theta_2 (w-1)/w + \theta_3 w$; with p parameter servers:
$t = \theta_0 M/w + \theta_1 + \theta_2 w/p + \theta_3 w + \theta_4 p$; all coefficients >= 0 by non-negative
least squares; M is the global batch, w the workers. Loss after k steps: $l(k) = 1/(\beta_0 k + \beta_1) +
\beta_2$, with non-negative coefficients.
Source: Peng et al., Optimus, EuroSys 2018 (as remembered in papers.md 5.5; the all-reduce form drops p). Like
Ernest it is refitted for every job; its points are short runs on the worker counts at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError
from .per_job import Bench, Configurations, cheapest_first

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

_LEAST_S = 1e-9
_LOSS_FLOORS = 64
_LEAST_LOSSES = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedOptimus:
    """Coefficients of the all-reduce form."""

    coefficients: Floats

    def predict(self, asked: Configurations) -> Floats:
        """Step times [s], shape (k,)."""
        seconds: Floats = all_reduce_terms(asked.global_batch, asked.devices) @ self.coefficients
        return np.maximum(seconds, _LEAST_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class Optimus:
    """See the module."""

    @property
    def title(self) -> str:
        """Heading of its row."""
        return "Optimus"

    def fit(self, bench: Bench, *, seed: int) -> FittedOptimus:
        """Short runs on as many worker counts as there are, then a second batch on each."""
        del seed
        rows = spread_over_workers(bench.offered)[: bench.limit]
        measured_s = bench.run_all(rows)
        chosen = bench.offered.take(rows)
        terms = all_reduce_terms(chosen.global_batch, chosen.devices)
        return FittedOptimus(coefficients=non_negative(terms, measured_s))


@dataclass(frozen=True, kw_only=True, slots=True)
class LossCurve:
    """l(k) = 1 / (b0 k + b1) + b2."""

    b0: float
    b1: float
    b2: float

    def loss(self, steps: Floats) -> Floats:
        """Loss after each number of steps."""
        loss: Floats = 1.0 / (self.b0 * steps + self.b1) + self.b2
        return loss

    def steps_to(self, loss: float) -> float:
        """Steps until a loss is reached; infinite where the curve never gets there."""
        if loss <= self.b2 or self.b0 <= 0.0:
            return float("inf")
        return max((1.0 / (loss - self.b2) - self.b1) / self.b0, 0.0)


def all_reduce_terms(global_batch: Floats, workers: Floats) -> Floats:
    """Terms of the all-reduce form, shape (k, 4)."""
    return np.stack(
        [global_batch / workers, np.ones(len(workers)), (workers - 1.0) / workers, workers], axis=1
    )


def parameter_server_terms(global_batch: Floats, workers: Floats, servers: Floats) -> Floats:
    """Terms of the form with parameter servers, shape (k, 5)."""
    ones = np.ones(len(workers))
    return np.stack([global_batch / workers, ones, workers / servers, workers, servers], axis=1)


def non_negative(terms: Floats, seconds: Floats) -> Floats:
    """Non-negative least squares, columns brought to one scale first."""
    from scipy.optimize import nnls

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


def fit_loss_curve(steps: Floats, losses: Floats) -> LossCurve:
    """Fit Optimus's loss curve to observed losses.

    b2 is searched on a grid below the smallest loss; given it, 1 / (l - b2) is linear in k.

    Args:
        steps: Steps done at each observation, shape (k,).
        losses: Losses observed, above 0.

    Raises:
        ConfigError: If there are fewer than 3 observations, or a loss is not above 0.
    """
    if len(losses) < _LEAST_LOSSES or float(losses.min()) <= 0.0:
        raise ConfigError(
            f"A loss curve needs at least {_LEAST_LOSSES} losses above 0, got {len(losses)}. "
            "To fix: observe more steps."
        )
    best: tuple[float, LossCurve] | None = None
    for floor in np.linspace(0.0, float(losses.min()), _LOSS_FLOORS, endpoint=False).tolist():
        terms = np.stack([steps, np.ones(len(steps))], axis=1) * (losses - floor)[:, None]
        b0, b1 = non_negative(terms, np.ones(len(steps))).tolist()
        if b0 <= 0.0 and b1 <= 0.0:
            continue
        curve = LossCurve(b0=b0, b1=max(b1, 1e-12), b2=floor)
        error = float(np.square(curve.loss(steps) - losses).sum())
        if best is None or error < best[0]:
            best = (error, curve)
    if best is None:
        raise ConfigError("No falling curve fits these losses. To fix: observe more steps.")
    return best[1]


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
