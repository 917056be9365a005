"""Step times of many jobs at once, with their intervals: what all predictions end in."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np

from ..arrays import Floats, Indices
from ..cost.job import Job, JobGroup, group_key, group_of_jobs
from ..cost.step import StepCosts, price
from ..hardware.device import Cluster
from ..precision.policy import DType
from .artifact import TrainedPredictor
from .bounds import between, powers_beside
from .stages import Corrected
from .table import JobTable, group_table

_MEASURED = 0.01
"""Novelty up to which a job is a measured one: positions are rounded, and differ by a last digit."""
_HOST_DEVICES = 8
"""Devices of a host as most runs have them."""
_FILL = "memory_fill"
"""The feature that says how full the memory is."""
_OF_THE_SIZE = ("num_devices", "num_nodes", "assumptions")
_MOST_KEPT = 4096
_MOST_BATCHES = 1024
"""Of a group with more micro batches than this, none is kept."""
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
        return StepTimes(
            step_time_s=self.step_time_s[here],
            low_s=self.low_s[here],
            high_s=self.high_s[here],
            jobs=self.jobs.take(here),
            corrected=self.corrected.take(here),
            term_factors={name: values[here] for name, values in self.term_factors.items()},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class LikeJobs:
    """Jobs that differ in their micro batch only."""

    job: Job
    """One of them, which speaks for all."""
    key: Hashable
    """Its `group_key`."""
    batches: tuple[float, ...]
    """Their micro batches, each once."""

    @property
    def group(self) -> JobGroup:
        """What is priced."""
        return replace(group_of_jobs([self.job]), micro_batch_size=np.array(self.batches, dtype=np.float64))


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedJobs:
    """Priced jobs, each once however many ask for it: one row each, those of a group side by side."""

    groups: tuple[LikeJobs, ...]
    costs: tuple[StepCosts, ...]
    """By group."""
    table: JobTable
    reference: JobTable | None
    """The same as measured runs are (`on_reference`), if some are not."""
    rows: Indices
    """The row of each job that was given, shape (n,)."""

    @property
    def starts(self) -> list[int]:
        """The first row of each group, and the number of all rows."""
        return [0, *accumulate(len(group.batches) for group in self.groups)]

    def like(self, predictor: TrainedPredictor) -> JobTable:
        """What the learned stages read."""
        table = self.table if self.reference is None else self.reference
        return table.select(predictor.correction.names)

    def costs_of(self, job: int) -> StepCosts:
        """The analytical costs of one job alone, arrays of shape (1,)."""
        starts = self.starts
        group = bisect_right(starts, int(self.rows[job])) - 1
        costs, place = self.costs[group], int(self.rows[job]) - starts[group]

        def taken(named: Mapping[str, Floats]) -> dict[str, Floats]:
            return {name: values[place : place + 1] for name, values in named.items()}

        return StepCosts(terms=taken(costs.terms), link_seconds=taken(costs.link_seconds), facts={})


def price_jobs(jobs: Sequence[Job]) -> PricedJobs:
    """Price jobs, groups of like ones at once.

    Args:
        jobs: n jobs.
    """
    found: dict[Hashable, tuple[Job, dict[float, int]]] = {}
    asked: list[tuple[Hashable, int]] = []
    for job in jobs:
        key = group_key(job)
        _, batches = found.setdefault(key, (job, {}))
        asked.append((key, batches.setdefault(job.layout.micro_batch_size, len(batches))))
    groups = [LikeJobs(job=job, key=key, batches=tuple(batches)) for key, (job, batches) in found.items()]
    first = dict(zip(found, accumulate((len(group.batches) for group in groups), initial=0), strict=False))
    rows = np.array([first[key] + place for key, place in asked], dtype=np.intp)
    return price_groups(groups, rows)


def price_groups(groups: Sequence[LikeJobs], rows: Indices | None = None) -> PricedJobs:
    """Price groups of jobs.

    Args:
        groups: Each with a key of its own.
        rows: Rows of the jobs that are wanted, shape (n,); None for all.
    """
    tables: list[JobTable] = []
    references: list[JobTable] = []
    costs: list[StepCosts] = []
    for each in groups:
        costs.append(price(each.group))
        tables.append(group_table(each.group, costs[-1]))
        learned_on, reference = tables[-1], on_reference(each.job)
        if reference is not each.job:
            as_measured = replace(each, job=reference).group
            learned_on = group_table(as_measured, price(as_measured))
        references.append(learned_on)
    same = all(one is other for one, other in zip(tables, references, strict=True))
    return PricedJobs(
        groups=tuple(groups),
        costs=tuple(costs),
        table=JobTable.together(tables),
        reference=None if same else JobTable.together(references),
        rows=np.arange(sum(len(each.batches) for each in groups)) if rows is None else rows,
    )


def predict_step_times(
    jobs: Sequence[Job], predictor: TrainedPredictor, *, coverage: float | Floats
) -> StepTimes:
    """Step times of many jobs, as physics allows them (`bounded_times`).

    Args:
        jobs: n jobs; those that share a workload and a precision are priced together.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
    """
    return bounded_times(price_jobs(jobs), predictor, coverage=coverage)


def bounded_times(priced: PricedJobs, predictor: TrainedPredictor, *, coverage: float | Floats) -> StepTimes:
    """Step times, none shorter than with a smaller batch or on fewer devices.

    The cost model grows with the batch, the learned factors need not: where a smaller batch of the same job
    is answered with a longer step, this one takes as long.

    Copies of a model that wait for each other are not faster than fewer of them, but for what the cost model
    says that they share. Where measured runs are like the job in every kind, they have the word instead;
    where they are like the same job on a full host, fewer devices take no longer than that.

    Args:
        priced: `price_jobs` of n jobs.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
    """
    like = priced.like(predictor)
    novelty = predictor.correction.training_set.novelty(like)
    corrected, least_s, most_s = _with_bounds(priced, like, novelty, predictor)
    rows = priced.rows
    own, features = corrected.take(rows), like.features[rows]
    low, high = predictor.intervals.factors(features, own.novelty, coverage)
    times = StepTimes(
        step_time_s=own.step_time_s,
        low_s=own.step_time_s * low,
        high_s=own.step_time_s * high,
        jobs=priced.table.take(rows),
        corrected=own,
    )
    return _raised(times, np.minimum(least_s[rows], most_s[rows]))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """What a predictor said of like jobs, by their micro batch: one job and the next look at the same."""

    job: Job
    predictor: TrainedPredictor
    """Kept, as the job is: keys name objects by where they are."""
    rows: dict[float, tuple[float, float, float, float]]
    """Step time, analytical one, how full the memory is, novelty."""
    allowed: dict[float, float]
    """Step time as the batch allows it."""

    def allowed_s(self, batch: float) -> float:
        """Step time at a batch, no shorter than at a half, a quarter ... of it.

        Where no such job was measured, one between two powers of two is answered by those (`bounds.py`).
        """
        if (found := self.allowed.get(batch)) is None:
            own_s, analytical_s, _, novelty = self.rows[batch]
            if novelty > _MEASURED and (powers := powers_beside(batch)):
                low, high = ((self.allowed_s(power), self.rows[power][1]) for power in powers)
                found = between(analytical_s, low, high)
            else:
                found = max([own_s, *(self.allowed_s(half) for half in _half(batch))])
            self.allowed[batch] = found
        return found

    def at(self, batches: Sequence[float]) -> Floats:
        """Step time as allowed, analytical one, how full the memory is, novelty; shape (4, batches)."""
        return np.array([(self.allowed_s(batch), *self.rows[batch][1:]) for batch in batches]).T


_KNOWN: dict[Hashable, _Known] = {}


def _known(key: Hashable, job: Job, predictor: TrainedPredictor) -> _Known:
    """What is known of the jobs of a group, to be added to."""
    whole = (id(predictor), key)
    if (found := _KNOWN.get(whole)) is None:
        found = _KNOWN[whole] = _Known(job=job, predictor=predictor, rows={}, allowed={})
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Others:
    """The same job on other numbers of devices, which bound what it takes."""

    job: Job
    """As measured runs are; kept for its key."""
    fewer: tuple[tuple[Hashable, Job], ...]
    """On fewer devices, the fewest first."""
    host: tuple[tuple[Hashable, Job], ...]
    """On all devices of a host, where that is a larger job."""
    wider: tuple[tuple[Hashable, Job], ...]
    """In fp32, where TF32 is allowed: libraries choose what is faster."""


_OTHERS: dict[Hashable, _Others] = {}


def _others_of(job: Job) -> _Others:
    reference = on_reference(job)
    key = group_key(reference)
    if (found := _OTHERS.get(key)) is None:
        if len(_OTHERS) > _MOST_KEPT:
            _OTHERS.clear()
        host, wider = _on_host(reference), _without_tf32(reference)
        found = _OTHERS[key] = _Others(
            job=reference,
            fewer=tuple((group_key(each), each) for each in _fewer(reference)),
            host=() if host is None else ((group_key(host), host),),
            wider=() if wider is None else ((group_key(wider), wider),),
        )
    return found


def _with_bounds(
    priced: PricedJobs, like: JobTable, novelty: Floats, predictor: TrainedPredictor
) -> tuple[Corrected, Floats, Floats]:
    """Corrected seconds of the priced rows, and the least and the most that bounds allow them.

    All that bounds look at, smaller batches and other numbers of devices, is priced and corrected together
    with the rows themselves, but for what is known already.
    """
    if len(_KNOWN) > _MOST_KEPT:
        _KNOWN.clear()
    starts = priced.starts
    new = novelty.max(axis=1, initial=0.0) > _MEASURED
    own: list[_Known] = []
    others: list[_Others | None] = []
    missing: dict[Hashable, tuple[_Known, dict[float, None]]] = {}

    def look_at(key: Hashable, job: Job, batches: Iterable[float], given: Collection[float] = ()) -> _Known:
        known = _known(key, job, predictor)
        sizes = dict.fromkeys(size for batch in batches for size in _beside(batch))
        wanted = {size: None for size in sizes if size not in known.rows and size not in given}
        if wanted:
            missing.setdefault(key, (known, {}))[1].update(wanted)
        return known

    for number, group in enumerate(priced.groups):
        is_new = new[starts[number] : starts[number + 1]]
        beside = (size for batch in group.batches for size in _beside(batch))
        known = look_at(group.key, group.job, beside, set(group.batches))
        own.append(known)
        others.append(_others_of(group.job) if is_new.any() else None)
        if others[-1] is not None:
            batches = [batch for batch, wanted in zip(group.batches, is_new, strict=True) if wanted]
            for key, job in (*others[-1].fewer, *others[-1].host, *others[-1].wider):
                look_at(key, job, batches)
    further = price_groups(
        [
            LikeJobs(job=known.job, key=key, batches=tuple(batches))
            for key, (known, batches) in missing.items()
        ]
    )
    corrected = _learned(priced, like, novelty, further, [known for known, _ in missing.values()], predictor)
    least_s, most_s = np.zeros(len(novelty)), np.full(len(novelty), math.inf)
    fill = like.features[:, like.names.index(_FILL)]
    for number, (group, known, other) in enumerate(zip(priced.groups, own, others, strict=True)):
        here = slice(starts[number], starts[number + 1])
        known.rows.update(
            _rows(
                group.batches, corrected.step_time_s[here], priced.table.take(here), fill[here], novelty[here]
            )
        )
        least_s[here] = [known.allowed_s(batch) for batch in group.batches]
        if other is not None:
            at = np.flatnonzero(new[here]) + here.start
            batches = [group.batches[place - here.start] for place in at.tolist()]
            # On the hardware that was measured; the job's own takes as many times as long.
            as_measured = corrected.step_time_s[at] * like.analytical_s[at] / priced.table.analytical_s[at]
            fewer_s = _longest_of_fewer(other, batches, like.analytical_s[at], fill[at], predictor)
            host_s = _measured_host(other, batches, like.analytical_s[at], predictor)
            own_s = corrected.step_time_s[at]
            for key, job in other.wider:
                wider_s = _known(key, job, predictor).at(batches)[0]
                least_s[at] = np.minimum(least_s[at], own_s * wider_s / as_measured)
            least_s[at] = np.maximum(least_s[at], own_s * fewer_s / as_measured)
            most_s[at] = own_s * host_s / as_measured
    for key, known in [*_KNOWN.items()] if len(novelty) > _MOST_BATCHES else ():
        if len(known.rows) > _MOST_BATCHES:
            del _KNOWN[key]
    return corrected, least_s, most_s


def _learned(
    priced: PricedJobs,
    like: JobTable,
    novelty: Floats,
    further: PricedJobs,
    known: Sequence[_Known],
    predictor: TrainedPredictor,
) -> Corrected:
    """Corrected seconds of the priced rows; those of further groups become known."""
    count = len(novelty)
    if further.groups:
        beside = further.like(predictor)
        beside_novelty = predictor.correction.training_set.novelty(beside)
        whole = JobTable.together([like, beside])
        together = predictor.correction.correct(whole, np.concatenate([novelty, beside_novelty]))
        other, corrected = together.take(slice(count, None)), together.take(slice(count))
        if further.reference is not None:
            other = _transferred(other, beside, further.table)
        starts = further.starts
        fill = beside.features[:, beside.names.index(_FILL)]
        for number, (group, its) in enumerate(zip(further.groups, known, strict=True)):
            here = slice(starts[number], starts[number + 1])
            table = further.table.take(here)
            its.rows.update(
                _rows(group.batches, other.step_time_s[here], table, fill[here], beside_novelty[here])
            )
    else:
        corrected = predictor.correction.correct(like, novelty)
    return corrected if priced.reference is None else _transferred(corrected, like, priced.table)


def _rows(
    batches: Sequence[float], step_time_s: Floats, table: JobTable, fill: Floats, novelty: Floats
) -> dict[float, tuple[float, float, float, float]]:
    """Rows of `_Known`."""
    new = novelty.max(axis=1, initial=0.0)
    columns = (step_time_s.tolist(), table.analytical_s.tolist(), fill.tolist(), new.tolist())
    return dict(zip(batches, zip(*columns, strict=True), strict=True))


def _longest_of_fewer(
    others: _Others, batches: Sequence[float], analytical_s: Floats, fill: Floats, predictor: TrainedPredictor
) -> Floats:
    """The least that jobs take by what the same takes on fewer devices, 0 where there are none.

    Where the cost model says that a step is shorter on more devices, as with an optimizer that is spread over
    them, the bound is as much shorter. Devices so few that the job does not fit say nothing. No bound is
    above what was measured on more devices.

    Args:
        others: The job on fewer devices.
        batches: n micro batches.
        analytical_s: Of the jobs themselves, as measured runs are, shape (n,).
        fill: How full their memory is, shape (n,).
        predictor: The trained predictor.
    """
    longest, most = np.zeros(len(batches)), np.full(len(batches), math.inf)
    for key, job in reversed(others.fewer):
        seconds, analytical, filled, novelty = _known(key, job, predictor).at(batches)
        shorter = np.minimum(analytical_s / analytical, 1.0)
        fits = filled <= np.maximum(fill, 1.0)
        bound = np.minimum(np.where(fits, seconds * shorter, 0.0), most)
        most = np.where(fits & (novelty <= _MEASURED), np.minimum(most, bound), most)
        longest = np.maximum(longest, bound)
    return longest


def _measured_host(
    others: _Others, batches: Sequence[float], analytical_s: Floats, predictor: TrainedPredictor
) -> Floats:
    """The most that jobs on a part of a host take: what was measured of the whole; infinite without that.

    Args:
        others: The job on a full host.
        batches: n micro batches.
        analytical_s: Of the jobs themselves, as measured runs are, shape (n,).
        predictor: The trained predictor.
    """
    most = np.full(len(batches), math.inf)
    for key, job in others.host:
        seconds, analytical, filled, novelty = _known(key, job, predictor).at(batches)
        longer = np.maximum(analytical_s / analytical, 1.0)
        most = np.where((novelty <= _MEASURED) & (filled <= 1.0), seconds * longer, most)
    return most


def _on_host(job: Job) -> Job | None:
    """The same on all devices of a host, with more copies of the model; None where that is no larger job."""
    layout, cluster = job.layout, job.cluster
    times, rest = divmod(_HOST_DEVICES, cluster.num_devices)
    if rest or times < 2 or cluster.num_nodes > 1 or layout.ep > 1:
        return None
    host = _part_of(cluster, _HOST_DEVICES, 1)
    return replace(job, cluster=host, layout=replace(layout, dp=layout.dp * times))


def _without_tf32(job: Job) -> Job | None:
    """The same in fp32; None where TF32 is not allowed."""
    runs = job.runs
    if DType.TF32 not in (runs.matmul, runs.conv):
        return None
    matmul, conv = (DType.FP32 if dtype is DType.TF32 else dtype for dtype in (runs.matmul, runs.conv))
    return replace(job, precision=replace(runs, matmul=matmul, conv=conv))


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


def _half(batch: float) -> tuple[float, ...]:
    """Half a micro batch, where that is whole."""
    half = batch / 2.0
    return (half,) if half >= 1.0 and half == int(half) else ()


@lru_cache(maxsize=65_536)
def _beside(batch: float) -> tuple[float, ...]:
    """A micro batch and all that it is compared with."""
    found = {batch: None}
    for size in (*_half(batch), *powers_beside(batch)):
        found |= dict.fromkeys(_beside(size))
    return tuple(found)


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
