"""Out-of-fold predictions of every predictor under every protocol: computed once, shared by all tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from precision_time.corpus.families import PrecisionFamily, families_of
from precision_time.corpus.protocols import PROTOCOLS, Folds
from precision_time.corpus.splits import Fold
from precision_time.executor import Executor
from precision_time.forks import cached_property
from precision_time.learn.boosting import DEFAULT_SETTINGS, BoosterSettings, fewer_trees
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.novelty import KINDS
from precision_time.learn.training import OutOfFold

from ..contract import Bools, Estimator, FeatureTable, Fitted, Floats, Ints, JobViews, PredictorOptions
from ..per_job import MeasurementBudget, SamplingEstimator
from ..precision_aware import FittedTimes, PrecisionAware
from ..registry import PREDICTORS, PredictorEntry
from .ablations import ABLATIONS
from .cache import ArrayCache, Arrays, cache_key
from .measured_jobs import MeasuredJob, can_be_sampled, measured_jobs, run_limit
from .pricing import PricedCorpus, Progress, feature_table, silent

BULK = 1000
"""Answers at once that are timed."""
QUICK_SHARE = 0.1
"""Share of the trees of a quick evaluation."""
_SINGLE_CALLS = 15
JOBS, ALL, WITHIN = "jobs", "all", "within"
"""Populations: rows of jobs that predictors that sample can be fitted to, all test rows, and the
data-parallel ones of settings (source, precision, stack, dataset type) that PredictDDL is fitted within."""


def tree_settings(*, quick: bool) -> Mapping[str, BoosterSettings]:
    """The settings that ship, or a tenth of their trees."""
    return fewer_trees(QUICK_SHARE) if quick else DEFAULT_SETTINGS


_Result = TypeVar("_Result")


def _none() -> Any:
    return field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True, kw_only=True, slots=True)
class Predictions(OutOfFold):
    """Out-of-fold predictions, in the order of the table; NaN for rows that are no test rows."""

    sampled: Bools = field(default_factory=lambda: np.zeros(0, dtype=bool))
    """Rows of configurations that were run as samples, shape (n,)."""
    fit_s: Floats = _none()
    """Seconds of each fit: per fold, or per job; NaN where nothing was timed."""
    single_s: Floats = _none()
    """Seconds of one answer, its features given; medians per fold or job."""
    bulk_s: Floats = _none()
    """Seconds of 1,000 answers at once, likewise."""
    runs: Floats = _none()
    """Sample runs of each job sampled, shape (j,)."""
    run_s: Floats = _none()
    """Wall-clock seconds of those runs."""
    run_device_s: Floats = _none()
    """Device-seconds of those runs."""


@dataclass(kw_only=True)
class Runs:
    """Out-of-fold predictions of a priced corpus."""

    priced: PricedCorpus
    features: FeatureTable | None = None
    """The table that predictors read; without embeddings and ids when None."""
    settings: Mapping[str, BoosterSettings] = field(default_factory=lambda: DEFAULT_SETTINGS)
    """Of the trees, per stage."""
    folds: int = 5
    quick: bool = False
    """Few epochs for networks."""
    timed: bool = False
    """Whether fits and answers are timed; then `map_fn` should be `map`."""
    predictors: Sequence[PredictorEntry] = ()
    """Those compared: they decide which rows are scored."""
    progress: Progress = silent
    map_fn: Executor = map
    """What runs the folds: `map`, a pool of processes, a cluster. The predictions are the same."""
    folder: Path | None = None
    """Where predictions are kept between calls; None keeps them for this object only."""

    @property
    def table(self) -> MeasuredTable:
        """The measured runs."""
        return self.priced.table

    @cached_property
    def families(self) -> tuple[PrecisionFamily, ...]:
        """Configurations that ran at two or more precisions."""
        return families_of(self.table.measurements)

    @cached_property
    def jobs(self) -> tuple[MeasuredJob, ...]:
        """The jobs of the table."""
        return measured_jobs(self.table.measurements)

    def split(self, protocol: str, seed: int, folds: int | None = None) -> Folds:
        """Folds of a protocol."""
        return PROTOCOLS[protocol].split(self.table.measurements, seed, folds or self.folds, self._twins)

    def predict(self, name: str, protocol: str, seed: int, *, folds: int | None = None) -> Predictions:
        """Predictions of a predictor (a name of PREDICTORS)."""

        def compute() -> Predictions:
            item, options = (
                PREDICTORS[name],
                PredictorOptions(trees=self.settings, seed=seed, quick=self.quick),
            )
            split, what = self.split(protocol, seed, folds), f"{item.title}, {protocol}"
            if item.samples:
                return self._sample(item.sampling_estimator(options), protocol, split, seed, what)
            return self._fit(item.estimator(options), self._features, split, what)

        return self._kept(f"{name}-{protocol}-{seed}-{folds or self.folds}", compute)

    def ours(self, protocol: str, seed: int, *, folds: int | None = None) -> Predictions:
        """Predictions of our predictor."""
        return self.predict("ours", protocol, seed, folds=folds)

    def ablated(self, name: str, protocol: str, seed: int, *, folds: int | None = None) -> Floats:
        """Step times of our predictor without one of its parts (a name of ABLATIONS)."""

        def compute() -> Predictions:
            ablation = ABLATIONS[name]
            jobs = JobViews.of(ablation.jobs(self.priced), self.priced.fp32)
            ours = PrecisionAware(trees=self.settings, seed=seed, no_shrinkage=ablation.no_shrinkage)
            table = FeatureTable(measured=self.table, jobs=jobs)
            return self._fit(ours, table, self.split(protocol, seed, folds), f"{ablation.title}, {protocol}")

        return self._kept(f"without-{name}-{protocol}-{seed}-{folds or self.folds}", compute).step_time_s

    def trained_at(self, precision: str, seed: int, *, blind: bool) -> Floats:
        """Step times of unseen families that ran at a precision, fitted to runs at that precision only.

        Args:
            precision: The only one in training.
            seed: Of folds and boosters.
            blind: Whether the predictor ignores the precision.
        """

        def compute() -> Predictions:
            at_it = np.array([item.precision == precision for item in self.table.measurements])
            tested = np.zeros(len(self.table), dtype=bool)
            for family in self.families:
                if precision in family.rows:
                    tested[np.concatenate([*family.rows.values()])] = True
            split = (
                Fold(train=fold.train[at_it[fold.train]], test=fold.test[tested[fold.test]])
                for fold in self.split("family", seed)
            )
            usable = tuple(fold for fold in split if len(fold.train) and len(fold.test))
            estimator = PrecisionAware(trees=self.settings, seed=seed, blind=blind)
            return self._fit(estimator, self._features, usable, f"{estimator.title}, fitted on {precision}")

        return self._kept(f"at-{precision}-{blind}-{seed}-{self.folds}", compute).step_time_s

    def fitted(self, protocol: str, seed: int) -> tuple[FittedTimes, Ints]:
        """Our predictor fitted for the first fold of a protocol, and its test rows."""
        fold = self.split(protocol, seed)[0]
        self.progress(f"ours, {protocol}, first fold")
        return PrecisionAware(trees=self.settings, seed=seed).fit(self._features, fold.train), fold.test

    def names(self, population: str) -> tuple[str, ...]:
        """Predictors compared that answer for a population, in the order of tables."""
        return tuple(
            item.name
            for item in self.predictors
            if not (item.within and population != WITHIN) and not (item.samples and population != JOBS)
        )

    def scored(self, protocol: str, seed: int, population: str) -> Bools:
        """Rows that a population is scored on, shape (n,): the same for every predictor compared.

        Of the jobs, rows that every predictor that samples has predicted and none of them has run.
        """
        mask = np.zeros(len(self.table), dtype=bool)
        for fold in self.split(protocol, seed):
            mask[fold.test] = True
        if population == ALL:
            return mask
        if population == WITHIN:
            within = [item.name for item in self.predictors if item.within]
            for name in within:
                mask &= ~np.isnan(self.predict(name, protocol, seed).step_time_s)
            return mask & bool(within)
        samplers = [item.name for item in self.predictors if item.samples]
        for name in samplers:
            found = self.predict(name, protocol, seed)
            mask &= ~np.isnan(found.step_time_s) & ~found.sampled
        return mask & bool(samplers)

    @cached_property
    def _twins(self) -> Ints:
        return self.table.jobs.twins()

    @cached_property
    def _features(self) -> FeatureTable:
        return feature_table(self.priced) if self.features is None else self.features

    def _fit(self, estimator: Estimator, table: FeatureTable, folds: Folds, what: str) -> Predictions:
        count = len(table)
        rows = {name: np.full(count, np.nan) for name in _BY_ROW}
        rows["novelty"] = np.full((count, len(KINDS)), np.nan)
        fold_of, seconds = np.full(count, -1, dtype=np.intp), []
        self.progress(what)
        answers = self.map_fn(fit_fold, ((estimator, table, fold, self.timed) for fold in folds))
        for index, (fold, (found, timing)) in enumerate(zip(folds, answers, strict=True)):
            self.progress(f"{what}, fold {index + 1} of {len(folds)}")
            for name, values in found.items():
                rows[name][fold.test] = values
            fold_of[fold.test] = index
            seconds.append(timing)
        fit_s, single_s, bulk_s = np.array(seconds).reshape(-1, 3).T
        return Predictions(
            **rows, folds=fold_of, sampled=np.zeros(count, dtype=bool), fit_s=fit_s, single_s=single_s,
            bulk_s=bulk_s,
        )  # fmt: skip

    def _sample(
        self, estimator: SamplingEstimator, protocol: str, folds: Folds, seed: int, what: str
    ) -> Predictions:
        """Some configurations of every job that offers enough are run, and the others predicted."""
        count, from_test = len(self.table), PROTOCOLS[protocol].samples_from_test
        predicted_s, sampled = np.full(count, np.nan), np.zeros(count, dtype=bool)
        account: list[tuple[float, ...]] = []
        for fold in folds:
            test, offering = np.zeros((2, count), dtype=bool)
            test[fold.test] = True
            offering[fold.test if from_test else fold.train] = True
            for job in self.jobs:
                if not test[np.concatenate(job.rows)].any():
                    continue
                offered = np.flatnonzero([offering[rows].any() for rows in job.rows])
                if not can_be_sampled(job, offered):
                    continue
                self.progress(f"{what}: {job.key}")
                # The first repeat, as one run is what a sample run gives.
                first = [job.rows[place][offering[job.rows[place]]][0] for place in offered]
                budget = MeasurementBudget(
                    offered=job.configurations.take(offered),
                    step_time_s=self.table.measured_s[np.array(first, dtype=np.intp)],
                    limit=run_limit(len(offered)),
                )
                fitted, fit_s = timed(estimator.fit, budget, seed=seed)
                answers, answered_s = timed(fitted.predict, job.configurations)
                one = job.configurations.take(np.zeros(1, dtype=np.intp))
                single_s = np.median([timed(fitted.predict, one)[1] for _ in range(3)])
                for place in budget.chosen:
                    sampled[job.rows[offered[place]]] = True
                for rows, answer in zip(job.rows, answers, strict=True):
                    predicted_s[rows[test[rows] & ~sampled[rows]]] = answer
                bulk_s = answered_s * BULK / len(job.rows)
                spent = (len(budget.chosen), budget.wall_s, budget.device_s)
                account.append((*spent, fit_s, float(single_s), bulk_s))
        names = ("runs", "run_s", "run_device_s", "fit_s", "single_s", "bulk_s")
        columns = dict(zip(names, np.array(account, dtype=np.float64).reshape(-1, len(names)).T, strict=True))
        unknown = {"novelty": np.full((count, len(KINDS)), np.nan), "exposed_share": np.full(count, np.nan)}
        return Predictions(
            step_time_s=predicted_s, folds=np.full(count, -1), sampled=sampled, **unknown, **columns
        )

    def _kept(self, name: str, compute: Callable[[], Predictions]) -> Predictions:
        def arrays() -> Arrays:
            found = compute()
            return {item.name: getattr(found, item.name) for item in fields(Predictions)}

        return Predictions(**self._cache.get(name, arrays))

    @cached_property
    def _cache(self) -> ArrayCache:
        trees = {stage: asdict(item) for stage, item in sorted(self.settings.items())}
        key = cache_key(self.table.measurements, self.quick, self.timed, trees)
        return ArrayCache(folder=self.folder, kind="out-of-fold", key=key)


_BY_ROW = ("step_time_s", "novelty", "exposed_share")


def fit_fold(
    task: tuple[Estimator, FeatureTable, Fold, bool],
) -> tuple[dict[str, Floats], tuple[float, float, float]]:
    """Step times of the test rows, and seconds: of the fit, of one answer, of 1,000."""
    estimator, table, fold, is_timed = task
    fitted, fit_s = timed(estimator.fit, table, fold.train)
    jobs = table.jobs.take(fold.test)
    if isinstance(fitted, FittedTimes):
        found = fitted.times(jobs)
        rows = {
            "step_time_s": found.step_time_s,
            "novelty": found.distance,
            "exposed_share": found.exposed_s / found.step_time_s,
        }
    else:
        rows = {"step_time_s": fitted.predict(jobs)}
    return rows, (fit_s, *(answer_seconds(fitted, jobs) if is_timed else (np.nan, np.nan)))


def answer_seconds(fitted: Fitted, jobs: JobViews) -> tuple[float, float]:
    """Seconds of one answer and of 1,000 at once, the features of the jobs given."""
    places = np.linspace(0, len(jobs) - 1, _SINGLE_CALLS).astype(np.intp)
    singles = [jobs.take(places[[index]]) for index in range(len(places))]
    thousand = jobs.take(np.resize(np.arange(len(jobs)), BULK))
    fitted.predict(singles[0])
    single = np.median([timed(fitted.predict, one)[1] for one in singles])
    return float(single), min(timed(fitted.predict, thousand)[1] for _ in range(3))


def timed(call: Callable[..., _Result], *arguments: Any, **options: Any) -> tuple[_Result, float]:
    """What a call returns, and the seconds that it took."""
    started = time.perf_counter()
    found = call(*arguments, **options)
    return found, time.perf_counter() - started
