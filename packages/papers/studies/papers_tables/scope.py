"""The precision-aware paper's scope (arXiv 2604.16145), and errors of predictors fitted on its chips."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.protocols import PROTOCOLS, chip, source_name
from precision_time.corpus.splits import Fold, model_group
from precision_time.executor import Executor
from precision_time.forks import cached_property
from precision_time.io import packaged_toml
from precision_time.learn.boosting import fewer_trees
from precision_time.learn.metrics import errors_percent
from precision_time_papers.contract import Bools, Estimator, FeatureTable, Floats
from precision_time_papers.evaluation.cross_validation import fit_fold
from precision_time_papers.hierarchical import Hierarchical
from precision_time_papers.precision_aware import PrecisionAware

SCOPE: Mapping[str, Any] = packaged_toml(__package__, "data/precision_scope.toml")
FOLDS = 5
TREES_BY_MODEL = 0.5
"""Share of the trees of the hold-out by model."""
OURS, STAGES, BLIND, BLIND_FP32 = "ours", "hierarchical", "blind", "blind, fitted on fp32"
UNSEEN_SOURCE = "ours, its source held out"


@dataclass(frozen=True, kw_only=True)
class Study:
    """The corpus priced at its precisions, on the paper's chips as fp32 as well, and out-of-fold errors."""

    table: FeatureTable
    executor: Executor
    seeds: int

    @cached_property
    def runs(self) -> tuple[Measurement, ...]:
        """Of all rows."""
        return self.table.measured.measurements

    @cached_property
    def sources(self) -> tuple[str, ...]:
        """Of all rows."""
        return tuple(source_name(item) for item in self.runs)

    @cached_property
    def on_chips(self) -> Bools:
        """Rows on the paper's chips, on any number of devices: training rows of the tables by precision."""
        return np.array([chip(item.device) in SCOPE["chips"] for item in self.runs])

    @cached_property
    def in_scope(self) -> Bools:
        """Rows on the paper's chips and numbers of devices."""
        least, most = SCOPE["devices"]
        sized = np.array([least <= item.num_devices <= most for item in self.runs])
        both: Bools = self.on_chips & sized
        return both

    def matching(self, what: Mapping[str, Any]) -> Bools:
        """Rows whose architecture matches `model` and whose workload is of a `family`, if these are given."""
        found = np.ones(len(self.runs), dtype=bool)
        if "model" in what:
            pattern = re.compile(what["model"])
            found &= np.array([bool(pattern.match(model_group(item.model))) for item in self.runs])
        if "family" in what:
            jobs = self.table.measured.jobs
            columns = [jobs.names.index(f"family.{name}") for name in what["family"]]
            found &= jobs.features[:, columns].any(axis=1)
        return found

    @cached_property
    def folds(self) -> tuple[tuple[Fold, ...], ...]:
        """By configuration among the rows on the paper's chips; of each seed."""
        return self._folds("configuration")

    def _folds(self, protocol: str) -> tuple[tuple[Fold, ...], ...]:
        rows = np.flatnonzero(self.on_chips)
        part = self.table.measured.take(rows)
        split = PROTOCOLS[protocol].split
        found = (split(part.measurements, seed, FOLDS, part.jobs.twins()) for seed in range(self.seeds))
        return tuple(
            tuple(Fold(train=rows[fold.train], test=rows[fold.test]) for fold in folds) for folds in found
        )

    @cached_property
    def errors(self) -> dict[str, Floats]:
        """Absolute errors [%] by predictor, mean over the seeds; NaN outside of the paper's scope."""
        kinds: dict[str, PrecisionAware | Hierarchical] = {
            OURS: PrecisionAware(),
            STAGES: Hierarchical(),
            BLIND: PrecisionAware(blind=True),
            BLIND_FP32: PrecisionAware(blind=True, fp32_only=True),
        }
        tasks = [
            (name, replace(estimator, seed=seed), fold)
            for name, estimator in kinds.items()
            for seed, folds in enumerate(self.folds)
            for fold in folds
        ] + [
            (UNSEEN_SOURCE, PrecisionAware(seed=seed), fold)
            for seed, folds in enumerate(self._folds("source"))
            for fold in folds
        ]
        sums = {name: np.zeros(len(self.runs)) for name in (*kinds, UNSEEN_SOURCE)}
        measured_s = self.table.measured_s
        small = (self._task(estimator, fold) for _, estimator, fold in tasks)
        for (name, _, fold), (found, _) in zip(tasks, self.executor(fit_fold, small), strict=True):
            sums[name][fold.test] += errors_percent(measured_s[fold.test], found["step_time_s"])
        return {name: np.where(self.in_scope, total / self.seeds, np.nan) for name, total in sums.items()}

    def _task(self, estimator: Estimator, fold: Fold) -> tuple[Estimator, FeatureTable, Fold, bool]:
        """The task of a worker, with the rows that it needs and no others."""
        rows = np.concatenate([fold.train, fold.test])
        table = replace(self.table, measured=self.table.measured.take(rows), jobs=self.table.jobs.take(rows))
        places = np.arange(len(rows))
        return estimator, table, Fold(train=places[: len(fold.train)], test=places[len(fold.train) :]), False

    @cached_property
    def held_out(self) -> dict[str, tuple[Bools, Floats, Floats]]:
        """Groups held out as a whole: their rows, and errors [%] of ours and of the hierarchy."""
        twins = self.table.measured.jobs.twins()
        groups = {name: self.matching(what) for name, what in SCOPE["held_out"].items()}
        few = fewer_trees(TREES_BY_MODEL)
        estimators: tuple[Estimator, ...] = (PrecisionAware(trees=few), Hierarchical(trees=few))
        folds = [
            Fold(train=np.flatnonzero(~np.isin(twins, twins[mask])), test=np.flatnonzero(mask))
            for mask in groups.values()
        ]
        tasks = (self._task(estimator, fold) for fold in folds for estimator in estimators)
        answers = iter(self.executor(fit_fold, tasks))
        found = {}
        for (name, mask), fold in zip(groups.items(), folds, strict=True):
            both = np.full((2, len(self.runs)), np.nan)
            for errors, (rows, _) in zip(both, (next(answers), next(answers)), strict=True):
                errors[fold.test] = errors_percent(self.table.measured_s[fold.test], rows["step_time_s"])
            found[name] = (mask, both[0], both[1])
        return found
