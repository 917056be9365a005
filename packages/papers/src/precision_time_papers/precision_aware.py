r"""The hierarchical precision-aware predictor, ours, and its counterparts that ignore the precision.

Formula: step = cost model * exp(four learned stages) (devdoc 003). The blind ones price every job as fp32 and
give the trees no feature that depends on the precision; their stages hold in full everywhere
(`StagedCorrection.without_shrinkage`), as fp32 formulas are nothing to fall back to. One is fitted to runs of
every precision, one to runs in fp32 and TF32 only: what a user gets who sets nothing.
Source: arXiv 2604.16145. Its abstract: a prediction that ignores precision errs by up to 147.85 %, which is
what a predictor of single-precision time errs by on a run 2.48 times as fast (papers.md 1.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from precision_time.errors import ConfigError
from precision_time.learn.stages import (
    DEFAULT_SETTINGS,
    BoosterSettings,
    ByStage,
    StagedCorrection,
    fit_stages,
)
from precision_time.learn.table import JobTable, MeasuredTable
from precision_time.learn.training import row_weights

from .contract import FeatureTable, Floats, Ints, JobViews, require_rows

SINGLE_PRECISION = ("fp32", "tf32")


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedStages:
    """The stages, and how the jobs look to them."""

    correction: StagedCorrection
    blind: bool
    no_shrinkage: bool

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        return self.by_stage(jobs).corrected.step_time_s

    def by_stage(self, jobs: JobViews) -> ByStage:
        """Step times of all stages and of fewer, and distances to the runs fitted."""
        seen = jobs.fp32 if self.blind else jobs.native
        correction = self.correction.without_shrinkage(seen) if self.no_shrinkage else self.correction
        return correction.by_stage(seen)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionAware:
    """Cost model and four learned stages (devdoc 003)."""

    citation: ClassVar[str] = "arXiv 2604.16145"
    trees: Mapping[str, BoosterSettings] = field(default_factory=lambda: DEFAULT_SETTINGS)
    seed: int = 0
    blind: bool = False
    """Whether formulas and trees ignore the precision."""
    fp32_only: bool = False
    """Whether only runs in single precision are fitted."""
    no_shrinkage: bool | None = None
    """Whether the stages hold in full far from measured runs; None: for blind predictors."""

    @property
    def title(self) -> str:
        """Its name in tables."""
        return "ours" + (" without precision" * self.blind) + (", fitted on fp32" * self.fp32_only)

    def fit(self, table: FeatureTable, rows: Ints) -> FittedStages:
        """Fit the stages to the rows.

        Raises:
            ConfigError: If there are no rows, or none in single precision where only those are wanted.
        """
        require_rows(rows, self.title)
        if self.fp32_only:
            precisions = np.array([table.measured.measurements[row].precision for row in rows])
            single = np.isin(precisions, SINGLE_PRECISION)
            if not single.any():
                raise ConfigError(
                    f"None of {len(rows)} rows is in {' or '.join(SINGLE_PRECISION)}: nothing to fit the "
                    "fp32-trained predictor on. To fix: take a larger sample."
                )
            rows = rows[single]
        jobs = table.jobs.fp32 if self.blind else table.jobs.native
        return FittedStages(
            correction=fit_staged(table.measured, jobs, rows, trees=self.trees, seed=self.seed),
            blind=self.blind,
            no_shrinkage=self.blind if self.no_shrinkage is None else self.no_shrinkage,
        )


def fit_staged(
    table: MeasuredTable, jobs: JobTable, rows: Ints, *, trees: Mapping[str, BoosterSettings], seed: int
) -> StagedCorrection:
    """Fit the stages with `jobs` in the place of the table's own.

    Args:
        table: Measurements.
        jobs: How the jobs of all its rows look to the predictor.
        rows: Rows to learn from.
        trees: LightGBM settings per stage.
        seed: Of boosters and inner folds.
    """
    return fit_stages(
        replace(table, jobs=jobs),
        rows,
        row_weights(table),
        table.groups(),
        settings=trees,
        seed=seed,
    )
