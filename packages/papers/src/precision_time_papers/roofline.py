r"""The roofline of the whole step, with the peaks of the types it computes in.

Formula: $t = c \max(F_{tc} / peak_{dtype} + (F - F_{tc}) / peak_{fp32}, B / bandwidth)$ with FLOPs F, those
on matrix units $F_{tc}$ and bytes B of a device and step; c is the median of measured over bound on the rows
fitted.
Source: Williams, Waterman, Patterson, CACM 52(4), 2009; one constant in the place of an efficiency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from precision_time.learn.table import JobTable

from .contract import (
    FeatureTable,
    Floats,
    Ints,
    JobViews,
    bytes_per_device,
    column,
    flops_per_device,
    require_rows,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedRoofline:
    """One factor over the bound."""

    factor: float

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        return self.factor * bound_s(jobs.native)


@dataclass(frozen=True, kw_only=True, slots=True)
class RooflineOnly:
    """See the module."""

    title: ClassVar[str] = "roofline only"
    citation: ClassVar[str] = "Williams, Waterman, Patterson, CACM 52(4), 2009"

    def fit(self, table: FeatureTable, rows: Ints) -> FittedRoofline:
        """The median factor."""
        require_rows(rows, self.title)
        bound = bound_s(table.jobs.native.take(rows))
        return FittedRoofline(factor=float(np.median(table.measured_s[rows] / bound)))


def bound_s(jobs: JobTable) -> Floats:
    """Least seconds of a step on its devices, nothing communicated, shape (n,)."""
    flops, narrow = flops_per_device(jobs), column(jobs, "tensor_core_share")
    peak, fp32_peak = np.exp(column(jobs, "log_peak")), np.exp(column(jobs, "log_fp32_peak"))
    compute_s = flops * (narrow / peak + (1.0 - narrow) / fp32_peak)
    memory_s = bytes_per_device(jobs) / np.exp(column(jobs, "log_bandwidth"))
    seconds: Floats = np.maximum(compute_s, memory_s)
    return seconds
