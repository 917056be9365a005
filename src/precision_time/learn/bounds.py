"""What physics allows of a learned answer: no shorter for more samples, no faster for more copies of a model.

The cost model grows with the batch, the learned factors need not: in a step that waits for its host they are
all that differs between two batches. Powers of two are the batches that all jobs share: each takes at least
as long as those below it. Where no such job was measured, any other batch takes what lies between its
neighbors, where the cost model puts it: what the trees make of the difference is their noise. One job and the
next look at the same powers of two, so that their times are remembered.

Copies of a model that wait for each other are not faster than fewer of them, but for what the cost model says
that they share. Where measured runs are like the job in every kind, they have the word instead; where they
are like the same job on a full host, fewer devices take no longer than that.

A model held in 16 bits throughout is no slower than the same in mixed precision.
"""

from __future__ import annotations

import math
from collections.abc import Container, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..arrays import Floats
from ..corpus.store import corpus_store
from ..cost.job import Job, group_key
from ..cost.stacks import policy_of_stack
from ..forks import ForkLock
from ..hardware.device import Cluster
from ..precision.catalog import get_policy
from ..precision.policy import DType
from ..precision.support import one_rate_for_16_bits
from .priced import LikeJobs, PricedJobs, on_reference, price_groups
from .stages import Corrected
from .table import JobTable

if TYPE_CHECKING:
    from .artifact import TrainedPredictor

_MEASURED = 0.01
"""Novelty up to which a job is a measured one: positions are rounded, and differ by a last digit."""
_HOST_DEVICES = 8
"""Devices of a host as most runs have them."""
_FILL = "memory_fill"
"""The feature that says how full the memory is."""
_MIXED = {DType.FP16: "fp16-mixed", DType.BF16: "bf16-mixed"}
"""Mixed precision of a type that a whole model may be held in."""
_TYPES = ("matmul", "conv", "activation", "param", "grad", "reduce", "optimizer_state")
_OF_THE_SIZE = ("num_devices", "num_nodes", "assumptions")
_MOST_KEPT = 4096
_CLUSTERS: dict[Hashable, tuple[Cluster, Cluster]] = {}


class _Row(NamedTuple):
    """What a predictor says of one job, and what bounds need to know of it."""

    step_time_s: float
    analytical_s: float
    like_s: float
    """Analytical time of the job as measured runs are (`on_reference`)."""
    fill: float
    """How full the memory is."""
    novelty: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Known:
    """What a predictor said of like jobs, by their micro batch: one job and the next look at the same."""

    job: Job
    predictor: TrainedPredictor
    """Kept, as the job is: keys name objects by where they are."""
    rows: dict[float, _Row] = field(default_factory=dict)
    allowed: dict[float, float] = field(default_factory=dict)
    """Step time as smaller batches allow it."""
    bounded: dict[float, float] = field(default_factory=dict)
    """Of powers of two: step time as other numbers of devices allow it as well."""

    def allowed_s(self, batch: float) -> float:
        """Step time at a batch, no shorter than at a half, a quarter ... of it."""
        if (found := self.allowed.get(batch)) is None:
            below = [self.allowed_s(half) for half in _half(batch)]
            found = self.allowed[batch] = max(self.rows[batch].step_time_s, *below, 0.0)
        return found

    def at(self, batches: Sequence[float]) -> Floats:
        """Allowed step time, analytical one as measured runs are, fill, novelty; shape (4, batches)."""
        rows = [(self.allowed_s(batch), *self.rows[batch][2:]) for batch in batches]
        return np.array(rows, dtype=np.float64).T.reshape(4, -1)


_KNOWN: dict[Hashable, _Known] = {}
_TURN = ForkLock(forget=_KNOWN.clear)
"""For one thread at a time: what is remembered is added to, and forgotten, while answers are worked out."""


def forget_bounds() -> None:
    """Forget what was found of other jobs, so that answers do not depend on what was asked before.

    By a last digit they do: of a group that is priced in two parts, sums are rounded otherwise.
    """
    with _TURN:
        _KNOWN.clear()


def _known(key: Hashable, job: Job, predictor: TrainedPredictor) -> _Known:
    """What is known of the jobs of a group, to be added to."""
    whole = (id(predictor), key)
    if (found := _KNOWN.get(whole)) is None:
        found = _KNOWN[whole] = _Known(job=job, predictor=predictor)
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


def allowed_times(
    priced: PricedJobs, like: JobTable, novelty: Floats, predictor: TrainedPredictor
) -> tuple[Corrected, Floats]:
    """Corrected seconds of the priced rows, and their step times as physics allows them, shape (rows,).

    All that bounds look at, smaller batches and other numbers of devices, is priced and corrected together
    with the rows themselves, but for what is known already. Any thread may ask.

    Args:
        priced: The jobs, one row each.
        like: Of them, as measured runs are, in the columns of the predictor.
        novelty: Of their rows, shape (rows, kinds).
        predictor: The trained predictor.
    """
    with _TURN:
        if len(_KNOWN) > _MOST_KEPT:
            _KNOWN.clear()
        return _allowed_times(priced, like, novelty, predictor)


def _allowed_times(
    priced: PricedJobs, like: JobTable, novelty: Floats, predictor: TrainedPredictor
) -> tuple[Corrected, Floats]:
    starts = priced.starts
    # What is new of a job does not depend on its batch.
    new = (novelty.max(axis=1, initial=0.0) > _MEASURED)[starts[:-1]].tolist()
    missing: dict[Hashable, tuple[_Known, dict[float, None]]] = {}

    def look_at(key: Hashable, job: Job, batches: Iterable[float], given: Container[float] = ()) -> None:
        known = _known(key, job, predictor)
        sizes = (size for batch in batches for size in _halves(batch))
        if wanted := {size: None for size in sizes if size not in known.rows and size not in given}:
            missing.setdefault(key, (known, {}))[1].update(wanted)

    own = [_known(group.key, group.job, predictor) for group in priced.groups]
    powers: list[tuple[float, ...]] = []
    others: list[_Others | None] = []
    for group, known, is_new in zip(priced.groups, own, new, strict=True):
        powers.append(_powers(group.batches) if is_new else ())
        look_at(group.key, group.job, powers[-1] if is_new else group.batches, frozenset(group.batches))
        unbounded = [size for size in powers[-1] if size not in known.bounded]
        # Kept to the end: another group may push them out of what is remembered.
        others.append(_others_of(group.job) if unbounded else None)
        if others[-1] is not None:
            for key, job in (*others[-1].fewer, *others[-1].host, *others[-1].wider):
                look_at(key, job, unbounded)
    further = price_groups(
        [
            LikeJobs(job=known.job, key=key, batches=tuple(batches))
            for key, (known, batches) in missing.items()
        ]
    )
    beside = further.like(predictor)
    beside_novelty = predictor.correction.training_set.novelty(beside)
    together = predictor.correction.correct(
        JobTable.together([like, beside] if further.groups else [like]),
        np.concatenate([novelty, beside_novelty]),
    )
    count = len(novelty)
    corrected = _become_known(together.take(slice(count)), priced, like, own)
    _become_known(
        together.take(slice(count, None)), further, beside, [known for known, _ in missing.values()]
    )
    allowed_s = np.empty(count)
    for number, (group, known) in enumerate(zip(priced.groups, own, strict=True)):
        here = slice(starts[number], starts[number + 1])
        if not new[number]:
            allowed_s[here] = [known.allowed_s(batch) for batch in group.batches]
            continue
        if (other := others[number]) is not None:
            _bound(known, powers[number], other, predictor)
        allowed_s[here] = _between(known, group.batches, priced.table.analytical_s[here])
    return corrected, _no_slower_than_mixed(allowed_s, priced, like, predictor)


def _no_slower_than_mixed(
    allowed_s: Floats, priced: PricedJobs, like: JobTable, predictor: TrainedPredictor
) -> Floats:
    """Step times, those of models held in 16 bits throughout no longer than of the same in mixed precision.

    They do the same products, cast nothing and move no more bytes. Where such a model was measured, that
    has the word: mixed precision was not, or not the same way.
    """
    starts = priced.starts
    mixed = [
        (slice(start, end), replace(group, job=job, key=key))
        for group, start, end in zip(priced.groups, starts, starts[1:], strict=False)
        for key, job in _in_mixed_precision(group.job).items()
        if not _measured_in_16_bits(like.take(slice(start, start + 1)), predictor)
    ]
    if not mixed:
        return allowed_s
    beside = price_groups([group for _, group in mixed])
    their = beside.like(predictor)
    limits = _allowed_times(beside, their, predictor.correction.training_set.novelty(their), predictor)[1]
    for (here, _), limit in zip(mixed, np.split(limits, beside.starts[1:-1]), strict=True):
        allowed_s[here] = np.minimum(allowed_s[here], limit)
    return allowed_s


def _measured_in_16_bits(job: JobTable, predictor: TrainedPredictor) -> bool:
    """Whether a run like this job in every kind held the whole model in 16 bits."""
    index = predictor.measurements
    runs = (int(index.measurement_ids[row]) for row in index.runs.at(job, within=_MEASURED))
    return any((index.own.get(run) or corpus_store().get(run)).precision in _MIXED for run in runs)


def _become_known(
    corrected: Corrected, priced: PricedJobs, like: JobTable, known: Sequence[_Known]
) -> Corrected:
    """Keep what was found of priced jobs, and return it as it is on their own hardware."""
    if priced.reference is not None:
        corrected = transferred(corrected, like, priced.table)
    if not priced.groups:
        return corrected
    columns = (
        corrected.step_time_s.tolist(),
        priced.table.analytical_s.tolist(),
        like.analytical_s.tolist(),
        like.features[:, like.names.index(_FILL)].tolist(),
        corrected.novelty.max(axis=1, initial=0.0).tolist(),
    )
    rows = map(_Row._make, zip(*columns, strict=True))
    for group, its in zip(priced.groups, known, strict=True):
        found = zip(group.batches, rows)  # noqa: B905 -- as many rows as this group has
        its.rows.update(
            (batch, row) for batch, row in found if row.novelty <= _MEASURED or not powers_beside(batch)
        )
    return corrected


def _bound(known: _Known, powers: Sequence[float], others: _Others, predictor: TrainedPredictor) -> None:
    """Bound a job at some powers of two by what it takes on other numbers of devices."""
    powers = [size for size in powers if size not in known.bounded]
    if not powers:  # another group is the same job
        return
    rows = [known.rows[size] for size in powers]
    own_s, analytical_s, like_s, fill, _ = np.array(rows, dtype=np.float64).T
    least_s = np.array([known.allowed_s(size) for size in powers])
    # On the hardware that was measured; the job's own takes as many times as long.
    times = analytical_s / like_s
    for key, job in others.wider:
        least_s = np.minimum(least_s, _known(key, job, predictor).at(powers)[0] * times)
    fewer_s = _longest_of_fewer(others, powers, like_s, fill, predictor) * times
    host_s = _measured_host(others, powers, like_s, predictor) * times
    bounded_s = np.minimum(np.maximum(least_s, fewer_s), host_s)
    known.bounded.update(zip(powers, bounded_s.tolist(), strict=True))


def _between(known: _Known, batches: Sequence[float], analytical_s: Floats) -> Floats:
    """Step times of batches: of powers of two as bounded, of others what lies between, shape (batches,).

    Linear in the analytical time, so that it grows as that does.

    Args:
        known: The bounded job.
        batches: Micro batches.
        analytical_s: Of the job at them, shape (batches,).
    """
    beside = [powers_beside(batch) or (batch, batch) for batch in batches]
    low_s, high_s = np.array([[known.bounded[size] for size in pair] for pair in beside]).T
    low, high = np.array([[known.rows[size].analytical_s for size in pair] for pair in beside]).T
    apart = np.where(high > low, high - low, 1.0)
    share = np.where(high > low, (analytical_s - low) / apart, 0.0)
    between: Floats = low_s + (np.maximum(high_s, low_s) - low_s) * share.clip(0.0, 1.0)
    return between


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


@lru_cache(maxsize=65_536)
def powers_beside(batch: float) -> tuple[float, ...]:
    """The powers of two below and above a micro batch; none where it is one itself, or below one sample.

    >>> powers_beside(5.0), powers_beside(8.0), powers_beside(0.5)
    ((4.0, 8.0), (), ())
    """
    if batch <= 1.0 or math.log2(batch).is_integer():
        return ()
    below = 2.0 ** math.floor(math.log2(batch))
    return below, 2.0 * below


@lru_cache(maxsize=1024)
def _powers(batches: tuple[float, ...]) -> tuple[float, ...]:
    """The powers of two that batches lie at or between."""
    return tuple(sorted({size for batch in batches for size in powers_beside(batch) or (batch,)}))


def _half(batch: float) -> tuple[float, ...]:
    """Half a micro batch, where that is whole."""
    half = batch / 2.0
    return (half,) if half >= 1.0 and half == int(half) else ()


@lru_cache(maxsize=65_536)
def _halves(batch: float) -> tuple[float, ...]:
    """A micro batch, its half, a quarter ... as long as they are whole."""
    return (batch, *(size for half in _half(batch) for size in _halves(half)))


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


def _in_mixed_precision(job: Job) -> dict[Hashable, Job]:
    """The same in mixed precision, under autocast and as its stack holds weights; none unless in 16 bits.

    In both types of 16 bits where the device multiplies both at one rate. By their `group_key`.
    """
    policy, low = job.precision, job.precision.activation
    held = {getattr(policy, name) for name in _TYPES}
    if low not in _MIXED or held != {low} or policy.master is not None or policy.autocast:
        return {}
    found = {}
    for name in _MIXED.values() if one_rate_for_16_bits(job.cluster.device) else (_MIXED[low],):
        for mixed in (get_policy(name), policy_of_stack(name, job.stack.profile, job.layout.zero_stage)):
            beside = replace(job, precision=mixed)
            found[group_key(beside)] = beside
    return found


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


def transferred(corrected: Corrected, reference: JobTable, table: JobTable) -> Corrected:
    """The correction of the reference on another job: one factor, so that physics alone decides."""
    factor = corrected.step_time_s / reference.analytical_s
    return Corrected(
        compute_s=table.compute_s * factor,
        exposed_s=table.exposed_s * factor,
        step_time_s=table.analytical_s * factor,
        novelty=corrected.novelty,
    )
