r"""What if this fp32 run were in mixed precision: kernels made faster by two constants.

Formula: $t = t_{fp32} \cdot (1 - k + k (p / 3 + (1 - p) / 2))$ for precisions of 16 bits and fewer,
$t_{fp32}$ otherwise; k is the share of kernels in the fp32 step, p that of products (GEMMs, convolutions,
attention) among them, both from the fp32 formulas. $t_{fp32}$ is the fp32-trained predictor's.
Source: Zhu, Phanishayee, Pekhimenko, Daydream, USENIX ATC 2020 (its AMP model; constants as remembered in
papers.md 2.2). Daydream itself starts from a profile of the fp32 run; here nothing of the job was measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from precision_time.cost.terms import KERNEL_TERMS
from precision_time.learn.boosting import DEFAULT_SETTINGS, BoosterSettings
from precision_time.workload.graph import PRODUCT_CLASSES

from .contract import FeatureTable, Fitted, Floats, Ints, JobViews, column
from .precision_aware import PrecisionAware

_COMPUTE_BOUND, _REST = 1.0 / 3.0, 1.0 / 2.0
_NARROW_BYTES = 2.0
_KERNELS = tuple(f"share.{name}" for name in (*KERNEL_TERMS, "optimizer_s", "unscale_s"))


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedWhatIf:
    """The fp32 time, scaled."""

    of_fp32: Fitted

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        return self.of_fp32.predict(jobs) * what_if(jobs)


@dataclass(frozen=True, kw_only=True, slots=True)
class DaydreamWhatIf:
    """See the module."""

    trees: Mapping[str, BoosterSettings] = field(default_factory=lambda: DEFAULT_SETTINGS)
    """Of what predicts the fp32 time."""
    seed: int = 0

    title: ClassVar[str] = "Daydream-like what-if"
    citation: ClassVar[str] = "Zhu, Phanishayee, Pekhimenko, USENIX ATC 2020"

    def fit(self, table: FeatureTable, rows: Ints) -> FittedWhatIf:
        """Fit what predicts the fp32 time; the constants are Daydream's."""
        of_fp32 = PrecisionAware(trees=self.trees, seed=self.seed, blind=True, fp32_only=True)
        return FittedWhatIf(of_fp32=of_fp32.fit(table, rows))


def what_if(jobs: JobViews) -> Floats:
    """Factor on the fp32 time, shape (n,)."""
    fp32 = jobs.fp32
    kernel_share = sum((column(fp32, name) for name in _KERNELS if name in fp32.names), np.zeros(len(jobs)))
    classes = [f"class.{op_class.value}" for op_class in PRODUCT_CLASSES]
    products = sum((column(fp32, name) for name in classes), np.zeros(len(jobs)))
    scaled = products * _COMPUTE_BOUND + (1.0 - products) * _REST
    low = column(jobs.native, "activation_bytes") <= _NARROW_BYTES
    factor: Floats = np.where(low, 1.0 - kernel_share * (1.0 - scaled), 1.0)
    return factor
