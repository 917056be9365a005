"""A quick comparison, recomputed: the same rows for all, no leak, and ours ahead of those told less."""

import json

import numpy as np
import pytest

from precision_time.corpus.store import load_corpus
from precision_time.evaluation.comparison.build import compare, compared
from precision_time.evaluation.comparison.held_out import HeldOut
from precision_time.evaluation.comparison.page import page
from precision_time.evaluation.comparison.protocols import QUESTIONS
from precision_time.evaluation.comparison.registry import chosen_entries
from precision_time.evaluation.comparison.runs import ALL, JOBS, ComparedRuns
from precision_time.evaluation.comparison.sample import sampled_jobs
from precision_time.evaluation.comparison.scores import errors_percent
from precision_time.evaluation.comparison.wide import wide_table
from precision_time.evaluation.report.priced import priced_corpus
from precision_time.papers.contract import BESIDE, own_part

ENTRIES = tuple(
    entry
    for entry in chosen_entries(["ours", "flops", "ernest-pooled"])
    if entry.name != "cherrypick-gp"  # its searches take most of the time; the slow test has them
)
ROWS = 300


@pytest.fixture(scope="module")
def priced():
    return priced_corpus(sampled_jobs([item for item in load_corpus() if item.usable], ROWS))


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept")


@pytest.fixture(scope="module")
def comparison(priced, kept):
    return compared(priced, ENTRIES, seeds=1, quick=True, folder=kept, tell=lambda _: None)


@pytest.fixture(scope="module")
def runs(priced, kept, comparison):
    """The same predictions, from the folder that the comparison kept them in."""
    return ComparedRuns(wide=wide_table(priced), entries=ENTRIES, quick=True, folds=2, folder=kept)


@pytest.mark.parametrize("question", QUESTIONS)
def test_all_are_scored_on_the_same_rows(runs, comparison, question) -> None:
    for population in (JOBS, ALL):
        asked = runs.asked(question, 0, population)
        for name in runs.names(population):
            scored = ~np.isnan(errors_percent(runs, name, question, population, 0))
            assert np.array_equal(scored, asked)
        sizes = {
            item.rows
            for item in comparison.scores
            if (item.question, item.population) == (question, population)
        }
        assert sizes in ({int(asked.sum())}, set())


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_configuration_that_anybody_ran_is_scored(runs, question) -> None:
    scored = runs.asked(question, 0, JOBS)
    for name in runs.samplers:
        held = runs.held_out(name, question, 0)
        assert held.runs.max() <= 7
        assert not (held.sampled & scored).any()


def test_small_clusters_are_sampled_where_larger_ones_are_asked(runs) -> None:
    (fold,) = runs.split("cluster", 0)
    for name in runs.samplers:
        sampled = runs.held_out(name, "cluster", 0).sampled
        assert not sampled[fold.outside].any()
        assert sampled[fold.inside].any()


def test_no_predictor_reads_what_is_for_looking_up(runs) -> None:
    jobs = runs.wide.table.jobs
    assert not any(name.startswith(BESIDE) for name in own_part(jobs).names)
    assert {name.split(".")[0] + "." for name in jobs.names} >= set(BESIDE)
    assert len(jobs.names) == jobs.features.shape[1]
    assert np.isfinite(jobs.features).all()


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
    text = page(comparison)
    said = json.loads(json.dumps(comparison.to_dict(), allow_nan=False))
    assert {section for section in said["sections"]} >= {"verdict", *QUESTIONS, "cost"}
    for item in comparison.scores:
        assert f"| {item.title} |" in text
    assert "9.8" in text
    assert "10.3" in text
    assert said["card"]["rows"] >= ROWS * 0.95


def test_predictions_are_kept_and_read_back(runs, kept) -> None:
    files = list(kept.glob("compared-*/ours-architecture-0-2.npz"))
    assert len(files) == 1
    held = runs.held_out("ours", "architecture", 0)
    with np.load(files[0]) as arrays:
        again = HeldOut.from_arrays(dict(arrays))
    assert np.array_equal(held.step_time_s, again.step_time_s, equal_nan=True)


@pytest.mark.slow
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
