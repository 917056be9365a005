"""Step times of many jobs at once, with their intervals: what all predictions end in."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..cost.job import Job, group_key, group_of_jobs
from ..cost.step import StepCosts, price
from ..hardware.device import Cluster
from .artifact import TrainedPredictor
from .bounds import between, powers_around
from .stages import Corrected
from .table import JobTable, group_table

Floats = NDArray[np.float64]

_MEASURED = 0.01
"""Novelty up to which a job is a measured one: positions are rounded, and differ by a last digit."""
_HOST_DEVICES = 8
"""Devices of a host as most runs have them."""
_FILL = "memory_fill"
"""The feature that says how full the memory is."""
_OF_THE_SIZE = ("num_devices", "num_nodes", "assumptions")
_MOST_KEPT = 16_384
_TIMES: dict[Hashable, tuple[Floats, Job, TrainedPredictor]] = {}
_CLUSTERS: dict[Hashable, tuple[Cluster, Cluster]] = {}


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
    rows: tuple[tuple[int, list[int], list[int]], ...]
    """Of each job: its row, those of the same with smaller batches, those at `powers_around` its batch."""
    costs: tuple[StepCosts, ...]
    """By group."""
    places: NDArray[np.intp]
    """Group and place in it of each row, shape (rows, 2)."""

    @property
    def own(self) -> NDArray[np.intp]:
        """The row of each job itself, shape (n,)."""
        return np.array([rows[0] for rows in self.rows], dtype=np.intp)

    def along_batch(self, step_time_s: Floats, analytical_s: Floats, novelty: Floats) -> Floats:
        """Step time of each job as its batch allows it, shape (n,)."""
        measured = novelty.max(axis=1, initial=0.0) <= _MEASURED
        found = np.zeros(len(self.rows))
        for index, (own, smaller, powers) in enumerate(self.rows):
            if measured[own] or not powers:
                found[index] = step_time_s[[own, *smaller]].max()
            else:
                found[index] = between(analytical_s[own], step_time_s[powers], analytical_s[powers])
        return found

    def costs_of(self, job: int) -> StepCosts:
        """The analytical costs of one job alone, arrays of shape (1,)."""
        group, place = self.places[self.rows[job][0]]
        costs = self.costs[group]

        def taken(named: Mapping[str, Floats]) -> dict[str, Floats]:
            return {name: values[place : place + 1] for name, values in named.items()}

        return StepCosts(terms=taken(costs.terms), link_seconds=taken(costs.link_seconds), facts={})


def price_jobs(jobs: Sequence[Job]) -> PricedJobs:
    """Price jobs and the same with other micro batches, which bound them, groups of like jobs at once.

    Args:
        jobs: Any jobs.
    """
    groups: dict[Hashable, tuple[Job, dict[float, int]]] = {}
    asked: list[tuple[Hashable, tuple[int, list[int], list[int]]]] = []
    for job in jobs:
        micro, key = job.layout.micro_batch_size, group_key(job)
        _, known = groups.setdefault(key, (job, {}))

        def places_of(sizes: Sequence[float], known: dict[float, int] = known) -> list[int]:
            return [known.setdefault(size, len(known)) for size in sizes]

        [own] = places_of((micro,))
        asked.append((key, (own, places_of(_smaller(micro)), places_of(powers_around(micro)))))
    tables: list[JobTable] = []
    references: list[JobTable] = []
    costs: list[StepCosts] = []
    places: list[tuple[int, int]] = []
    starts: dict[Hashable, int] = {}
    for number, (key, (job, known)) in enumerate(groups.items()):
        starts[key] = len(places)
        places += [(number, place) for place in range(len(known))]
        batches = np.array([*known], dtype=np.float64)
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
        rows=tuple(
            (
                starts[key] + own,
                [starts[key] + place for place in smaller],
                [starts[key] + place for place in powers],
            )
            for key, (own, smaller, powers) in asked
        ),
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
    says that they share. Where measured runs are like the job in every kind, they have the word instead;
    where they are like the same job on a full host, fewer devices take no longer than that.

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
    least_s = priced.along_batch(corrected.step_time_s, priced.table.analytical_s, corrected.novelty)
    new = novelty.max(axis=1, initial=0.0) > _MEASURED
    as_measured = like.take(own)
    measured_s = step_time_s * as_measured.analytical_s / times.jobs.analytical_s
    references = [on_reference(job) for job in jobs]
    fewer_s = _longest_of_fewer(references, as_measured, new, predictor)
    host_s = _measured_host(references, as_measured, new, predictor)
    least_s = np.maximum(least_s, step_time_s * fewer_s / measured_s)
    return _raised(times, np.minimum(least_s, step_time_s * host_s / measured_s))


def _longest_of_fewer(
    jobs: Sequence[Job], table: JobTable, wanted: NDArray[np.bool_], predictor: TrainedPredictor
) -> Floats:
    """The least that jobs take by what the same takes on fewer devices, 0 where none are wanted.

    Where the cost model says that a step is shorter on more devices, as with an optimizer that is spread over
    them, the bound is as much shorter. Devices so few that the job does not fit say nothing.

    Args:
        jobs: n jobs, as measured runs are (`on_reference`).
        table: Of the jobs.
        wanted: Those that are looked at, shape (n,).
        predictor: The trained predictor.
    """
    longest = np.zeros(len(jobs))
    found = [(index, job) for index in np.flatnonzero(wanted).tolist() for job in _fewer(jobs[index])]
    if not found:
        return longest
    seconds, analytical_s, filled, novelty = _known_times([job for _, job in found], predictor)
    own = np.array([index for index, _ in found], dtype=np.intp)
    fill = table.features[:, table.names.index(_FILL)]
    shorter = np.minimum(table.analytical_s[own] / analytical_s, 1.0)
    fits = filled <= np.maximum(fill[own], 1.0)
    bounds = np.where(fits, seconds * shorter, 0.0)
    known = fits & (novelty <= _MEASURED)
    most = math.inf
    for row in range(len(found) - 1, -1, -1):  # of each job from most devices to fewest
        if row + 1 < len(found) and own[row] != own[row + 1]:
            most = math.inf
        bounds[row] = min(bounds[row], most)
        most = min(most, bounds[row]) if known[row] else most
    np.maximum.at(longest, own, bounds)
    return longest


def _measured_host(
    jobs: Sequence[Job], table: JobTable, wanted: NDArray[np.bool_], predictor: TrainedPredictor
) -> Floats:
    """The most that jobs on a part of a host take: what was measured of the whole; infinite without that.

    Args:
        jobs: n jobs, as measured runs are (`on_reference`).
        table: Of the jobs.
        wanted: Those that are looked at, shape (n,).
        predictor: The trained predictor.
    """
    most = np.full(len(jobs), math.inf)
    found = [(index, host) for index in np.flatnonzero(wanted).tolist() if (host := _on_host(jobs[index]))]
    if not found:
        return most
    seconds, analytical_s, filled, novelty = _known_times([job for _, job in found], predictor)
    own = np.array([index for index, _ in found], dtype=np.intp)
    longer = np.maximum(table.analytical_s[own] / analytical_s, 1.0)
    most[own] = np.where((novelty <= _MEASURED) & (filled <= 1.0), seconds * longer, math.inf)
    return most


def _on_host(job: Job) -> Job | None:
    """The same on all devices of a host, with more copies of the model; None where that is no larger job."""
    layout, cluster = job.layout, job.cluster
    times, rest = divmod(_HOST_DEVICES, cluster.num_devices)
    if rest or times < 2 or cluster.num_nodes > 1 or layout.ep > 1:
        return None
    host = _part_of(cluster, _HOST_DEVICES, 1)
    return replace(job, cluster=host, layout=replace(layout, dp=layout.dp * times))


def _known_times(jobs: Sequence[Job], predictor: TrainedPredictor) -> Floats:
    """Step time with the smaller batches in mind, analytical one, how full the memory is, novelty; (4, n).

    What was asked before is remembered: one job and the next are looked at on the same fewer devices.
    """
    keys = [(id(predictor), group_key(job), job.layout.micro_batch_size) for job in jobs]
    new = {key: job for key, job in zip(keys, jobs, strict=True) if key not in _TIMES}
    found = {key: _TIMES[key][0] for key in keys if key not in new}
    if new:
        priced = price_jobs([*new.values()])
        corrected = _corrected(priced, predictor)[1]
        seconds = priced.along_batch(corrected.step_time_s, priced.table.analytical_s, corrected.novelty)
        table = priced.table.take(priced.own)
        fill = table.features[:, table.names.index(_FILL)]
        novelty = corrected.novelty[priced.own].max(axis=1, initial=0.0)
        rows = np.stack([seconds, table.analytical_s, fill, novelty], axis=1)
        found |= dict(zip(new, rows, strict=True))
        if len(_TIMES) > _MOST_KEPT:
            _TIMES.clear()
        # The job and the predictor are kept: keys name objects by where they are.
        _TIMES.update({key: (found[key], job, predictor) for key, job in new.items()})
    return np.stack([found[key] for key in keys], axis=1)


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


def _fewer(job: Job) -> list[Job]:
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
            smaller = _part_of(cluster, devices, nodes)
            found.append(replace(job, cluster=smaller, layout=replace(layout, dp=dp, ep=ep)))
    return found


def _part_of(cluster: Cluster, devices: int, nodes: int) -> Cluster:
    """Some of the devices; those of clusters that differ in their size alone are one object."""
    parts = (getattr(cluster, item.name) for item in fields(Cluster) if item.name not in _OF_THE_SIZE)
    key = (devices, nodes, *map(_as_key, parts))
    if key in _CLUSTERS:
        return _CLUSTERS[key][0]
    like = cluster.reference
    part = replace(
        cluster,
        num_devices=devices,
        num_nodes=nodes,
        reference=None if like is None else replace(like, num_devices=devices, num_nodes=nodes),
    )
    if len(_CLUSTERS) > _MOST_KEPT:
        _CLUSTERS.clear()
    _CLUSTERS[key] = (part, cluster)
    return part


def _as_key(value: Any) -> Any:
    """A value, or which object it is where it cannot be compared."""
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value


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
