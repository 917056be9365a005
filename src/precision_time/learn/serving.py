"""Step times of many jobs at once, with their intervals: what every way of asking ends in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..cost.job import Job
from .artifact import TrainedPredictor
from .intervals import novelty
from .stages import Corrected
from .table import JobTable, job_table

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """Predicted step times of n jobs and their intervals, shape (n,) each."""

    step_time_s: Floats
    low_s: Floats
    high_s: Floats
    jobs: JobTable
    corrected: Corrected


def predict_step_times(jobs: Sequence[Job], predictor: TrainedPredictor, *, coverage: float) -> StepTimes:
    """Step times of many jobs.

    Args:
        jobs: Any jobs; those that share a workload and a precision are priced together.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1.
    """
    return step_times(job_table(jobs), predictor, coverage=coverage)


def step_times(table: JobTable, predictor: TrainedPredictor, *, coverage: float) -> StepTimes:
    """Step times of priced jobs; see `predict_step_times`."""
    corrected = predictor.correction.correct(table)
    low, high = predictor.intervals.factors(table.features, novelty(corrected.distance), coverage)
    step_time_s = corrected.step_time_s
    return StepTimes(
        step_time_s=step_time_s,
        low_s=step_time_s * low,
        high_s=step_time_s * high,
        jobs=table,
        corrected=corrected,
    )
