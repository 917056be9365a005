"""Our own predictor behind the contract of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...learn.stages import DEFAULT_SETTINGS, BoosterSettings, StagedCorrection
from ...learn.table import JobTable, MeasuredTable
from ...papers.contract import Floats, own_part
from ...papers.precision_aware.staged import fit_staged


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedOurs:
    """The stages over jobs as their own precision prices them."""

    correction: StagedCorrection

    def predict(self, jobs: JobTable) -> Floats:
        """Step times [s], shape (n,)."""
        return self.correction.correct(own_part(jobs)).step_time_s


@dataclass(frozen=True, kw_only=True, slots=True)
class Ours:
    """Cost model and four learned stages (devdoc 003)."""

    settings: Mapping[str, BoosterSettings] = field(default_factory=lambda: DEFAULT_SETTINGS)
    seed: int = 0

    @property
    def title(self) -> str:
        """Heading of its row."""
        return "ours"

    def fit(self, table: MeasuredTable, rows: NDArray[np.intp]) -> FittedOurs:
        """Fit the stages on the rows."""
        jobs = own_part(table.jobs)
        return FittedOurs(correction=fit_staged(table, jobs, rows, settings=self.settings, seed=self.seed))
