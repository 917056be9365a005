r"""Regression on figures of the static graph: work and size, no types.

Formula: $\log t = \beta_0 + \sum_i \beta_i \log x_i$ by least squares with a small ridge, where x are FLOPs
per device and step, parameters, samples per device and step, devices, nodes, and the fp32 peak and memory
bandwidth of the device.
Source: the usual black-box form, as in Justus et al. (IEEE Big Data 2018) and PredictDDL's polynomial stage
(CLUSTER 2023); criticised as the static graph by arXiv 2604.16145.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .contract import FeatureTable, Floats, Ints, JobViews, column, flops_per_device, require_rows

_RIDGE = 1e-3
_COLUMNS = (
    "log_params",
    "log_micro_batch_size",
    "log_num_micro_batches",
    "log_devices",
    "log_nodes",
    "log_fp32_peak",
    "log_bandwidth",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedRegression:
    """Coefficients over centered inputs."""

    coefficients: Floats
    means: Floats
    scales: Floats
    intercept: float

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        x = (_inputs(jobs) - self.means) / self.scales
        seconds: Floats = np.exp(self.intercept + x @ self.coefficients)
        return seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class FlopsRegression:
    """See the module."""

    title: ClassVar[str] = "FLOPs regression"
    citation: ClassVar[str] = "Justus et al., IEEE Big Data 2018"

    def fit(self, table: FeatureTable, rows: Ints) -> FittedRegression:
        """Least squares on the logarithm of the step time."""
        require_rows(rows, self.title)
        x = _inputs(table.jobs.take(rows))
        y = np.log(table.measured_s[rows])
        means, scales = x.mean(axis=0), np.maximum(x.std(axis=0), 1e-9)
        z = (x - means) / scales
        gram = z.T @ z + _RIDGE * len(z) * np.eye(z.shape[1])
        return FittedRegression(
            coefficients=np.linalg.solve(gram, z.T @ (y - y.mean())),
            means=means,
            scales=scales,
            intercept=float(y.mean()),
        )


def _inputs(jobs: JobViews) -> Floats:
    blind = jobs.fp32
    columns = [np.log(np.maximum(flops_per_device(blind), 1.0))]
    return np.stack([*columns, *(column(blind, name) for name in _COLUMNS)], axis=1)
