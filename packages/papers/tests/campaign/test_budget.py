"""What to measure first, and how long it will take."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time_integrations.measure.trial import TrainingTrial
from precision_time_papers.campaign.budget import (
    DurationEstimator,
    _job,
    most_informative,
    terms_of,
    work_of,
)

Make = Callable[..., TrainingTrial]
FRACTIONS, WORKERS = (0.25, 0.5, 0.75, 1.0), (1, 2, 4)


@pytest.fixture
def grid(trial_of: Make) -> list[TrainingTrial]:
    axes = product(("cnn", "mlp"), FRACTIONS, WORKERS, (0, 1))
    return [trial_of(model=model, fraction=f, workers=w, repeat=repeat) for model, f, w, repeat in axes]


def information(trials: Sequence[TrainingTrial], chosen: Sequence[TrainingTrial]) -> float:
    """Log-determinant of the information of some trials, summed over the jobs."""
    features = dict(zip(map(str, trials), terms_of(trials), strict=True))
    total = 0.0
    for job in {_job(trial) for trial in trials}:
        rows = [features[str(trial)] for trial in chosen if _job(trial) == job]
        total += np.linalg.slogdet(1e-2 * np.eye(4) + sum((np.outer(r, r) for r in rows), np.zeros((4, 4))))[
            1
        ]
    return total


@given(budget_s=st.floats(0, 60), start_s=st.floats(0, 10))
def test_the_budget_holds_and_nothing_is_chosen_twice(
    trial_of: Make, budget_s: float, start_s: float
) -> None:
    trials = [trial_of(fraction=f, workers=w) for f in FRACTIONS for w in WORKERS]
    chosen = most_informative(trials, budget_s, seconds=lambda p: 4.0 * p.fraction, group_start_s=start_s)
    assert len({str(trial) for trial in chosen}) == len(chosen)
    cost = sum(4.0 * p.fraction for p in chosen) + start_s * len({p.group for p in chosen})
    assert cost <= budget_s + 1e-9
    if budget_s >= start_s + 4.0 * min(FRACTIONS):
        assert chosen


def test_enough_time_measures_everything(grid: list[TrainingTrial]) -> None:
    chosen = most_informative(grid, math.inf, seconds=lambda _: 1.0)
    assert sorted(map(str, chosen)) == sorted(map(str, grid))


def test_the_choice_tells_more_than_chance(grid: list[TrainingTrial]) -> None:
    chosen = most_informative(grid, 8.0, seconds=lambda _: 1.0)
    assert len(chosen) == 8
    draw = np.random.default_rng(0)
    others = [information(grid, [grid[i] for i in draw.permutation(len(grid))[:8]]) for _ in range(200)]
    assert information(grid, chosen) > np.quantile(others, 0.95)


def test_both_jobs_and_no_repeats_come_first(grid: list[TrainingTrial]) -> None:
    chosen = most_informative(grid, 8.0, seconds=lambda _: 1.0)
    assert {trial.model for trial in chosen} == {"cnn", "mlp"}
    assert len({trial.key for trial in chosen}) == 8


def test_what_is_known_is_not_worth_as_much(grid: list[TrainingTrial]) -> None:
    known = [trial for trial in grid if trial.model == "cnn" and trial.group.num_workers <= 2]
    left = [trial for trial in grid if trial not in known]
    chosen = most_informative(left, 6.0, seconds=lambda _: 1.0, known=known)
    assert sum(trial.model == "mlp" for trial in chosen) >= 4


def test_nothing_to_choose_from_is_nothing_chosen() -> None:
    assert most_informative([], 10.0, seconds=lambda _: 1.0) == []


@given(constant_s=st.floats(0, 5), rate=st.floats(0, 0.1))
def test_the_estimator_finds_a_line(trial_of: Make, constant_s: float, rate: float) -> None:
    trials = [trial_of(fraction=f, workers=w) for f in FRACTIONS for w in (1, 2)]
    estimator = DurationEstimator()
    for trial in trials[::2]:
        estimator.add_trial(trial, constant_s + rate * work_of(trial))
    for trial in trials:
        assert estimator.seconds(trial) == pytest.approx(constant_s + rate * work_of(trial), abs=1e-6)


def test_the_estimator_has_a_first_guess_and_counts_starts(trial_of: Make) -> None:
    estimator = DurationEstimator()
    trials = [trial_of(seconds=2.0), trial_of(seconds=2.0, workers=2)]
    assert estimator.total_s(trials) > 4.0
    estimator.add_start(30.0)
    assert estimator.total_s(trials) == 64.0
    estimator.add_trial(trials[0], 7.0)
    assert estimator.seconds(trial_of(model="mlp")) == 7.0
    assert estimator.total_s([]) == 0.0
