"""The learned correction in three stages, as in the precision-aware paper, and a local fourth one.

1. compute: log(measured / analytical) of the compute part, from runs on one device and runs whose
   wait for communication was measured;
2. communication: the same of the communication that compute does not hide, from runs on several;
3. overlap: log(measured / sum of the corrected parts), from all runs. It sees the first two stages
   out of fold, so that it learns from the errors they make on jobs they have not seen;
4. local: log(measured / analytical) once more, by deep trees with random thresholds. Near measured runs
   they know more than the three smooth stages, elsewhere less: their weight falls with what is new.

The more of a job is new, the more the correction as a whole shrinks toward none (`novelty.py`).

References: arXiv 2604.16145 (hierarchical predictor with a precision-dependent aggregator);
papers.md 1.5. Trees are LightGBM's (Ke et al., NeurIPS 2017); random thresholds are those of Geurts et al.,
Extremely randomized trees, Machine Learning 63 (2006).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import required_module
from .novelty import TrainingSet, local_weight, shrinkage, training_set
from .table import JobTable, MeasuredTable
from .trees import NO_TREES, Forest, TreeEnsemble, forest_of, trees_of

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

STAGES = ("compute", "communication", "overlap", "local")
_FLOOR_S = 1e-6
_MIN_SHARE = 0.02
"""Least share of a step that a part is taken to have, so that logarithms stay finite."""
_INNER_FOLDS = 2
_NOT_LEARNED = ("loss_scaling", "share.unscale_s", "share.host_sync_s")
"""Loss scaling is priced, not learned: to trees it would be the name of fp16. Five jobs of the corpus ran in
fp16 and in bf16 mixed on Ampere: they differ by 1 % in the median, by 12 % at most."""
_LEAST_ERROR = 0.01
"""Added to errors before their logarithm: below repeat noise there is nothing to learn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BoosterSettings:
    """LightGBM settings of one stage."""

    num_trees: int
    learning_rate: float = 0.08
    num_leaves: int = 48
    max_depth: int = 9
    min_data_in_leaf: int = 10
    feature_fraction: float = 0.5
    """Share of the features that a tree may use."""
    split_feature_fraction: float = 1.0
    """Share of those that a split may use."""
    bagging_fraction: float = 0.8
    lambda_l2: float = 2.0
    extra_trees: bool = False
    """One random threshold per feature instead of the best."""
    objective: str = "regression_l1"
    huber_width: float = 0.1
    """Residual up to which the `huber` objective is quadratic."""


DEFAULT_SETTINGS: Mapping[str, BoosterSettings] = {
    "compute": BoosterSettings(num_trees=200),
    "communication": BoosterSettings(num_trees=120, num_leaves=31),
    "overlap": BoosterSettings(num_trees=300, learning_rate=0.1, num_leaves=63, feature_fraction=0.4),
    "local": BoosterSettings(
        num_trees=250,
        learning_rate=0.15,
        num_leaves=255,
        max_depth=14,
        min_data_in_leaf=3,
        feature_fraction=1.0,
        split_feature_fraction=0.8,
        bagging_fraction=1.0,
        lambda_l2=0.5,
        extra_trees=True,
        objective="huber",
    ),
    "scale": BoosterSettings(num_trees=80, num_leaves=24, min_data_in_leaf=40, objective="regression"),
}


def fewer_trees(share: float) -> Mapping[str, BoosterSettings]:
    """DEFAULT_SETTINGS with a share of the trees, at least 10 per stage: to check that everything works."""
    return {
        stage: replace(item, num_trees=max(int(item.num_trees * share), 10))
        for stage, item in DEFAULT_SETTINGS.items()
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class Corrected:
    """What the stages make of the analytical seconds, shape (n,) each."""

    compute_s: Floats
    exposed_s: Floats
    step_time_s: Floats
    novelty: Floats
    """Distance of each job to its nearest measured run, by kind, shape (n, len(KINDS))."""

    def take(self, rows: Ints | slice) -> Corrected:
        """Those of some of the jobs."""
        return Corrected(
            compute_s=self.compute_s[rows],
            exposed_s=self.exposed_s[rows],
            step_time_s=self.step_time_s[rows],
            novelty=self.novelty[rows],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ByStage:
    """What comes out of all stages, and of fewer of them, shape (n,)."""

    corrected: Corrected
    smooth_s: Floats
    """Step time without the stage `local`."""
    parts_s: Floats
    """Step time of the first two stages alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StagedCorrection:
    """The fitted stages, and the runs they were fitted on."""

    names: tuple[str, ...]
    """Feature columns, in order."""
    stages: Mapping[str, TreeEnsemble]
    """The trees of STAGES; `local` may be missing."""
    training_set: TrainingSet
    _parts: Forest = field(init=False, repr=False, compare=False)
    """Stages 1 and 2."""
    _whole: Forest = field(init=False, repr=False, compare=False)
    """Stages 3 and 4, which see what the first two say."""

    def __post_init__(self) -> None:
        joined = {"_parts": STAGES[:2], "_whole": [name for name in STAGES[2:] if name in self.stages]}
        for name, stages in joined.items():
            object.__setattr__(self, name, forest_of([self.stages[stage] for stage in stages]))

    def correct(self, jobs: JobTable, novelty: Floats | None = None) -> Corrected:
        """Corrected seconds; compute_s + exposed_s = step_time_s.

        Args:
            jobs: n jobs.
            novelty: Their `training_set.novelty`, where it is known.
        """
        return self.by_stage(jobs, novelty).corrected

    def by_stage(self, jobs: JobTable, novelty: Floats | None = None) -> ByStage:
        """Corrected seconds, and those of fewer stages; arguments as of `correct`.

        Raises:
            NotFittedError: If the jobs have other feature columns (`JobTable.select`).
        """
        jobs = _readable(jobs.select(self.names))
        factors = np.exp(self._parts.predict(jobs.features))
        compute_s, exposed_s = jobs.compute_s * factors[:, 0], jobs.exposed_s * factors[:, 1]
        total_s = compute_s + exposed_s
        found = self._whole.predict(_overlap_features(jobs.features, compute_s, exposed_s))
        parts = np.log(total_s / jobs.analytical_s)
        full = smooth = parts + found[:, 0]
        if novelty is None:
            novelty = self.training_set.novelty(jobs)
        if "local" in self.stages:
            full = smooth + local_weight(novelty) * (found[:, 1] - smooth)
        shrunk = shrinkage(novelty)
        step_time_s = jobs.analytical_s * np.exp(shrunk * full)
        corrected = Corrected(
            compute_s=step_time_s * compute_s / total_s,
            exposed_s=step_time_s * exposed_s / total_s,
            step_time_s=step_time_s,
            novelty=novelty,
        )
        return ByStage(
            corrected=corrected,
            smooth_s=jobs.analytical_s * np.exp(shrunk * smooth),
            parts_s=jobs.analytical_s * np.exp(shrunk * parts),
        )

    def has_seen(self, indicator: str) -> bool:
        """Whether a measured run has an indicator column that novelty knows, as `stack.megatron`."""
        return self.training_set.has(indicator, self.names)

    def without_shrinkage(self, jobs: JobTable) -> StagedCorrection:
        """The correction in full for these jobs, however much of them is new.

        For predictors without the precision: their formulas take every job for fp32, so that shrinking toward
        them would make such a predictor worse than it has to be.
        """
        return replace(
            self, training_set=training_set(jobs.select(self.names), np.arange(len(jobs.analytical_s)))
        )


def _readable(jobs: JobTable) -> JobTable:
    """The table as trees read it: without what is priced and not learned."""
    columns = [jobs.names.index(name) for name in _NOT_LEARNED if name in jobs.names]
    if not jobs.features[:, columns].any():
        return jobs
    features = jobs.features.copy()
    features[:, columns] = 0.0
    return replace(jobs, features=features)


def _overlap_features(features: Floats, compute_s: Floats, exposed_s: Floats) -> Floats:
    total_s = compute_s + exposed_s
    extra = np.stack([np.log(np.maximum(compute_s, _FLOOR_S)), exposed_s / total_s, np.log(total_s)], axis=1)
    return np.concatenate([features, extra], axis=1)


def fit_stages(
    table: MeasuredTable,
    rows: Ints,
    weights: Floats,
    groups: NDArray[Any],
    *,
    settings: Mapping[str, BoosterSettings] = DEFAULT_SETTINGS,
    seed: int = 0,
) -> StagedCorrection:
    """Fit the stages on the given rows.

    Args:
        table: Measured jobs.
        rows: Indices of the rows to learn from.
        weights: Evidence of each row of the table, shape (n,).
        groups: Group of each row of the table: rows of one group stay together in the inner folds.
        settings: LightGBM settings per stage.
        seed: Of the boosters and the inner folds; the same seed gives the same trees.
    """
    table = replace(table, jobs=_readable(table.jobs))
    folds = _inner_folds(groups[rows], seed)
    compute_factor = np.empty(len(rows))
    communication_factor = np.empty(len(rows))
    for fold in range(_INNER_FOLDS):
        inside, outside = rows[folds != fold], rows[folds == fold]
        compute, communication = _fit_parts(table, inside, weights, settings, seed)
        compute_factor[folds == fold] = np.exp(compute.predict(table.jobs.features[outside]))
        communication_factor[folds == fold] = np.exp(communication.predict(table.jobs.features[outside]))
    compute_s = table.jobs.compute_s[rows] * compute_factor
    exposed_s = table.jobs.exposed_s[rows] * communication_factor
    seen = _overlap_features(table.jobs.features[rows], compute_s, exposed_s)
    measured_s = table.measured_s[rows]
    targets = {
        "overlap": np.log(measured_s / (compute_s + exposed_s)),
        "local": np.log(measured_s / table.jobs.analytical_s[rows]),
    }
    upper = {
        stage: boost(seen, target, weights[rows], settings[stage], seed) for stage, target in targets.items()
    }
    compute, communication = _fit_parts(table, rows, weights, settings, seed)
    return StagedCorrection(
        names=table.jobs.names,
        stages={"compute": compute, "communication": communication, **upper},
        training_set=training_set(table.jobs, rows),
    )


def fit_scale(
    x: Floats, errors: Floats, weights: Floats, settings: BoosterSettings, seed: int
) -> TreeEnsemble:
    """Trees for the logarithm of the expected error.

    Args:
        x: Features, shape (n, n_features).
        errors: Out-of-fold |log(measured / predicted)|, shape (n,).
        weights: Evidence per row.
        settings: LightGBM settings.
        seed: Of the booster.
    """
    return boost(x, np.log(errors + _LEAST_ERROR), weights, settings, seed)


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


def boost(x: Floats, y: Floats, weights: Floats, settings: BoosterSettings, seed: int) -> TreeEnsemble:
    """Fit one ensemble.

    Args:
        x: Features, shape (n, n_features).
        y: Targets, shape (n,).
        weights: Evidence per row, shape (n,).
        settings: LightGBM settings.
        seed: Of the booster.
    """
    lightgbm = required_module("lightgbm", package="LightGBM", extra="train", purpose="fit a predictor")
    stated = asdict(settings)
    num_trees = stated.pop("num_trees")
    parameters = {
        "feature_fraction_bynode": stated.pop("split_feature_fraction"),
        "alpha": stated.pop("huber_width"),
        **stated,
        "bagging_freq": 1,
        "seed": seed,
        "deterministic": True,
        "force_row_wise": True,
        # Folds are fitted at the same time in processes; threads that wait for each other inside a fit
        # make it many times slower on a busy machine. The trees do not depend on it.
        "num_threads": 1,
        "verbosity": -1,
    }
    data = lightgbm.Dataset(x, y, weight=weights, free_raw_data=True)
    booster = lightgbm.train(parameters, data, num_boost_round=num_trees)
    return trees_of(booster.model_to_string())
