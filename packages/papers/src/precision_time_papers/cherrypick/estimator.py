r"""CherryPick's Gaussian process as a predictor of time, after a few runs of the very job.

Formula: $\log t \sim GP(0, k)$ with Matern 5/2 over log devices, log nodes and log global batch; three spread
starts, then the configuration of the largest posterior variance each time. The answer is the posterior
median.
Source: Alipourfard et al., CherryPick, NSDI 2017. The original looks for the best configuration and not for
times everywhere; to predict everywhere, it is sent where it knows least (papers.md 5.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from ..contract import Floats
from ..per_job import Configurations, MeasurementBudget
from .search import STARTS, fit_gaussian, spread_starts


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedGaussian:
    """The process, and the ranges that its features were scaled by."""

    process: Any
    """scikit-learn's regressor."""
    low: Floats
    width: Floats

    def predict(self, configurations: Configurations) -> Floats:
        """Step times [s], shape (k,)."""
        mean = self.process.predict((_features(configurations) - self.low) / self.width)
        seconds: Floats = np.exp(mean)
        return seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class CherryPickGaussian:
    """See the module."""

    title: ClassVar[str] = "CherryPick's Gaussian process"
    citation: ClassVar[str] = "Alipourfard et al., NSDI 2017"

    def fit(self, budget: MeasurementBudget, *, seed: int) -> FittedGaussian:
        """Start spread, then go where the variance is largest, until the limit is spent."""
        features = _features(budget.offered)
        low = features.min(axis=0)
        width = np.maximum(features.max(axis=0) - low, 1e-9)
        x = (features - low) / width
        order = spread_starts(x, min(STARTS, budget.limit, len(x)), seed=seed)
        log_s = [float(np.log(budget.run(index))) for index in order]
        while len(order) < min(budget.limit, len(x)):
            left = np.setdiff1d(np.arange(len(x)), order)
            process = fit_gaussian(x[order], np.array(log_s), seed=seed)
            _, deviation = process.predict(x[left], return_std=True)
            order.append(int(left[np.argmax(deviation)]))
            log_s.append(float(np.log(budget.run(order[-1]))))
        return FittedGaussian(
            process=fit_gaussian(x[order], np.array(log_s), seed=seed), low=low, width=width
        )


def _features(configurations: Configurations) -> Floats:
    return np.log(
        np.stack([configurations.devices, configurations.nodes, configurations.global_batch], axis=1)
    )
