"""Published predictors: what each must satisfy to be evaluated next to the others.

The comparison is fair only if no predictor sees what it is asked for: the measured times of queried jobs must
not reach the fit, and an answer must not depend on which other jobs are asked at the same time. The runs here
are priced jobs of the catalog with made-up times, so that nothing is learned about accuracy.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from precision_time.cache import data, memo
from precision_time.corpus.measurement import Measurement
from precision_time.cost.job import Job
from precision_time.errors import ConfigError
from precision_time.learn.boosting import DEFAULT_SETTINGS
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.table import job_table
from precision_time.precision.catalog import get_policy
from precision_time.request.request import Request
from precision_time.testing.checks import refusal

from .contract import FeatureTable, Fitted, Floats, Ints, JobViews, NamedColumns, PredictorOptions
from .per_job import Configurations, MeasurementBudget
from .predictddl.columns import ANNOTATED, EMBEDDING, cluster_columns
from .registry import PredictorEntry

OPTIONS = PredictorOptions(
    trees={
        stage: replace(each, num_trees=10, min_data_in_leaf=4, num_leaves=8)
        for stage, each in DEFAULT_SETTINGS.items()
    },
    quick=True,
)
"""Small trees and few epochs: contracts, not accuracy."""
MODELS = ("resnet18", "resnet50", "bert-base-uncased", "gpt2")
_CITATION = re.compile(r"\b(19|20)\d\d\b|arXiv \d{4}\.\d{4,5}|devdoc \d{3}")
_SAMPLE_RUNS = 8
_EMBEDDING_SIZE = 6
_TOLERANCE = 1e-5
"""Between answers that must be the same: networks compute in single precision, batch by batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MadeUpRuns:
    """Priced jobs with made-up times: some to fit, the others to ask."""

    table: FeatureTable
    fitted: Ints
    asked: Ints


@data
def made_up_runs() -> MadeUpRuns:
    """Four models on two devices, alone and in groups, in single and mixed precision: 96 runs."""
    return _made_up()


def _made_up() -> MadeUpRuns:
    draw = np.random.default_rng(0)
    space = tuple(
        product(MODELS, ("V100-SXM2-16GB", "A100-SXM4-80GB"), (1, 4, 16), ("fp32", "fp16-mixed"), (4, 16))
    )
    jobs = [
        Request.of({"model": m, "device": d, "gpus": n, "precision": p, "batch_size": b}).resolve()
        for m, d, n, p, b in space
    ]
    native, fp32 = job_table(jobs), job_table([replace(job, precision=get_policy("fp32")) for job in jobs])
    measured_s = native.analytical_s * np.exp(draw.normal(0.2, 0.2, len(jobs)))
    architecture = np.array([MODELS.index(each[0]) for each in space])
    vectors = draw.normal(size=(len(MODELS), 2 * _EMBEDDING_SIZE))
    embedding = NamedColumns(
        names=tuple(f"{lead}{i}" for lead in (EMBEDDING, ANNOTATED) for i in range(_EMBEDDING_SIZE)),
        values=vectors[architecture],
    )
    names, values = cluster_columns(jobs)
    views = JobViews.of(
        native,
        fp32,
        embedding=embedding,
        cluster=NamedColumns(names=names, values=values),
        ids={"architecture": architecture, "dataset": architecture // 2, "job": architecture},
    )
    measured = MeasuredTable(
        jobs=native,
        measurements=tuple(
            _row(job, seconds) for job, seconds in zip(jobs, measured_s.tolist(), strict=True)
        ),
        measured_s=measured_s,
        sync_s=np.full(len(jobs), np.nan),
        rejected=Counter(),
    )
    graphs = {number: job.workload.graph for number, job in zip(architecture.tolist(), jobs, strict=True)}
    order = draw.permutation(len(jobs))
    return MadeUpRuns(
        table=FeatureTable(
            measured=measured, jobs=views, graphs=tuple(graphs[i] for i in range(len(MODELS)))
        ),
        fitted=np.sort(order[: len(order) * 2 // 3]),
        asked=np.sort(order[len(order) * 2 // 3 :]),
    )


def _row(job: Job, seconds: float) -> Measurement:
    return Measurement(
        source="made up",
        source_ref="precision_time.testing",
        model=job.workload.name,
        device=job.cluster.device.name,
        num_devices=job.cluster.num_devices,
        num_nodes=job.cluster.num_nodes,
        precision=job.precision.name,
        layout=job.layout,
        measured_step_time_s=seconds,
    )


def sample_job() -> tuple[Configurations, Floats]:
    """Configurations of one job and their made-up step times [s], for predictors that run samples."""
    batch, devices = (axis.ravel() for axis in np.meshgrid([16.0, 64.0, 256.0], [1.0, 2.0, 4.0, 8.0, 16.0]))
    offered = Configurations(
        devices=devices, nodes=np.maximum(devices / 8.0, 1.0), global_batch=batch, largest_batch=256.0
    )
    noise = np.exp(np.random.default_rng(0).normal(0.0, 0.05, len(batch)))
    return offered, (0.01 + 1e-3 * batch / devices + 0.002 * devices) * noise


class _EntrySuite:
    """What can be said of a predictor before it is fitted; `entry` is a `PredictorEntry`."""

    def test_names_its_source(self, entry: PredictorEntry) -> None:
        """Tables print the title; a reader finds the paper by authors or title, venue and year, or arXiv."""
        assert entry.title.strip() and entry.knows.strip()
        assert _CITATION.search(entry.citation), f"{entry.citation!r} has no year, arXiv number or devdoc."
        assert bool(entry.package) is bool(entry.extra)


class TablePredictorSuite(_EntrySuite):
    """A predictor that is fitted to a table of measured runs; `entry` is a `PredictorEntry`."""

    def test_answers_with_positive_seconds(self, entry: PredictorEntry) -> None:
        """One finite step time per job, in the order of the jobs."""
        seconds = _base_answer(entry)
        assert seconds.shape == made_up_runs().asked.shape
        assert np.isfinite(seconds).all() and (seconds > 0.0).all()

    def test_an_answer_does_not_depend_on_what_else_is_asked(self, entry: PredictorEntry) -> None:
        """Each job alone, and all in reverse, get what they get together."""
        runs, fitted = made_up_runs(), _base(entry)
        together = _base_answer(entry)
        reverse = fitted.predict(runs.table.jobs.take(runs.asked[::-1]))
        np.testing.assert_allclose(reverse[::-1], together, rtol=_TOLERANCE)
        for place in (0, len(together) // 2):
            alone = fitted.predict(runs.table.jobs.take(runs.asked[place : place + 1]))
            np.testing.assert_allclose(alone, together[place : place + 1], rtol=_TOLERANCE)

    def test_the_fit_sees_its_rows_alone_and_is_repeatable(self, entry: PredictorEntry) -> None:
        """With other times in all rows but those fitted, the same seed gives the same predictor."""
        runs = made_up_runs()
        others = runs.table.measured_s.copy()
        others[runs.asked] = 1e3
        changed = replace(runs.table, measured=replace(runs.table.measured, measured_s=others))
        again = entry.estimator(OPTIONS).fit(changed, runs.fitted)
        seconds = again.predict(runs.table.jobs.take(runs.asked))
        np.testing.assert_allclose(seconds, _base_answer(entry), rtol=_TOLERANCE)

    def test_fit_and_predict_leave_their_input_as_it_was(self, entry: PredictorEntry) -> None:
        """Predictors share one table: a column scaled in place would change all that come after."""
        _base_answer(entry)
        _assert_equal(made_up_runs().table, _made_up().table)

    def test_no_rows_are_refused(self, entry: PredictorEntry) -> None:
        """A fit to nothing is an error with a remedy; a predictor that learns nothing may ignore it."""
        runs, nothing = made_up_runs(), np.zeros(0, dtype=np.intp)
        jobs = runs.table.jobs.take(runs.asked)
        try:
            seconds = entry.estimator(OPTIONS).fit(runs.table, nothing).predict(jobs)
        except ConfigError as error:
            assert "To fix" in str(error)
        else:
            np.testing.assert_array_equal(seconds, _base_answer(entry))

    def test_no_jobs_have_no_times(self, entry: PredictorEntry) -> None:
        """An empty question has an empty answer."""
        runs = made_up_runs()
        assert _base(entry).predict(runs.table.jobs.take(np.zeros(0, dtype=np.intp))).shape == (0,)


class SamplingPredictorSuite(_EntrySuite):
    """A predictor that runs samples of the queried job; `entry` is a `PredictorEntry`."""

    def test_keeps_to_its_budget_and_answers_with_positive_seconds(self, entry: PredictorEntry) -> None:
        """Every sample goes through the budget, each configuration once; all are then answered."""
        budget, seconds = _sampled(entry)
        assert 1 <= len(budget.chosen) <= _SAMPLE_RUNS
        assert len(set(budget.chosen)) == len(budget.chosen)
        assert seconds.shape == budget.step_time_s.shape
        assert np.isfinite(seconds).all() and (seconds > 0.0).all()

    def test_the_fit_sees_its_samples_alone_and_is_repeatable(self, entry: PredictorEntry) -> None:
        """Times of configurations that were not run do not reach the answer; the seed decides the rest."""
        budget, seconds = _sampled(entry)
        others = np.full_like(budget.step_time_s, 1e3)
        others[budget.chosen] = budget.step_time_s[budget.chosen]
        again = MeasurementBudget(offered=budget.offered, step_time_s=others, limit=_SAMPLE_RUNS)
        fitted = entry.sampling_estimator(OPTIONS).fit(again, seed=0)
        assert again.chosen == budget.chosen
        np.testing.assert_allclose(fitted.predict(budget.offered), seconds, rtol=_TOLERANCE)

    def test_an_answer_does_not_depend_on_what_else_is_asked(self, entry: PredictorEntry) -> None:
        """One configuration alone gets what it gets among all."""
        budget, seconds = _sampled(entry)
        fitted = entry.sampling_estimator(OPTIONS).fit(replace(budget, chosen=[]), seed=0)
        alone = fitted.predict(budget.offered.take(np.array([3])))
        np.testing.assert_allclose(alone, seconds[3:4], rtol=_TOLERANCE)

    def test_no_runs_are_refused(self, entry: PredictorEntry) -> None:
        """A budget of nothing is an error with a remedy."""
        offered, step_time_s = sample_job()
        predictor = entry.sampling_estimator(OPTIONS)

        def fit() -> object:
            budget = MeasurementBudget(offered=offered, step_time_s=step_time_s, limit=0)
            return predictor.fit(budget, seed=0)

        refusal(ConfigError, fit, "To fix")


@memo(64)
def _base(entry: PredictorEntry) -> Fitted:
    runs = made_up_runs()
    return entry.estimator(OPTIONS).fit(runs.table, runs.fitted)


def _base_answer(entry: PredictorEntry) -> Floats:
    runs = made_up_runs()
    return _base(entry).predict(runs.table.jobs.take(runs.asked))


def _sampled(entry: PredictorEntry) -> tuple[MeasurementBudget, Floats]:
    offered, step_time_s = sample_job()
    budget = MeasurementBudget(offered=offered, step_time_s=step_time_s, limit=_SAMPLE_RUNS)
    return budget, entry.sampling_estimator(OPTIONS).fit(budget, seed=0).predict(offered)


def _assert_equal(left: Any, right: Any) -> None:
    if is_dataclass(left):
        for item in fields(left):
            _assert_equal(getattr(left, item.name), getattr(right, item.name))
    elif isinstance(left, np.ndarray):
        np.testing.assert_array_equal(left, right)
    elif isinstance(left, Mapping | str | tuple):
        assert left == right
