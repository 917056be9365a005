"""Distances between models, and how much of a correction holds at a distance."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.learn.novelty import NEAR, hold, measured_models, positions_of
from precision_time.learn.table import JobTable

NAMES = (
    "log_params",
    "log_flops",
    "log_micro_batch_size",
    "log_launches",
    "mean_inner",
    "mean_outer",
    "mean_kernel_area",
    "weight_gradient_share",
    "class.gemm",
    "class.conv",
    "family.cnn",
)


def table(*rows: dict[str, float], architectures: tuple[str, ...]) -> JobTable:
    features = np.array([[row.get(name, 0.0) for name in NAMES] for row in rows])
    ones = np.ones(len(rows))
    return JobTable(
        features=features,
        names=NAMES,
        analytical_s=ones,
        compute_s=ones,
        exposed_s=0.0 * ones,
        architectures=architectures,
    )


@given(st.lists(st.floats(0.0, 100.0), min_size=2, max_size=20))
def test_a_correction_holds_less_the_farther_a_model_is(distances: list[float]) -> None:
    held = hold(np.sort(np.array(distances)))
    assert (np.diff(held) <= 0.0).all()
    assert (held > 0.0).all()
    assert (held <= 1.0).all()


def test_a_measured_model_keeps_the_whole_correction() -> None:
    assert hold(np.zeros(1))[0] == 1.0
    assert 0.9 < hold(np.array([NEAR / 2]))[0] < 1.0
    assert hold(np.array([1e3]))[0] < 0.5


def test_measured_architectures_are_at_distance_0_whatever_their_batch() -> None:
    jobs = table(
        {"log_params": 1.0, "class.gemm": 0.2},
        {"log_params": 1.0, "class.gemm": 0.9},
        architectures=("a", "a"),
    )
    models = measured_models(jobs, np.array([0]))
    assert models.distance(jobs).tolist() == [0.0, 0.0]


def test_an_unknown_model_is_as_far_as_the_nearest_measured_one() -> None:
    jobs = table(
        {"log_params": 0.0},
        {"log_params": 10.0},
        {"log_params": 8.0},
        architectures=("small", "large", "new"),
    )
    models = measured_models(jobs, np.array([0, 1]))
    assert models.architectures == ("small", "large")
    assert models.distance(jobs) == pytest.approx([0.0, 0.0, 2.0])  # one unit of log_params is one step


def test_a_model_lies_at_the_median_of_its_rows() -> None:
    jobs = table(*({"log_params": value} for value in (1.0, 2.0, 9.0)), architectures=("a", "a", "a"))
    models = measured_models(jobs, np.arange(3))
    assert len(models.positions) == 1
    assert models.positions[0] == pytest.approx(positions_of(jobs)[1])


def test_the_batch_does_not_move_a_model() -> None:
    jobs = table(
        {"log_flops": 3.0, "log_micro_batch_size": 0.0},
        {"log_flops": 5.0, "log_micro_batch_size": 2.0},
        architectures=("a", "a"),
    )
    places = positions_of(jobs)
    assert places[0] == pytest.approx(places[1])
