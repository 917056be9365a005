"""Step times of many jobs at once, with their intervals: what all predictions end in."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..cost.job import Job, group_key, group_of_jobs
from ..cost.step import StepCosts, price
from ..hardware.device import Cluster
from .artifact import TrainedPredictor
from .stages import Corrected
from .table import JobTable, group_table

Floats = NDArray[np.float64]

_MEASURED = 0.01
"""Novelty up to which a job is a measured one: positions are rounded, and differ by a last digit."""
_FILL = "memory_fill"
"""The feature that says how full the memory is."""


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

    def row(self, index: int) -> StepTimes:
        """One of the jobs alone."""
        here = slice(index, index + 1)
        corrected = self.corrected
        return StepTimes(
            step_time_s=self.step_time_s[here],
            low_s=self.low_s[here],
            high_s=self.high_s[here],
            jobs=self.jobs.take(here),
            corrected=Corrected(
                compute_s=corrected.compute_s[here],
                exposed_s=corrected.exposed_s[here],
                step_time_s=corrected.step_time_s[here],
                novelty=corrected.novelty[here],
            ),
            term_factors={name: values[here] for name, values in self.term_factors.items()},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedJobs:
    """Jobs and smaller ones of theirs, each priced once however many ask for it."""

    table: JobTable
    """Of all that was priced, one row each."""
    reference: JobTable | None
    """The same as measured runs are (`on_reference`), if some are not."""
    rows: tuple[list[int], ...]
    """Of each job: its row, then those of the same job with smaller batches."""
    costs: tuple[StepCosts, ...]
    """By group."""
    places: NDArray[np.intp]
    """Group and place in it of each row, shape (rows, 2)."""

    @property
    def own(self) -> NDArray[np.intp]:
        """The row of each job itself, shape (n,)."""
        return np.array([rows[0] for rows in self.rows], dtype=np.intp)

    def longest(self, step_time_s: Floats) -> Floats:
        """The longest of each job's rows, shape (n,)."""
        if not self.rows:
            return np.zeros(0)
        flat = [row for rows in self.rows for row in rows]
        starts = np.cumsum([0, *(len(rows) for rows in self.rows[:-1])])
        longest: Floats = np.maximum.reduceat(step_time_s[flat], starts)
        return longest

    def costs_of(self, job: int) -> StepCosts:
        """The analytical costs of one job alone, arrays of shape (1,)."""
        group, place = self.places[self.rows[job][0]]
        costs = self.costs[group]

        def taken(named: Mapping[str, Floats]) -> dict[str, Floats]:
            return {name: values[place : place + 1] for name, values in named.items()}

        return StepCosts(terms=taken(costs.terms), link_seconds=taken(costs.link_seconds), facts={})


def price_jobs(jobs: Sequence[Job]) -> PricedJobs:
    """Price jobs and the same at a half, a quarter ... of their micro batch, groups of like jobs at once.

    Args:
        jobs: Any jobs.
    """
    groups: dict[Hashable, tuple[Job, dict[float, int]]] = {}
    asked: list[tuple[Hashable, list[int]]] = []
    for job in jobs:
        micro, key = job.layout.micro_batch_size, group_key(job)
        _, known = groups.setdefault(key, (job, {}))
        asked.append((key, [known.setdefault(size, len(known)) for size in (micro, *_smaller(micro))]))
    tables: list[JobTable] = []
    references: list[JobTable] = []
    costs: list[StepCosts] = []
    places: list[tuple[int, int]] = []
    starts: dict[Hashable, int] = {}
    for number, (key, (job, known)) in enumerate(groups.items()):
        starts[key] = len(places)
        places += [(number, place) for place in range(len(known))]
        batches = np.array([*known])
        group = replace(group_of_jobs([job]), micro_batch_size=batches)
        costs.append(price(group))
        tables.append(group_table(group, costs[-1]))
        reference, learned_on = on_reference(job), tables[-1]
        if reference is not job:
            group = replace(group_of_jobs([reference]), micro_batch_size=batches)
            learned_on = group_table(group, price(group))
        references.append(learned_on)
    same = all(one is other for one, other in zip(tables, references, strict=True))
    return PricedJobs(
        table=JobTable.together(tables),
        reference=None if same else JobTable.together(references),
        rows=tuple([starts[key] + place for place in found] for key, found in asked),
        costs=tuple(costs),
        places=np.array(places, dtype=np.intp),
    )


def predict_step_times(
    jobs: Sequence[Job], predictor: TrainedPredictor, *, coverage: float | Floats
) -> StepTimes:
    """Step times of many jobs, as physics allows them (`bounded_times`).

    Args:
        jobs: Any jobs; those that share a workload and a precision are priced together.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
    """
    return bounded_times(price_jobs(jobs), jobs, predictor, coverage=coverage)


def bounded_times(
    priced: PricedJobs, jobs: Sequence[Job], predictor: TrainedPredictor, *, coverage: float | Floats
) -> StepTimes:
    """Step times, none shorter than with a smaller batch or on fewer devices.

    The cost model grows with the batch, the learned factors need not: where a smaller batch of the same job
    is answered with a longer step, this one takes as long.

    Copies of a model that wait for each other are not faster than fewer of them, but for what the cost model
    says that they share. Where measured runs are like the job in every kind, they have the word instead.

    Args:
        priced: `price_jobs` of the jobs.
        jobs: n jobs.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
    """
    own = priced.own
    like, corrected = _corrected(priced, predictor)
    step_time_s, novelty = corrected.step_time_s[own], corrected.novelty[own]
    low, high = predictor.intervals.factors(like.features[own], novelty, coverage)
    times = StepTimes(
        step_time_s=step_time_s,
        low_s=step_time_s * low,
        high_s=step_time_s * high,
        jobs=priced.table.take(own),
        corrected=Corrected(
            compute_s=corrected.compute_s[own],
            exposed_s=corrected.exposed_s[own],
            step_time_s=step_time_s,
            novelty=novelty,
        ),
    )
    least_s = priced.longest(corrected.step_time_s)
    new = novelty.max(axis=1, initial=0.0) > _MEASURED
    return _raised(times, np.maximum(least_s, _longest_of_fewer(jobs, times.jobs, new, predictor)))


def _longest_of_fewer(
    jobs: Sequence[Job], table: JobTable, wanted: NDArray[np.bool_], predictor: TrainedPredictor
) -> Floats:
    """The least that jobs take by what the same takes on fewer devices, 0 where none are wanted.

    Where the cost model says that a step is shorter on more devices, as with an optimizer that is spread over
    them, the bound is as much shorter. Devices so few that the job does not fit say nothing.

    Args:
        jobs: n jobs.
        table: Of the jobs.
        wanted: Those that are looked at, shape (n,).
        predictor: The trained predictor.
    """
    longest = np.zeros(len(jobs))
    fewer = _Fewer()
    found = [(index, job) for index in np.flatnonzero(wanted).tolist() for job in fewer.of(jobs[index])]
    if not found:
        return longest
    priced = price_jobs([job for _, job in found])
    seconds = priced.longest(_corrected(priced, predictor)[1].step_time_s)
    own = np.array([index for index, _ in found], dtype=np.intp)
    small = priced.table.take(priced.own)
    filled, fill = (each.features[:, each.names.index(_FILL)] for each in (small, table))
    shorter = np.minimum(table.analytical_s[own] / small.analytical_s, 1.0)
    fits = filled <= np.maximum(fill[own], 1.0)
    np.maximum.at(longest, own, np.where(fits, seconds * shorter, 0.0))
    return longest


def _corrected(priced: PricedJobs, predictor: TrainedPredictor) -> tuple[JobTable, Corrected]:
    """What the learned stages read of priced jobs, and what they make of them."""
    like = (priced.table if priced.reference is None else priced.reference).select(predictor.correction.names)
    corrected = predictor.correction.correct(like)
    return like, corrected if priced.reference is None else _transferred(corrected, like, priced.table)


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


def _smaller(micro_batch_size: float) -> list[float]:
    """A half, a quarter ... of a micro batch, down to one sample."""
    halvings = range(1, int(np.log2(max(micro_batch_size, 1.0))) + 1)
    return [micro_batch_size / 2**count for count in halvings]


class _Fewer:
    """Jobs on fewer devices; equal clusters become one object, so that they are priced once."""

    def __init__(self) -> None:
        self._clusters: dict[Hashable, Cluster] = {}

    def of(self, job: Job) -> list[Job]:
        """The same with fewer copies of the model, powers of two of them, on as many nodes as they fill."""
        layout, cluster = job.layout, job.cluster
        whole = cluster.num_devices // layout.dp
        found = []
        for power in range(max(layout.dp - 1, 0).bit_length()):
            dp = 2**power
            devices = dp * whole
            nodes = max(math.ceil(devices / cluster.devices_per_node), 1)
            ep = layout.ep if dp * layout.tp * layout.cp % layout.ep == 0 else 1
            spread = dp * layout.cp % max(layout.shard_size, 1) == 0
            if spread and (ep == layout.ep or devices == 1):
                smaller = self._with(cluster, devices, nodes)
                found.append(replace(job, cluster=smaller, layout=replace(layout, dp=dp, ep=ep)))
        return found

    def _with(self, cluster: Cluster, devices: int, nodes: int) -> Cluster:
        key = (
            *(id(cluster.device), id(cluster.reference), cluster.intra_node, cluster.inter_node),
            *(cluster.node_type, cluster.fabric, devices, nodes),
        )
        if key not in self._clusters:
            like = cluster.reference
            self._clusters[key] = replace(
                cluster,
                num_devices=devices,
                num_nodes=nodes,
                reference=None if like is None else replace(like, num_devices=devices, num_nodes=nodes),
            )
        return self._clusters[key]


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
