"""A quick comparison, recomputed: the same rows for all, no leak, and ours ahead of those told less."""

import json

import numpy as np
import pytest

from precision_time.corpus.store import load_corpus
from precision_time_papers.evaluation.comparison import (
    QUESTIONS,
    compare,
    compared,
    comparison_page,
    comparison_runs,
)
from precision_time_papers.evaluation.cross_validation import ALL, JOBS, WITHIN, Predictions
from precision_time_papers.evaluation.measured_jobs import sampled_jobs
from precision_time_papers.evaluation.metrics import scored_errors_percent
from precision_time_papers.evaluation.pricing import priced_corpus
from precision_time_papers.registry import chosen_predictors

PREDICTORS = tuple(
    item
    for item in chosen_predictors(["ours", "flops", "ernest-pooled"])
    if item.name != "cherrypick-gp"  # its searches take most of the time; the nightly test has them
)
ROWS = 300
SAMPLERS = ("ernest", "ernest-free", "optimus")


@pytest.fixture(scope="module")
def priced():
    return priced_corpus(sampled_jobs([item for item in load_corpus() if item.usable], ROWS))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def comparison(priced, kept):
    return compared(priced, PREDICTORS, seeds=1, quick=True, folder=kept)


@pytest.fixture(scope="module")
def runs(priced, kept, comparison):
    """The same predictions, from the folder that the comparison kept them in."""
    return comparison_runs(priced, PREDICTORS, quick=True, folder=kept)


@pytest.mark.parametrize("question", QUESTIONS)
def test_all_are_scored_on_the_same_rows(runs, comparison, question) -> None:
    protocol = QUESTIONS[question].protocol
    for population in (JOBS, ALL):
        asked = runs.scored(protocol, 0, population)
        for name in runs.names(population):
            scored = ~np.isnan(scored_errors_percent(runs, name, protocol, population, 0))
            assert np.array_equal(scored, asked)
        sizes = {
            item.rows
            for item in comparison.scores
            if (item.question, item.population) == (question, population)
        }
        assert sizes in ({int(asked.sum())}, set())


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_configuration_that_was_sampled_is_scored(runs, question) -> None:
    protocol = QUESTIONS[question].protocol
    scored = runs.scored(protocol, 0, JOBS)
    for name in SAMPLERS:
        held = runs.predict(name, protocol, 0)
        assert held.runs.max() <= 7
        assert not (held.sampled & scored).any()


def test_small_clusters_are_sampled_where_larger_ones_are_predicted(runs) -> None:
    (fold,) = runs.split("cluster", 0)
    for name in SAMPLERS:
        sampled = runs.predict(name, "cluster", 0).sampled
        assert not sampled[fold.test].any()
        assert sampled[fold.train].any()


def test_views_and_ids_are_fields_of_the_table(runs) -> None:
    jobs = runs.features.jobs
    assert jobs.native.names == jobs.fp32.names
    for part in (jobs.native.features, jobs.fp32.features, jobs.embedding.values, jobs.cluster.values):
        assert len(part) == len(jobs) == len(runs.features)
        assert np.isfinite(part).all()
    for name in ("job", "dataset", "architecture"):
        assert getattr(jobs, name).shape == (len(jobs),)
    assert jobs.architecture.max() == len(runs.features.graphs) - 1
    taken = jobs.take(np.array([3, 1]))
    assert taken.job.tolist() == jobs.job[[3, 1]].tolist()
    assert np.array_equal(taken.embedding.values, jobs.embedding.values[[3, 1]])


def mape(comparison, name: str, question: str, population: str) -> float:
    return next(
        item.mape_percent
        for item in comparison.scores
        if (item.name, item.question, item.population) == (name, question, population)
    )


@pytest.mark.parametrize("question", QUESTIONS)
def test_ours_is_ahead_of_those_told_less(comparison, question) -> None:
    ours = mape(comparison, "ours", question, ALL)
    for other in ("flops", "ernest-pooled"):
        assert ours < mape(comparison, other, question, ALL)


def test_sample_runs_are_what_makes_ernest_slow(comparison) -> None:
    ernest, ours = comparison.costs["ernest"], comparison.costs["ours"]
    assert ernest.runs >= 4
    assert ernest.requests_s(1) > 100.0 * ours.requests_s(1)
    assert ernest.requests_s(1, runs=False) < ernest.requests_s(1)
    assert ernest.requests_s(16) == pytest.approx(16 * ernest.requests_s(1))
    assert ours.runs == 0


def test_the_page_and_the_json_say_the_same(comparison) -> None:
    text = comparison_page(comparison)
    said = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert {section for section in said["sections"]} >= {"verdict", *QUESTIONS, "cost"}
    for item in comparison.scores:
        assert f"| {item.title} |" in text
    assert "9.8" in text
    assert "10.3" in text
    assert said["card"]["rows"] >= ROWS * 0.95


def test_predictions_are_kept_and_read_back(runs, kept) -> None:
    files = list(kept.glob("out-of-fold-*/ours-model-0-2.npz"))
    assert len(files) == 1
    held = runs.ours("model", 0)
    with np.load(files[0]) as arrays:
        again = Predictions(**arrays)
    assert np.array_equal(held.step_time_s, again.step_time_s, equal_nan=True)


@pytest.mark.nightly(
    covered_by="packages/papers/tests/evaluation/test_comparison.py::test_all_are_scored_on_the_same_rows"
)
def test_everything_at_once(tmp_path) -> None:
    result = compare(quick=True, folder=tmp_path)
    names = {item.name for item in result.scores}
    assert {"ours", "predictddl", "predictddl-precision", "ernest", "ernest-free", "optimus"} <= names
    ours = mape(result, "ours", "architecture", ALL)
    assert ours < mape(result, "ernest-pooled", "architecture", ALL)
    assert ours < mape(result, "predictddl", "architecture", ALL)
    assert mape(result, "predictddl-precision", "architecture", JOBS) < mape(
        result, "ernest-pooled", "architecture", JOBS
    )
    assert len(result.replayed) > 0
    # Within a setting, where the inputs tell jobs apart, nobody answers for other rows.
    within = [item for item in result.scores if item.population == WITHIN]
    assert {"predictddl-within", "three-sums-within"} <= {item.name for item in within}
    assert {item.population for item in result.scores if item.name == "predictddl-within"} == {WITHIN}
    for question in QUESTIONS:
        assert len({item.rows for item in within if item.question == question}) <= 1
