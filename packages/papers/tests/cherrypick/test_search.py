"""CherryPick's acquisition, starts and stop rule on costs that are known everywhere."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.errors import ConfigError
from precision_time_papers.cherrypick.estimator import CherryPickGaussian
from precision_time_papers.cherrypick.search import (
    LEAST_RUNS,
    Outcome,
    chance_below,
    cherry_pick,
    expected_improvement,
    fit_gaussian,
    spread_starts,
    unit_cube,
)
from precision_time_papers.per_job import Configurations, MeasurementBudget


def valley() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, cost and time of 48 configurations: more devices are faster and, beyond 8, dearer."""
    log_devices, log_batch = (axis.ravel() for axis in np.meshgrid(np.arange(8.0), np.arange(6.0)))
    time = np.exp(1.0 - 0.5 * log_devices + 0.1 * log_batch)
    cost = np.exp(0.15 * np.square(log_devices - 3.0) + 0.1 * np.square(log_batch - 2.0))
    return np.stack([log_devices, log_batch], axis=1), cost, time


def test_expected_improvement_is_the_closed_form() -> None:
    # mu = best: EI = sigma / sqrt(2 pi). Far above: nothing. Certain and below: the whole difference.
    found = expected_improvement(np.array([1.0, 9.0, 0.25]), np.array([0.5, 0.1, 0.0]), 1.0)
    assert found == pytest.approx([0.5 / np.sqrt(2.0 * np.pi), 0.0, 0.75], abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.floats(-5, 5), st.floats(0.01, 3.0), st.floats(-5, 5))
def test_expected_improvement_is_the_mean_over_draws(mean: float, deviation: float, best: float) -> None:
    points = mean + deviation * np.random.default_rng(0).standard_normal(20_000)
    drawn = np.maximum(best - points, 0.0).mean()
    exact = expected_improvement(np.array([mean]), np.array([deviation]), best)[0]
    assert exact == pytest.approx(drawn, abs=0.05 * deviation)


def test_the_chance_to_meet_a_deadline() -> None:
    assert chance_below(np.zeros(3), np.ones(3), 0.0) == pytest.approx(0.5)
    assert chance_below(np.array([5.0]), np.array([0.0]), 0.0)[0] == 0.0


def test_the_process_goes_through_what_was_measured() -> None:
    features, cost, _ = valley()
    x, rows = unit_cube(features), np.arange(0, 48, 3)
    process = fit_gaussian(x[rows], np.log(cost[rows]), seed=0)
    mean, deviation = process.predict(x, return_std=True)
    assert mean[rows] == pytest.approx(np.log(cost[rows]), abs=0.05)
    assert deviation[rows].mean() < deviation.mean()
    assert np.abs(mean - np.log(cost)).mean() < 0.1


def test_starts_are_spread_and_distinct() -> None:
    x = unit_cube(valley()[0])
    for seed in range(5):
        starts = spread_starts(x, 3, seed=seed)
        assert len(set(starts)) == 3
        assert spread_starts(x, 3, seed=seed) == starts
    assert sorted(spread_starts(np.zeros((2, 1)), 2, seed=0)) == [0, 1]


def test_the_best_is_found_in_far_fewer_runs_than_there_are() -> None:
    features, cost, time = valley()
    ran: list[int] = []

    def run(index: int) -> Outcome:
        ran.append(index)
        return Outcome(cost=float(cost[index]), time=float(time[index]))

    found = cherry_pick(features, run, seed=0)
    assert found.best is not None
    assert cost[found.best] <= 1.15 * cost.min()
    assert LEAST_RUNS <= len(found.order) <= 16
    assert list(found.order) == ran
    assert len(set(ran)) == len(ran)
    assert found.stopped_after == len(ran)


def test_the_deadline_is_kept() -> None:
    features, cost, time = valley()
    deadline = float(np.percentile(time, 20))

    def run(index: int) -> Outcome:
        return Outcome(cost=float(cost[index]), time=float(time[index]))

    found = cherry_pick(features, run, deadline=deadline, seed=1, stop=False, most_runs=14)
    assert len(found.order) == 14
    assert found.best is not None
    assert time[found.best] <= deadline
    assert cost[found.best] <= 1.1 * cost[time <= deadline].min()
    never = cherry_pick(features, run, deadline=1e-9, seed=0, most_runs=8)
    assert never.best is None
    assert len(never.order) == 8


def test_nothing_to_search_is_refused() -> None:
    with pytest.raises(ConfigError, match="nothing to search"):
        cherry_pick(np.zeros((0, 2)), lambda _: Outcome(cost=1.0, time=1.0))


def test_as_a_predictor_it_answers_for_what_it_has_not_run() -> None:
    batch, devices = (axis.ravel() for axis in np.meshgrid(2.0 ** np.arange(5, 10), 2.0 ** np.arange(5)))
    offered = Configurations(
        devices=devices, nodes=np.ones(len(devices)), global_batch=batch, largest_batch=512.0
    )
    seconds = 1e-3 * batch / devices
    budget = MeasurementBudget(offered=offered, step_time_s=seconds, limit=7)
    fitted = CherryPickGaussian().fit(budget, seed=0)
    assert len(budget.chosen) == 7
    errors = np.abs(fitted.predict(offered) / seconds - 1.0)
    assert errors[budget.chosen].max() < 0.05
    assert np.median(errors) < 0.25
