"""Distances between runs, and how much of a correction holds at a distance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.learn.distance import (
    LOCAL_RADIUS,
    MODERATE_RADIUS,
    local_weight,
    positions_of,
    shrinkage,
    training_set,
)
from precision_time.learn.table import JobTable

NAMES = (
    "log_params",
    "log_fp32_peak",
    "share.gemm_s",
    "share.host_stall_s",
    "stack.one",
    "stack.two",
    "log_batch",
)


def table(*rows: dict[str, float]) -> JobTable:
    features = np.array([[row.get(name, 0.0) for name in NAMES] for row in rows])
    ones = np.ones(len(rows))
    return JobTable(features=features, names=NAMES, analytical_s=ones, compute_s=ones, exposed_s=0.0 * ones)


@given(st.lists(st.floats(0.0, 100.0), min_size=2, max_size=20))
def test_a_correction_holds_less_the_farther_a_job_is(distances: list[float]) -> None:
    held = shrinkage(np.sort(np.array(distances)))
    assert (np.diff(held) <= 0.0).all()
    assert (held > 0.0).all()
    assert (held <= 1.0).all()


def test_among_measured_runs_the_whole_correction_holds() -> None:
    among, at_radius, moderate, far = shrinkage(np.array([0.0, LOCAL_RADIUS, MODERATE_RADIUS, 1e3]))
    assert among == at_radius == 1.0
    assert 0.2 < moderate < 0.6
    assert far < 1e-4


@pytest.mark.parametrize(("share", "full_until"), [(shrinkage, 1.5), (local_weight, 1.0)])
def test_beyond_their_radius_both_fade_with_the_power_of_three_halves(share, full_until: float) -> None:
    times = np.array([0.5, 1.0, 2.0, 4.0, 9.0])
    assert share(full_until * times) == pytest.approx([1.0, 1.0, 2.0**-1.5, 1 / 8, 1 / 27])


def test_the_local_stage_fades_before_the_correction_does() -> None:
    distance = np.array([0.0, LOCAL_RADIUS, MODERATE_RADIUS, 10.0])
    assert local_weight(distance)[:2] == pytest.approx([1.0, 1.0])
    assert (local_weight(distance)[2:] < shrinkage(distance)[2:]).all()


def test_a_measured_run_is_at_distance_0_whatever_else_it_is() -> None:
    jobs = table({"log_params": 1.0, "log_batch": 3.0}, {"log_params": 1.0, "log_batch": 9.0})
    assert training_set(jobs, np.array([0])).distance(jobs) == pytest.approx([0.0, 0.0])


def test_distance_is_to_the_nearest_run_in_units_of_each_feature() -> None:
    jobs = table(
        {"log_params": 1.0},
        {"log_params": 9.0},
        {"log_params": 3.0},
        {"log_params": 1.0, "log_fp32_peak": 0.7},
    )
    runs = training_set(jobs, np.array([0, 1]))
    assert runs.distance(jobs) == pytest.approx([0.0, 0.0, 2.0, 2.0], abs=1e-3)


def test_another_stack_and_another_regime_are_far() -> None:
    base = {"share.gemm_s": 0.9, "stack.one": 1.0}
    jobs = table(
        base, {**base, "stack.one": 0.0, "stack.two": 1.0}, {"share.host_stall_s": 0.9, "stack.one": 1.0}
    )
    distance = training_set(jobs, np.array([0])).distance(jobs)
    assert distance[1] == pytest.approx(np.sqrt(2.0), rel=1e-3)
    assert distance[2] > MODERATE_RADIUS


@given(st.integers(1, 40), st.integers(0, 10**6))
def test_thinned_runs_stay_within_a_cell(count: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    jobs = table(*({name: float(draw.normal()) for name in NAMES} for _ in range(count)))
    runs = training_set(jobs, np.arange(count))
    assert len(runs.positions) <= count
    dims = positions_of(jobs).shape[1]
    assert (runs.distance(jobs) <= 0.5 * np.sqrt(dims) + 0.25 * np.sqrt(dims)).all()
