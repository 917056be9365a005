"""PredictDDL, Ernest, Optimus and ours on one campaign: networks x clusters, measured by one source.

Every predictor is fitted to the training rows of a fold and predicts its test rows. Ernest and Optimus are
refitted for each job (a network on a dataset and a type of device): to all its training rows, and where a
fold leaves it none, to runs of half of its configurations, of which none is scored for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.splits import Fold, SplitBy, folds_of, group_numbers, grouped_folds
from precision_time.executor import Executor
from precision_time.learn.boosting import DEFAULT_SETTINGS
from precision_time_papers.contract import FeatureTable, Floats, Ints
from precision_time_papers.ernest import Ernest, ErnestPooled
from precision_time_papers.evaluation.measured_jobs import MeasuredJob, measured_jobs, run_limit
from precision_time_papers.evaluation.pricing import full_feature_table, priced_corpus
from precision_time_papers.optimus import Optimus
from precision_time_papers.per_job import MeasurementBudget, SamplingEstimator
from precision_time_papers.precision_aware import PrecisionAware
from precision_time_papers.predictddl.columns import BLIND, EMBEDDING_AND_SUMS, SIZE, SUMS
from precision_time_papers.predictddl.estimator import regression_inputs
from precision_time_papers.predictddl.fitting import QUICK, Examples, FitSettings, choose
from precision_time_papers.predictddl.regressors import KINDS, Regressor
from precision_time_papers.predictddl.trainer import TARGETS, examples_of, settings_of

Numbers = NDArray[np.int64]
CHOSEN, THREE, BOTH, SIZED = "predictddl", "three-sums", "embedding-and-sums", "predictddl-size"
POOLED, PER_JOB, OPTIMUS, OURS, FORMULAS = "ernest-pooled", "ernest", "optimus", "ours", "formulas"
TITLES: Mapping[str, str] = {
    CHOSEN: "PredictDDL, regressor chosen in training",
    **{f"{CHOSEN}:{kind}": f"PredictDDL, {kind}" for kind in KINDS},
    THREE: "three sums in the place of the embedding",
    BOTH: "embedding and three sums",
    SIZED: "embedding as one input and the size of the network",
    POOLED: "Ernest, one fit per dataset type",
    PER_JOB: "Ernest, refitted per job",
    OPTIMUS: "Optimus, refitted per job",
    OURS: "ours, fitted on the same rows",
    FORMULAS: "our cost model, no stage fitted",
}
_VARIANTS = {CHOSEN: BLIND, THREE: SUMS, BOTH: EMBEDDING_AND_SUMS, SIZED: SIZE}
SETTINGS = replace(QUICK, targets=TARGETS[BLIND])
"""Of the regressors: seconds, as the paper is written, and their logarithm; inner folds choose."""
_LEAST_SAMPLES, _LEAST_GROUPS = 2, 2
_FOLDS = 5


@dataclass(frozen=True, kw_only=True, slots=True)
class Campaign:
    """Runs of many networks on few types of machine."""

    key: str
    title: str
    note: str
    """Where the rows are from, and what they vary."""
    table: FeatureTable
    shipped_s: Floats | None = None
    """Step times by the shipped predictor, which has not seen the rows; None where it has."""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The runs."""
        return self.table.measured.measurements


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """Predictions of one question over all its folds and seeds; each test row of each seed is an entry."""

    rows: Ints
    """Places in the campaign."""
    measured_s: Floats
    predicted_s: Mapping[str, Floats]
    """By predictor; NaN where it has no answer."""
    chosen: tuple[str, ...]
    """Regressor that each fit of PredictDDL chose, and its target."""

    def errors_percent(self, name: str) -> Floats:
        """Absolute percentage errors; NaN where there is no answer."""
        errors: Floats = np.abs(self.predicted_s[name] / self.measured_s - 1.0) * 100.0
        return errors


def campaign_of(rows: Sequence[Measurement], *, key: str, title: str, note: str) -> Campaign:
    """A campaign of measured rows, priced; rows that cannot be priced are left out, as in the corpus."""
    table = full_feature_table(priced_corpus(rows))
    return Campaign(key=key, title=title, note=note, table=replace(table, graphs=()))


def by_configuration(rows: Sequence[Measurement]) -> Numbers:
    """Group of each row: its configuration with all repeats."""
    return group_numbers(rows, by=SplitBy.CONFIGURATION)


def by_architecture(rows: Sequence[Measurement]) -> Numbers:
    """Group of each row: its network."""
    return group_numbers(rows, by=SplitBy.MODEL)


def by_count(rows: Sequence[Measurement]) -> Numbers:
    """Group of each row: its number of workers."""
    return np.unique([item.num_devices for item in rows], return_inverse=True)[1].reshape(-1)


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What is held out; regressors are chosen on inner folds of the same groups."""

    title: str
    groups: Callable[[Sequence[Measurement]], Numbers]
    folds: Callable[[Numbers, int], tuple[Fold, ...]]
    """Of the groups and a seed."""


def _in_folds(groups: Numbers, seed: int) -> tuple[Fold, ...]:
    """Five folds of whole groups."""
    return folds_of(grouped_folds(groups, num_folds=_FOLDS, seed=seed), _FOLDS)


def _in_turn(groups: Numbers, seed: int) -> tuple[Fold, ...]:
    """Every group in turn; needs no seed."""
    del seed
    return folds_of(groups, int(groups.max()) + 1)


QUESTIONS: Mapping[str, Question] = {
    "configuration": Question(
        title="80/20 by configuration",
        groups=by_configuration,
        folds=lambda groups, seed: _in_folds(groups, seed)[:1],
    ),
    "architecture": Question(title="unseen architectures", groups=by_architecture, folds=_in_folds),
    "count": Question(title="unseen numbers of workers", groups=by_count, folds=_in_turn),
}


def answers_of(campaign: Campaign, questions: Mapping[str, int], *, executor: Executor) -> dict[str, Answers]:
    """What every predictor says to each question.

    Args:
        campaign: Measured runs.
        questions: Name of QUESTIONS to how many seeds of folds are asked, from 0 on.
        executor: What runs the folds.
    """
    asked = [
        (key, _Task(campaign=campaign, question=key, fold=fold, seed=seed))
        for key, seeds in questions.items()
        for seed in range(seeds)
        for fold in QUESTIONS[key].folds(QUESTIONS[key].groups(campaign.measurements), seed)
    ]
    found = list(executor(_answer_fold, [task for _, task in asked]))
    result = {}
    for key in questions:
        parts = [(task, part) for (name, task), part in zip(asked, found, strict=True) if name == key]
        if not parts:
            continue
        rows = np.concatenate([task.fold.test for task, _ in parts])
        names = parts[0][1][0]
        result[key] = Answers(
            rows=rows,
            measured_s=campaign.table.measured_s[rows],
            predicted_s={name: np.concatenate([part[0][name] for _, part in parts]) for name in names},
            chosen=tuple(words for _, part in parts for words in part[1]),
        )
    return result


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    campaign: Campaign
    question: str
    fold: Fold
    seed: int


def _answer_fold(task: _Task) -> tuple[dict[str, Floats], tuple[str, ...]]:
    """Step times of the test rows by predictor, and what PredictDDL chose."""
    table, fold = task.campaign.table, task.fold
    test = table.jobs.take(fold.test)
    found: dict[str, Floats] = {}
    chosen: tuple[str, ...] = ()
    groups = QUESTIONS[task.question].groups(task.campaign.measurements)
    for name, variant in _VARIANTS.items():
        settings = settings_of(variant, replace(SETTINGS, seed=task.seed), SETTINGS.targets)
        by_kind, best = regressed(table, fold, groups, variant, settings)
        found[name] = by_kind.pop("")
        if name == CHOSEN:
            found |= {f"{CHOSEN}:{kind}": seconds for kind, seconds in by_kind.items()}
            chosen = best
    found[POOLED] = ErnestPooled().fit(table, fold.train).predict(test)
    jobs = measured_jobs(task.campaign.measurements)
    for name, estimator in ((PER_JOB, Ernest()), (OPTIMUS, Optimus())):
        found[name] = refitted(estimator, jobs, table.measured_s, fold)[fold.test]
    ours = PrecisionAware(trees=DEFAULT_SETTINGS, seed=task.seed)
    found[OURS] = ours.fit(table, fold.train).predict(test)
    found[FORMULAS] = test.native.analytical_s
    if task.campaign.shipped_s is not None:
        found["shipped"] = task.campaign.shipped_s[fold.test]
    return found, chosen


def regressed(
    table: FeatureTable, fold: Fold, groups: Numbers, variant: str, settings: FitSettings
) -> tuple[dict[str, Floats], tuple[str, ...]]:
    """Test rows by a regressor per dataset type: by kind, and under "" by the one that inner folds chose.

    Dataset types whose training rows are of one architecture, or of none, get no answer.

    Args:
        table: All runs of the campaign.
        fold: What is fitted and asked.
        groups: Of each run, shape (n,): what inner folds hold out; where the training rows are of one group
            only, they hold out architectures.
        variant: A variant or baseline of `columns.py`.
        settings: What is tried.
    """
    names, values = regression_inputs(table.jobs)
    types = table.jobs.dataset
    seconds = {kind: np.full(len(fold.test), np.nan) for kind in ("", *settings.kinds)}
    best = []
    for number in np.unique(types[fold.test]).tolist():
        places = np.flatnonzero(types[fold.test] == number)
        own = fold.train[types[fold.train] == number]
        examples = examples_of(variant, table.measured, names, values, own)
        if len(np.unique(groups[own])) >= _LEAST_GROUPS:
            examples = replace(examples, groups=groups[own])
        count = len(np.unique(examples.groups))
        if count < _LEAST_GROUPS:
            continue
        trained = choose(examples, replace(settings, folds=min(settings.folds, count)))
        x = inputs_at(examples, names, values, fold.test[places])
        for kind, regressor in trained.regressors.items():
            seconds[kind][places] = regressor.predict(x)
        seconds[""][places] = seconds[trained.best][places]
        best.append(_words(trained.regressors[trained.best]))
    return seconds, tuple(best)


def inputs_at(examples: Examples, names: Sequence[str], values: Floats, rows: Ints) -> Floats:
    """The columns of `examples`, of other rows."""
    places = {name: place for place, name in enumerate(names)}
    return values[rows][:, [places[name] for name in examples.names]]


def _words(regressor: Regressor) -> str:
    return f"{regressor.kind} on {'seconds' if regressor.target == 'raw' else 'their logarithm'}"


def refitted(
    estimator: SamplingEstimator, jobs: Sequence[MeasuredJob], measured_s: Floats, fold: Fold
) -> Floats:
    """Step times of the test rows by a predictor that is refitted per job, shape (n,); NaN for all others.

    What a job offers are its training rows; where it has none, its test rows, of which it runs half.
    """
    count = len(measured_s)
    is_test, is_known = np.zeros((2, count), dtype=bool)
    is_test[fold.test], is_known[fold.train] = True, True
    seconds = np.full(count, np.nan)
    for job in jobs:
        asked = [rows[is_test[rows]] for rows in job.rows]
        if not any(map(len, asked)):
            continue
        offered = np.flatnonzero([is_known[rows].any() for rows in job.rows])
        never_run = not len(offered)
        if never_run:
            offered = np.flatnonzero([len(rows) > 0 for rows in asked])
        if len(offered) < _LEAST_SAMPLES:
            continue
        usable = is_test if never_run else is_known
        first = [job.rows[place][usable[job.rows[place]]][0] for place in offered]
        budget = MeasurementBudget(
            offered=job.configurations.take(offered),
            step_time_s=measured_s[np.array(first, dtype=np.intp)],
            limit=max(len(offered) // 2, _LEAST_SAMPLES) if never_run else run_limit(2 * len(offered)),
        )
        predicted = estimator.fit(budget, seed=0).predict(job.configurations)
        run = {int(offered[place]) for place in budget.chosen} if never_run else set()
        for place, rows in enumerate(asked):
            if place not in run:
                seconds[rows] = predicted[place]
    return seconds
