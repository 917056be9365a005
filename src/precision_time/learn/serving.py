"""Step times of many jobs at once, with their intervals: what all predictions end in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..cost.job import Job
from .artifact import TrainedPredictor
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
    term_factors: Mapping[str, Floats] = field(default_factory=dict)
    """What measured points made of each named term after its correction; nothing where there are none."""


def predict_step_times(jobs: Sequence[Job], predictor: TrainedPredictor, *, coverage: float) -> StepTimes:
    """Step times of many jobs.

    Args:
        jobs: Any jobs; those that share a workload and a precision are priced together.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1.
    """
    table = job_table(jobs)
    references = [on_reference(job) for job in jobs]
    if all(reference is job for reference, job in zip(references, jobs, strict=True)):
        return step_times(table, predictor, coverage=coverage)
    return step_times(table, predictor, reference=job_table(references), coverage=coverage)


def on_reference(job: Job) -> Job:
    """The job as measured runs are: on the catalog's hardware most like its own, stragglers included.

    Itself where it is so already.
    """
    cluster = job.cluster.reference
    if cluster is None:
        return job if job.stragglers else replace(job, stragglers=True)
    return replace(job, cluster=cluster, stragglers=True)


def step_times(
    table: JobTable, predictor: TrainedPredictor, *, coverage: float, reference: JobTable | None = None
) -> StepTimes:
    """Step times of priced jobs; see `predict_step_times`.

    Args:
        table: The jobs.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1.
        reference: The jobs as measured runs are (`on_reference`), if they are not: the correction is
            computed there, and applied to the analytical time of the jobs themselves.
    """
    like = (table if reference is None else reference).select(predictor.correction.names)
    corrected = predictor.correction.correct(like)
    low, high = predictor.intervals.factors(like.features, corrected.novelty, coverage)
    if reference is not None:
        corrected = _transferred(corrected, like, table)
    step_time_s = corrected.step_time_s
    return StepTimes(
        step_time_s=step_time_s,
        low_s=step_time_s * low,
        high_s=step_time_s * high,
        jobs=table,
        corrected=corrected,
    )


def _transferred(corrected: Corrected, reference: JobTable, table: JobTable) -> Corrected:
    """The correction of the reference on another job: one factor, so that physics alone decides."""
    factor = corrected.step_time_s / reference.analytical_s
    return Corrected(
        compute_s=table.compute_s * factor,
        exposed_s=table.exposed_s * factor,
        step_time_s=table.analytical_s * factor,
        novelty=corrected.novelty,
    )
