"""Optimus's speed model on times that follow it."""

import numpy as np
import pytest

from precision_time_papers.optimus import (
    Optimus,
    all_reduce_terms,
    non_negative,
    spread_over_workers,
)
from precision_time_papers.per_job import Configurations, MeasurementBudget


def offered_configurations() -> Configurations:
    batch, devices = (axis.ravel() for axis in np.meshgrid([32.0, 64.0, 128.0], [1.0, 2.0, 4.0, 8.0]))
    return Configurations(
        devices=devices, nodes=np.ones(len(devices)), global_batch=batch, largest_batch=128.0
    )


def test_a_job_that_follows_the_all_reduce_form_is_predicted_exactly() -> None:
    offered = offered_configurations()
    seconds = all_reduce_terms(offered.global_batch, offered.devices) @ np.array([2e-3, 0.05, 0.04, 0.002])
    budget = MeasurementBudget(offered=offered, step_time_s=seconds, limit=7)
    fitted = Optimus().fit(budget, seed=0)
    assert len(budget.chosen) == 7
    assert fitted.predict(offered) == pytest.approx(seconds, rel=1e-6)


def test_sample_runs_span_workers_and_batches_from_the_first_on() -> None:
    offered = offered_configurations()
    rows = spread_over_workers(offered)
    assert sorted(rows.tolist()) == list(range(len(offered)))
    assert offered.devices[rows[:4]].tolist() == [1.0, 8.0, 2.0, 4.0]
    assert offered.global_batch[rows[:4]].tolist() == [32.0, 128.0, 32.0, 128.0]


def test_no_coefficient_is_negative() -> None:
    terms = all_reduce_terms(np.full(5, 64.0), np.array([1.0, 2.0, 4.0, 8.0, 16.0]))
    falling_faster_than_work = np.array([1.0, 0.3, 0.1, 0.03, 0.01])
    assert non_negative(terms, falling_faster_than_work).min() >= 0.0
