r"""Our predictor, and its counterparts that ignore the precision.

Formula: step = cost model * exp(trees) (`learn.predictor`). The blind ones price every job as fp32 and give
the trees no feature that depends on the precision; their correction does not shrink, as fp32 formulas are
nothing to fall back to. One is fitted to runs of every precision, one to runs in fp32 and TF32 only: what a
user gets who sets nothing.
Source: arXiv 2604.16145, whose own hierarchy is `hierarchical.py`. Its abstract: a prediction that ignores
precision errs by up to 147.85 %, which is what a predictor of single-precision time errs by on a run 2.48
times as fast (papers.md 1.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from precision_time.errors import ConfigError
from precision_time.learn.boosting import DEFAULT_SETTINGS, BoosterSettings
from precision_time.learn.measured import MeasuredTable, fit_predictor
from precision_time.learn.predictor import Predictor, Times
from precision_time.learn.table import JobTable
from precision_time.learn.training import row_weights

from .contract import FeatureTable, Floats, Ints, JobViews, require_rows

SINGLE_PRECISION = ("fp32", "tf32")


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedTimes:
    """The predictor, and how the jobs look to it."""

    predictor: Predictor
    blind: bool

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        return self.times(jobs).step_time_s

    def times(self, jobs: JobViews) -> Times:
        """Step times, and distances to the runs fitted."""
        return self.predictor.times(jobs.fp32 if self.blind else jobs.native)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionAware:
    """Cost model and one learned stage."""

    citation: ClassVar[str] = "arXiv 2604.16145"
    trees: Mapping[str, BoosterSettings] = field(default_factory=lambda: DEFAULT_SETTINGS)
    seed: int = 0
    blind: bool = False
    """Whether formulas and trees ignore the precision."""
    fp32_only: bool = False
    """Whether only runs in single precision are fitted."""
    no_shrinkage: bool | None = None
    """Whether the correction holds in full far from measured runs; None: for blind predictors."""

    @property
    def title(self) -> str:
        """Its name in tables."""
        return "ours" + (" without precision" * self.blind) + (", fitted on fp32" * self.fp32_only)

    def fit(self, table: FeatureTable, rows: Ints) -> FittedTimes:
        """Fit to the rows.

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
        fitted = fit_to(table.measured, jobs, rows, trees=self.trees, seed=self.seed)
        whole = self.blind if self.no_shrinkage is None else self.no_shrinkage
        return FittedTimes(predictor=replace(fitted, fade=0.0) if whole else fitted, blind=self.blind)


def fit_to(
    table: MeasuredTable, jobs: JobTable, rows: Ints, *, trees: Mapping[str, BoosterSettings], seed: int
) -> Predictor:
    """Fit with `jobs` in the place of the table's own.

    Args:
        table: Measurements.
        jobs: How the jobs of all its rows look to the predictor.
        rows: Rows to learn from.
        trees: LightGBM settings.
        seed: Of the booster.
    """
    return fit_predictor(replace(table, jobs=jobs), rows, row_weights(table), trees["step"], seed=seed)
