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
    """Step times of many jobs, none shorter than the same job's with a smaller batch.

    Args:
        jobs: Any jobs; those that share a workload and a precision are priced together.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1.
    """
    everything = [*jobs]
    owners = [*range(len(jobs))]
    for index, job in enumerate(jobs):
        smaller = _smaller_batches(job.layout.micro_batch_size)
        everything += [replace(job, layout=replace(job.layout, micro_batch_size=size)) for size in smaller]
        owners += [index] * len(smaller)
    table = job_table(everything)
    references = [on_reference(job) for job in everything]
    same = all(reference is job for reference, job in zip(references, everything, strict=True))
    reference = None if same else job_table(references)
    times = step_times(table, predictor, coverage=coverage, reference=reference)
    return at_least_the_smaller(times, np.array(owners, dtype=np.intp))


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
    return replace(group, micro_batch_size=np.array([micro, *_smaller_batches(micro)]))


def _smaller_batches(micro_batch_size: float) -> list[float]:
    sizes = (micro_batch_size / 2**halvings for halvings in range(1, _HALVINGS + 1))
    return [size for size in sizes if size >= 1.0]


def at_least_the_smaller(times: StepTimes, owners: NDArray[np.intp] | None = None) -> StepTimes:
    """The first jobs alone, none shorter than the same job with a smaller batch.

    The cost model grows with the batch, the learned factors need not: where a smaller batch of the same job
    is answered with a longer step, this one takes as long.

    Args:
        times: Of n jobs, and after them of the same with smaller batches.
        owners: Which of the n each row is of, those first in order; None: one job.
    """
    if owners is None:
        owners = np.zeros(len(times.step_time_s), dtype=np.intp)
    count = int(owners.max(initial=-1)) + 1
    longest = np.zeros(count)
    np.maximum.at(longest, owners, times.step_time_s)
    first = np.arange(count)
    corrected, raised = times.corrected, longest / times.step_time_s[first]
    return replace(
        times,
        step_time_s=longest,
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
