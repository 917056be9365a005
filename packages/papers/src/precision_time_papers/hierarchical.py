"""The hierarchy of the precision-aware paper: compute, communication and an aggregator, each learned.

1. compute: log(measured / analytical) of the compute part, from runs on one device and runs whose wait for
   communication was measured;
2. communication: the same of the communication that compute does not hide, from runs on several;
3. aggregator: log(measured / sum of the two parts), from all runs. It sees the parts out of fold, so that it
   learns from the errors that they make on jobs they have not seen.

Ours learns one correction of the whole step instead (`learn.predictor`): docs/papers.md has both.
Source: arXiv 2604.16145 (papers.md 1.5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from precision_time.learn.boosting import DEFAULT_SETTINGS, BoosterSettings, boost
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.table import JobTable
from precision_time.learn.training import row_weights
from precision_time.learn.trees import NO_TREES, TreeEnsemble

from .contract import FeatureTable, Floats, Ints, JobViews, require_rows

_FLOOR_S = 1e-6
_MIN_SHARE = 0.02
"""Least share of a step that a part is taken to have, so that logarithms stay finite."""
_INNER_FOLDS = 2

STAGES: Mapping[str, BoosterSettings] = {
    "compute": BoosterSettings(num_trees=200),
    "communication": BoosterSettings(num_trees=120, num_leaves=31),
    "aggregator": BoosterSettings(num_trees=300, learning_rate=0.1, num_leaves=63, feature_fraction=0.4),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedHierarchy:
    """The trees of the three stages."""

    names: tuple[str, ...]
    """Feature columns, in order."""
    stages: Mapping[str, TreeEnsemble]
    """Those of STAGES."""

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        table = jobs.native.select(self.names)
        step_time_s: Floats = table.analytical_s * np.exp(self.correction(table)[0])
        return step_time_s

    def correction(self, jobs: JobTable) -> tuple[Floats, Floats]:
        """Log of the factor on the formulas, and the share of exposed communication, shape (n,) each.

        Args:
            jobs: In the columns of `names`.
        """
        compute_s, exposed_s = self.parts(jobs)
        total_s = compute_s + exposed_s
        factor = self.stages["aggregator"].predict(_with_parts(jobs.features, compute_s, exposed_s))
        return factor + np.log(total_s / jobs.analytical_s), exposed_s / total_s

    def parts(self, jobs: JobTable) -> tuple[Floats, Floats]:
        """Seconds of compute and of communication by their own stages alone, shape (n,) each."""
        compute, communication = (self.stages[name].predict(jobs.features) for name in [*STAGES][:2])
        return jobs.compute_s * np.exp(compute), jobs.exposed_s * np.exp(communication)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hierarchical:
    """See the module."""

    trees: Mapping[str, BoosterSettings] = field(default_factory=lambda: DEFAULT_SETTINGS)
    """Of ours: a share of its trees is a share of those of STAGES."""
    seed: int = 0

    title: ClassVar[str] = "hierarchical (compute, communication, aggregator)"
    citation: ClassVar[str] = "arXiv 2604.16145"

    def fit(self, table: FeatureTable, rows: Ints) -> FittedHierarchy:
        """Fit the three stages to the rows.

        Raises:
            ConfigError: If there are no rows.
        """
        require_rows(rows, self.title)
        share = self.trees["step"].num_trees / DEFAULT_SETTINGS["step"].num_trees
        settings = {
            name: replace(each, num_trees=max(round(share * each.num_trees), 1))
            for name, each in STAGES.items()
        }
        measured = replace(table.measured, jobs=table.jobs.native)
        return fit_hierarchy(measured, rows, row_weights(measured), measured.groups(), settings, self.seed)


def fit_hierarchy(
    table: MeasuredTable,
    rows: Ints,
    weights: Floats,
    groups: NDArray[Any],
    settings: Mapping[str, BoosterSettings] = STAGES,
    seed: int = 0,
) -> FittedHierarchy:
    """Fit the three stages.

    Args:
        table: Measured jobs.
        rows: Indices of the rows to learn from.
        weights: Evidence of each row of the table, shape (n,).
        groups: Group of each row of the table: rows of one group stay together in the inner folds.
        settings: LightGBM settings per stage.
        seed: Of the boosters and the inner folds.
    """
    features = table.jobs.features
    folds = _inner_folds(groups[rows], seed)
    parts = np.empty((2, len(rows)))
    for fold in range(_INNER_FOLDS):
        outside = rows[folds == fold]
        fitted = _fit_parts(table, rows[folds != fold], weights, settings, seed)
        parts[:, folds == fold] = [np.exp(trees.predict(features[outside])) for trees in fitted]
    compute_s, exposed_s = table.jobs.compute_s[rows] * parts[0], table.jobs.exposed_s[rows] * parts[1]
    aggregator = boost(
        _with_parts(features[rows], compute_s, exposed_s),
        np.log(table.measured_s[rows] / (compute_s + exposed_s)),
        weights[rows],
        settings["aggregator"],
        seed,
    )
    fitted = _fit_parts(table, rows, weights, settings, seed)
    return FittedHierarchy(
        names=table.jobs.names, stages=dict(zip(STAGES, (*fitted, aggregator), strict=True))
    )


def _with_parts(features: Floats, compute_s: Floats, exposed_s: Floats) -> Floats:
    total_s = compute_s + exposed_s
    extra = np.stack([np.log(np.maximum(compute_s, _FLOOR_S)), exposed_s / total_s, np.log(total_s)], axis=1)
    return np.concatenate([features, extra], axis=1)


def _fit_parts(
    table: MeasuredTable, rows: Ints, weights: Floats, settings: Mapping[str, BoosterSettings], seed: int
) -> tuple[TreeEnsemble, TreeEnsemble]:
    """Stages 1 and 2 on `rows`."""
    measured, sync = table.measured_s[rows], table.sync_s[rows]
    alone = table.jobs.exposed_s[rows] <= 0.0
    known = ~np.isnan(sync)
    compute_target = np.where(
        known & ~alone, np.maximum(measured - np.nan_to_num(sync), _MIN_SHARE * measured), measured
    )
    learns = alone | known
    compute = NO_TREES
    if learns.any():
        compute = boost(
            table.jobs.features[rows[learns]],
            np.log(compute_target[learns] / table.jobs.compute_s[rows[learns]]),
            weights[rows[learns]],
            settings["compute"],
            seed,
        )
    several = rows[~alone]
    if not len(several):
        return compute, NO_TREES
    corrected = table.jobs.compute_s[several] * np.exp(compute.predict(table.jobs.features[several]))
    rest = table.measured_s[several] - corrected
    waited = np.where(np.isnan(table.sync_s[several]), rest, table.sync_s[several])
    waited = np.maximum(waited, _MIN_SHARE * table.measured_s[several])
    communication = boost(
        table.jobs.features[several],
        np.log(waited / np.maximum(table.jobs.exposed_s[several], _FLOOR_S)),
        weights[several],
        settings["communication"],
        seed,
    )
    return compute, communication


def _inner_folds(groups: NDArray[Any], seed: int) -> Ints:
    """Fold of each row; equal groups share a fold."""
    _, inverse = np.unique(groups, return_inverse=True)
    shuffled = np.random.default_rng(seed).permutation(int(inverse.max()) + 1)
    folds: Ints = (shuffled[inverse] % _INNER_FOLDS).astype(np.intp)
    return folds
