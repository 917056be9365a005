"""Step times of many jobs at once, with their intervals: what all predictions end in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..cost.job import Job, JobGroup
from .artifact import TrainedPredictor
from .stages import Corrected
from .table import JobTable, job_table

Floats = NDArray[np.float64]

_HALVINGS = 3
"""Smaller batches that a step must not be shorter than: learned factors never fall by more over more."""


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


def with_smaller_batches(group: JobGroup) -> JobGroup:
    """A group of one job, joined by the same job at a half, a quarter and an eighth of its micro batch."""
    micro = float(group.micro_batch_size[0])
    sizes = [micro, *(micro / 2**halvings for halvings in range(1, _HALVINGS + 1))]
    return replace(group, micro_batch_size=np.array([size for size in sizes if size == micro or size >= 1.0]))


def at_least_the_smaller(times: StepTimes) -> StepTimes:
    """The first job alone, no shorter than the same job with a smaller batch.

    The cost model grows with the batch, the learned factors need not: where a smaller batch of the same job
    is answered with a longer step, this one takes as long.

    Args:
        times: Of the jobs of `with_smaller_batches`.
    """
    raised = float(times.step_time_s.max()) / float(times.step_time_s[0])
    first = np.zeros(1, dtype=np.intp)
    corrected = times.corrected
    return replace(
        times,
        step_time_s=times.step_time_s[first] * raised,
        low_s=times.low_s[first] * raised,
        high_s=times.high_s[first] * raised,
        jobs=times.jobs.take(first),
        corrected=Corrected(
            compute_s=corrected.compute_s[first] * raised,
            exposed_s=corrected.exposed_s[first] * raised,
            step_time_s=corrected.step_time_s[first] * raised,
            novelty=corrected.novelty[first],
        ),
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
