"""Ours without any precision input.

Formula: step = fp32 cost model * exp(three learned stages), fitted on runs of every precision. Neither the
formulas nor the trees are told which precision a run had. The stages hold in full everywhere
(`StagedCorrection.trusting`); everything else is as in ours.
Source: the "static model computation graph" predictors that arXiv 2604.16145 sets itself against.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...learn.stages import DEFAULT_SETTINGS, BoosterSettings, StagedCorrection
from ...learn.table import JobTable, MeasuredTable
from ..contract import Floats, fp32_part
from .staged import fit_staged


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedBlind:
    """Stages over jobs seen as fp32."""

    correction: StagedCorrection

    def predict(self, jobs: JobTable) -> Floats:
        """Step times [s], shape (n,)."""
        blind = fp32_part(jobs)
        return self.correction.trusting(blind).correct(blind).step_time_s


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionBlind:
    """See the module."""

    settings: Mapping[str, BoosterSettings] = field(default_factory=lambda: DEFAULT_SETTINGS)
    seed: int = 0

    @property
    def title(self) -> str:
        """Heading of its column."""
        return "blind"

    def fit(self, table: MeasuredTable, rows: NDArray[np.intp]) -> FittedBlind:
        """Fit on runs of every precision."""
        jobs = fp32_part(table.jobs)
        return FittedBlind(correction=fit_staged(table, jobs, rows, settings=self.settings, seed=self.seed))
