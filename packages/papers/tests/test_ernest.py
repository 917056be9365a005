"""Ernest against its own worked example, and its experiment design against the optimum."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.errors import ConfigError
from precision_time_papers.ernest import (
    BUDGET,
    Ernest,
    chosen_points,
    criterion,
    ernest_features,
    fit_ernest,
    optimal_weights,
    small_shares,
)
from precision_time_papers.per_job import STEPS_PER_RUN, Configurations, MeasurementBudget

EXAMPLE = np.array(
    [
        (32, 0.125, 7.945168),
        (4, 0.015625, 4.720292),
        (4, 0.021382, 4.876611),
        (12, 0.050164, 6.713765),
        (12, 0.055921, 6.715194),
        (12, 0.061678, 6.673972),
        (16, 0.061678, 6.835670),
    ]
)
"""(machines, share, seconds) of the example in Ernest's repository (amplab/ernest 4a7359c)."""


def grid(shares: list[float], machines: list[float]) -> tuple[np.ndarray, np.ndarray]:
    s, m = np.meshgrid(shares, machines)
    return s.ravel(), m.ravel()


def test_the_worked_example_of_its_documentation() -> None:
    fitted = fit_ernest(EXAMPLE[:, 1], EXAMPLE[:, 0], EXAMPLE[:, 2])
    constant, per_share, logarithm, linear = fitted.coefficients
    assert constant == pytest.approx(1.90013, abs=1e-5)
    assert per_share == pytest.approx(162.19821, abs=2e-4)
    assert logarithm == pytest.approx(1.58832, abs=1e-5)
    assert linear == 0.0
    asked = np.array([4.0, 8.0, 16.0, 28.0])
    expected = [44.6516, 25.4777, 16.4413, 12.9855]
    assert fitted.seconds(np.ones(4), asked) == pytest.approx(expected, abs=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0.001, 10.0), min_size=4, max_size=4))
def test_times_that_follow_the_formula_are_found_again(coefficients: list[float]) -> None:
    share, machines = grid([0.1, 0.4, 1.0], [1.0, 2.0, 4.0, 8.0])
    seconds = ernest_features(share, machines) @ np.array(coefficients)
    for relative in (False, True):
        fitted = fit_ernest(share, machines, seconds, relative=relative)
        assert fitted.seconds(share, machines) == pytest.approx(seconds, rel=1e-6)


def scaled(share: np.ndarray, machines: np.ndarray) -> np.ndarray:
    features = ernest_features(share, machines)
    return features / features.mean(axis=0)


@pytest.mark.parametrize("most", [None, 7])
def test_no_other_weights_within_the_budget_are_better(most: int | None) -> None:
    share, machines = grid([0.125, 0.25, 0.5, 1.0], [1.0, 2.0, 4.0, 8.0])
    weights = optimal_weights(share, machines, most=most)
    cost, runs = share / share.min() / machines, float(most or len(share))
    assert weights @ cost <= BUDGET * (1.0 + 1e-9)
    assert weights.sum() <= runs * (1.0 + 1e-9)
    assert weights.min() >= 0.0
    assert weights.max() <= 1.0
    features = scaled(share, machines)
    least = criterion(features, weights)
    draw = np.random.default_rng(0)
    for _ in range(500):
        other = np.clip(weights + draw.normal(0.0, 0.2, len(weights)) * (draw.random(16) < 0.3), 0.0, 1.0)
        other *= min(1.0, BUDGET / (other @ cost), runs / other.sum())
        assert criterion(features, other) >= least * (1.0 - 1e-6)


def test_the_points_chosen_tell_all_four_terms_apart() -> None:
    share, machines = grid(np.linspace(0.05, 1.0, 20).tolist(), np.arange(1.0, 17.0).tolist())
    rows = chosen_points(share, machines, most=7)
    assert len(rows) == len(set(rows.tolist())) <= 7
    assert np.linalg.matrix_rank(ernest_features(share[rows], machines[rows])) == 4
    assert float((share / machines)[rows].sum()) < float(np.sort(share / machines)[-7:].sum())


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.floats(1e-4, 1.0), st.integers(1, 64)), min_size=4, max_size=90),
    st.integers(4, 7),
)
def test_any_points_give_a_design(points: list[tuple[float, int]], most: int) -> None:
    share = np.array([point[0] for point in points])
    machines = np.array([float(point[1]) for point in points])
    rows = chosen_points(share, machines, most=most)
    assert 4 <= len(rows) <= most
    assert len(set(rows.tolist())) == len(rows)
    assert rows.min() >= 0
    assert rows.max() < len(points)


def test_a_design_without_points_is_refused() -> None:
    with pytest.raises(ConfigError, match="offer at least 4 configurations"):
        optimal_weights(np.zeros(0), np.zeros(0))


def test_small_runs_are_small_and_their_cost_is_accounted_for() -> None:
    batch, devices = grid([8.0, 16.0, 32.0, 64.0, 512.0], [1.0, 2.0, 4.0])
    offered = Configurations(
        devices=devices, nodes=np.ones(len(devices)), global_batch=batch, largest_batch=512.0
    )
    seconds = 0.01 + 0.002 * batch / devices + 0.003 * np.log(devices)
    budget = MeasurementBudget(offered=offered, step_time_s=seconds, limit=6)
    fitted = Ernest().fit(budget, seed=0)
    assert 4 <= len(budget.chosen) <= 6
    assert offered.share[budget.chosen].max() <= 0.125
    assert budget.wall_s == pytest.approx(STEPS_PER_RUN * seconds[budget.chosen].sum())
    assert budget.device_s == pytest.approx(STEPS_PER_RUN * (seconds * devices)[budget.chosen].sum())
    assert fitted.predict(offered) == pytest.approx(seconds, rel=1e-6)


def test_small_shares_are_topped_up_with_the_smallest() -> None:
    share = np.array([1.0, 0.1, 0.9, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8])
    assert small_shares(share).tolist() == [1, 3, 4, 5, 6, 7, 8, 9]
    assert small_shares(np.linspace(0.01, 1.0, 100)).tolist() == list(range(12))


def test_no_run_is_free() -> None:
    offered = Configurations(
        devices=np.ones(3), nodes=np.ones(3), global_batch=np.arange(1.0, 4.0), largest_batch=3.0
    )
    budget = MeasurementBudget(offered=offered, step_time_s=np.array([1.0, 2.0, 3.0]), limit=2)
    assert [budget.run(0), budget.run(2), budget.run(0)] == [1.0, 3.0, 1.0]
    assert budget.chosen == [0, 2]
    with pytest.raises(ConfigError, match="more than 2 sample runs"):
        budget.run(1)
