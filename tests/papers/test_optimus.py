"""Optimus's speed models and loss curve on times that follow them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.errors import ConfigError
from precision_time.papers.optimus import (
    Optimus,
    all_reduce_terms,
    fit_loss_curve,
    non_negative,
    parameter_server_terms,
    spread_over_workers,
)
from precision_time.papers.per_job import Bench, Configurations


def offered_configurations() -> Configurations:
    batch, devices = (axis.ravel() for axis in np.meshgrid([32.0, 64.0, 128.0], [1.0, 2.0, 4.0, 8.0]))
    return Configurations(
        devices=devices, nodes=np.ones(len(devices)), global_batch=batch, largest_batch=128.0
    )


def test_a_job_that_follows_the_all_reduce_form_is_predicted_exactly() -> None:
    offered = offered_configurations()
    seconds = all_reduce_terms(offered.global_batch, offered.devices) @ np.array([2e-3, 0.05, 0.04, 0.002])
    bench = Bench(offered=offered, step_time_s=seconds, limit=7)
    fitted = Optimus().fit(bench, seed=0)
    assert len(bench.chosen) == 7
    assert fitted.predict(offered) == pytest.approx(seconds, rel=1e-6)


def test_sample_runs_span_workers_and_batches_from_the_first_on() -> None:
    offered = offered_configurations()
    rows = spread_over_workers(offered)
    assert sorted(rows.tolist()) == list(range(len(offered)))
    assert offered.devices[rows[:4]].tolist() == [1.0, 8.0, 2.0, 4.0]
    assert offered.global_batch[rows[:4]].tolist() == [32.0, 128.0, 32.0, 128.0]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(1e-4, 5.0), min_size=5, max_size=5))
def test_the_parameter_server_form_is_found_again(coefficients: list[float]) -> None:
    workers, servers, batch = (
        axis.ravel() for axis in np.meshgrid([1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0], [64.0, 256.0])
    )
    terms = parameter_server_terms(batch, workers, servers)
    seconds = terms @ np.array(coefficients)
    assert terms @ non_negative(terms, seconds) == pytest.approx(seconds, rel=1e-6)


def test_no_coefficient_is_negative() -> None:
    terms = all_reduce_terms(np.full(5, 64.0), np.array([1.0, 2.0, 4.0, 8.0, 16.0]))
    falling_faster_than_work = np.array([1.0, 0.3, 0.1, 0.03, 0.01])
    assert non_negative(terms, falling_faster_than_work).min() >= 0.0


def test_a_loss_curve_is_found_and_extrapolated() -> None:
    steps = np.arange(0.0, 200.0, 10.0)
    curve = fit_loss_curve(steps, 1.0 / (0.02 * steps + 0.5) + 0.3)
    assert curve.loss(np.array([1000.0]))[0] == pytest.approx(1.0 / 20.5 + 0.3, rel=0.05)
    assert curve.steps_to(0.5) == pytest.approx((1.0 / 0.2 - 0.5) / 0.02, rel=0.1)
    assert curve.steps_to(curve.b2 / 2.0) == float("inf")


@pytest.mark.parametrize("losses", [[1.0, 0.5], [1.0, 0.5, 0.0]])
def test_losses_that_cannot_be_fitted_are_refused(losses: list[float]) -> None:
    with pytest.raises(ConfigError, match="To fix: observe more steps"):
        fit_loss_curve(np.arange(float(len(losses))), np.array(losses))
