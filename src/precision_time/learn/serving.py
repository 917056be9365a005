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
    """Step times of many jobs, as physics allows them (`at_least_the_smaller`, `at_least_alone`).

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
    times = at_least_the_smaller(_unbounded(everything, predictor, coverage), np.array(owners, dtype=np.intp))
    return at_least_alone(times, jobs, predictor, coverage=coverage)


def _unbounded(jobs: Sequence[Job], predictor: TrainedPredictor, coverage: float) -> StepTimes:
    """What the stages say of jobs."""
    references = [on_reference(job) for job in jobs]
    same = all(reference is job for reference, job in zip(references, jobs, strict=True))
    reference = None if same else job_table(references)
    return step_times(job_table(jobs), predictor, coverage=coverage, reference=reference)


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
    """A group of one job, joined by the same job at a half, a quarter ... of its micro batch."""
    micro = float(group.micro_batch_size[0])
    return replace(group, micro_batch_size=np.array([micro, *_smaller_batches(micro)]))


def _smaller_batches(micro_batch_size: float) -> list[float]:
    halvings = range(1, int(np.log2(max(micro_batch_size, 1.0))) + 1)
    return [micro_batch_size / 2**count for count in halvings]


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
    corrected = times.corrected
    alone = replace(
        times,
        step_time_s=times.step_time_s[first],
        low_s=times.low_s[first],
        high_s=times.high_s[first],
        jobs=times.jobs.take(first),
        corrected=Corrected(
            compute_s=corrected.compute_s[first],
            exposed_s=corrected.exposed_s[first],
            step_time_s=corrected.step_time_s[first],
            novelty=corrected.novelty[first],
        ),
    )
    return _raised(alone, longest)


def at_least_alone(
    times: StepTimes, jobs: Sequence[Job], predictor: TrainedPredictor, *, coverage: float
) -> StepTimes:
    """The step times, none of a data-parallel job shorter than that of one of its devices alone.

    Copies of a model that wait for each other are not faster than one copy. Where measured runs are like the
    job in every kind, they have the word instead.

    Args:
        times: Of the jobs.
        jobs: The same n jobs.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1.
    """
    new = times.corrected.novelty.max(axis=1, initial=0.0) > 0.0
    bounds = {index: _alone(job) for index, job in enumerate(jobs) if new[index]}
    found = {index: job for index, job in bounds.items() if job is not None}
    if not found:
        return times
    floor = times.step_time_s.copy()
    floor[[*found]] = predict_step_times([*found.values()], predictor, coverage=coverage).step_time_s
    return _raised(times, np.maximum(floor, times.step_time_s))


def _alone(job: Job) -> Job | None:
    """One device of a job whose devices all hold the whole model; None for any other job."""
    layout, cluster = job.layout, job.cluster
    if layout.dp != cluster.num_devices or layout.dp == 1 or layout.zero_stage:
        return None
    like = cluster.reference
    single = replace(
        cluster,
        num_devices=1,
        num_nodes=1,
        reference=None if like is None else replace(like, num_devices=1, num_nodes=1),
    )
    return replace(job, cluster=single, layout=replace(layout, dp=1, ep=1))


def _raised(times: StepTimes, step_time_s: Floats) -> StepTimes:
    """The same with other step times: every part and the interval in proportion."""
    factor, corrected = step_time_s / times.step_time_s, times.corrected
    return replace(
        times,
        step_time_s=step_time_s,
        low_s=times.low_s * factor,
        high_s=times.high_s * factor,
        corrected=Corrected(
            compute_s=corrected.compute_s * factor,
            exposed_s=corrected.exposed_s * factor,
            step_time_s=corrected.step_time_s * factor,
            novelty=corrected.novelty,
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
