r"""Paleo's sum of parts, in fp32.

Formula: $t = (F / peak_{fp32} + (B + 3 \cdot 4P) / bandwidth) / q + 2 \frac{n-1}{n} 4P / (0.72\, link)$
with FLOPs F and fp32 bytes B of a device and step, P parameters, n devices that hold replicas. Nothing
overlaps. q, the platform's percent of peak, is the median over the rows fitted.
Source: Qi, Sparks, Talwalkar, Paleo, ICLR 2017; 4 bytes everywhere and one peak as in its code, 0.72 for
the network as in its examples; ring all-reduce instead of its butterfly, which was for other networks.
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

_BYTES = 4.0
_WEIGHT_PASSES = 3.0
_NETWORK_SHARE = 0.72
_LEAST_SHARE = 0.1
"""Of the step that is taken for compute where the synchronization alone would exceed it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedPaleo:
    """Percent of peak."""

    share_of_peak: float

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        seconds: Floats = compute_s(jobs.fp32) / self.share_of_peak + sync_s(jobs.fp32)
        return seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class PaleoLike:
    """See the module."""

    title: ClassVar[str] = "Paleo-like"
    citation: ClassVar[str] = "Qi, Sparks, Talwalkar, ICLR 2017"

    def fit(self, table: FeatureTable, rows: Ints) -> FittedPaleo:
        """The median percent of peak."""
        require_rows(rows, self.title)
        blind, measured_s = table.jobs.fp32.take(rows), table.measured_s[rows]
        computing_s = np.maximum(measured_s - sync_s(blind), _LEAST_SHARE * measured_s)
        return FittedPaleo(share_of_peak=float(np.median(compute_s(blind) / computing_s)))


def compute_s(jobs: JobTable) -> Floats:
    """Forward, backward and update at full peak [s], shape (n,)."""
    bandwidth = np.exp(column(jobs, "log_bandwidth"))
    update_bytes = _WEIGHT_PASSES * _BYTES * _local_params(jobs)
    seconds: Floats = (
        flops_per_device(jobs) / np.exp(column(jobs, "log_fp32_peak"))
        + (bytes_per_device(jobs) + update_bytes) / bandwidth
    )
    return seconds


def sync_s(jobs: JobTable) -> Floats:
    """Ring all-reduce of the gradients over the slowest link [s], shape (n,)."""
    replicas = np.exp(column(jobs, "log_dp"))
    inter, intra = column(jobs, "inter_bandwidth"), column(jobs, "intra_bandwidth")
    link = np.where(inter > 0.0, inter, intra)
    volume = 2.0 * (replicas - 1.0) / replicas * _BYTES * _local_params(jobs)
    seconds: Floats = np.where(link > 0.0, volume / np.maximum(_NETWORK_SHARE * link, 1.0), 0.0)
    return seconds


def _local_params(jobs: JobTable) -> Floats:
    local: Floats = np.exp(column(jobs, "log_params") - column(jobs, "log_tp") - column(jobs, "log_pp"))
    return local
