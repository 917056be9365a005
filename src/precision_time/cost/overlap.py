r"""What of the gradient exchange the backward pass does not hide.

DistributedDataParallel fills buckets in the order in which gradients become ready and reduces them
one after the other: $start_i = \max(ready_i, end_{i-1})$. Unrolled,
$end = \sum_i c_i + \max_j (ready_j - \sum_{i<j} c_i)$, which needs no loop over buckets.

References: Li et al., PyTorch Distributed, PVLDB 13(12), 2020; torch/nn/parallel/distributed.py and
reducer.hpp (cap 25 MiB, first bucket 1 MiB where the cap is the default; a bucket closes once it
reaches its cap).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arrays import Floats, Ints, Number, row_by_row
from ..cache import Deriving, derived
from ..errors import ConfigError
from ..records import dataclass
from ..units import MEBI
from .collectives import Line, Lines, min_time_s
from .constants import constants

DEFAULT_BUCKET_BYTES = 25 * MEBI
FIRST_BUCKET_BYTES = 1 * MEBI
MAX_GROUPS = 64


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class GradientSchedule(Deriving):
    """Buckets of the gradient exchange in the order of the backward pass, for any kernel times.

    At most `MAX_GROUPS` groups of neighboring buckets; a group is ready when its last bucket is, so
    that grouping delays the exchange by at most one group's share of the backward pass. Equal only to
    itself, as a key of caches.
    """

    completed: Floats
    """Share of each backward kernel's executions that are done when the group is ready, (G, N)."""
    bucket_bytes: Floats
    """Mean size of a bucket of the group [B], (G,)."""
    num_buckets: Floats
    """Buckets of the group, (G,)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlap:
    """Seconds of a communication that runs alongside a computation; arrays over configurations."""

    link_s: Number
    """Busy time of the link."""
    exposed_s: Number
    """What the step is longer by."""
    slowdown_s: Number
    """By how much the computation is slower for sharing the device with the hidden part."""

    def __add__(self, other: Overlap) -> Overlap:
        """One after the other."""
        return Overlap(
            link_s=self.link_s + other.link_s,
            exposed_s=self.exposed_s + other.exposed_s,
            slowdown_s=self.slowdown_s + other.slowdown_s,
        )

    def __mul__(self, rounds: Number) -> Overlap:
        """The same communication that many times, as in every micro batch."""
        return Overlap(
            link_s=self.link_s * rounds,
            exposed_s=self.exposed_s * rounds,
            slowdown_s=self.slowdown_s * rounds,
        )


NO_COMMUNICATION = Overlap(link_s=0.0, exposed_s=0.0, slowdown_s=0.0)


def fully_exposed(seconds: Number) -> Overlap:
    """A communication that nothing hides."""
    return Overlap(link_s=seconds, exposed_s=seconds, slowdown_s=np.zeros_like(np.asarray(seconds)))


def partly_hidden(link_s: Number, exposed_s: Number) -> Overlap:
    """A communication whose hidden part slows the computation down (`contention` in communication.toml)."""
    contention = float(constants("communication")["contention"])
    return Overlap(link_s=link_s, exposed_s=exposed_s, slowdown_s=(link_s - exposed_s) * contention)


def gradient_schedule(
    param_elems: Floats,
    repeat: Floats,
    segment: Ints,
    *,
    bytes_per_elem: float,
    bucket_bytes: float = DEFAULT_BUCKET_BYTES,
    max_groups: int = MAX_GROUPS,
) -> GradientSchedule:
    """Buckets of a backward pass.

    Args:
        param_elems: Parameter elements whose gradient each backward kernel completes, per repeat, (N,).
        repeat: How often each kernel runs, (N,).
        segment: Kernels of one segment with the same repeat > 1 run as a block, that often, (N,).
        bytes_per_elem: Bytes of a gradient element on the wire.
        bucket_bytes: Cap of a bucket; at the default the first bucket holds 1 MiB.
        max_groups: Most groups of buckets to keep.

    Returns:
        The schedule; a model without parameters has no bucket.

    Raises:
        ConfigError: If the cap or the element size is not above 0.

    Assumes: one tensor per kernel; tensors are never split over buckets; every rank takes the same
    order (iteration 0, which has one bucket, is left out).
    """
    if bucket_bytes <= 0 or bytes_per_elem <= 0:
        raise ConfigError(
            f"bucket_bytes={bucket_bytes:g} and bytes_per_elem={bytes_per_elem:g} must be above 0. "
            "To fix: give a bucket of at least one byte."
        )
    cap = min(FIRST_BUCKET_BYTES, bucket_bytes) if bucket_bytes == DEFAULT_BUCKET_BYTES else bucket_bytes
    sizes: list[float] = []
    ends: list[tuple[int, int, int, int]] = []
    filled = 0.0
    last: tuple[int, int, int, int] | None = None
    for row, start, stop, done in _ready_order(param_elems, repeat, segment):
        filled += float(param_elems[row]) * bytes_per_elem
        last = (row, start, stop, done)
        if filled >= cap:
            sizes.append(filled)
            ends.append(last)
            filled, cap = 0.0, bucket_bytes
    if filled > 0 and last is not None:
        sizes.append(filled)
        ends.append(last)
    return _grouped(np.array(sizes), ends, repeat, max_groups)


def _ready_order(param_elems: Floats, repeat: Floats, segment: Ints) -> Iterator[tuple[int, int, int, int]]:
    """(kernel, first and end of its block, earlier rounds of the block) of every gradient, in order."""
    count = len(param_elems)
    start = 0
    while start < count:
        stop = start + 1
        if repeat[start] > 1:
            while stop < count and repeat[stop] == repeat[start] and segment[stop] == segment[start]:
                stop += 1
        with_params = [row for row in range(start, stop) if param_elems[row] > 0]
        for done in range(round(float(repeat[start]))):
            for row in with_params:
                yield row, start, stop, done
        start = stop


def _grouped(
    sizes: Floats, ends: list[tuple[int, int, int, int]], repeat: Floats, max_groups: int
) -> GradientSchedule:
    """Neighboring buckets joined until at most `max_groups` remain."""
    parts = [
        part for part in np.array_split(np.arange(len(sizes)), min(max_groups, len(sizes) or 1)) if part.size
    ]
    completed = np.zeros((len(parts), len(repeat)))
    for group, part in enumerate(parts):
        row, start, stop, done = ends[part[-1]]
        completed[group, :start] = 1.0
        completed[group, start:stop] = done / repeat[start:stop]
        completed[group, start : row + 1] = (done + 1) / repeat[start : row + 1]
    return GradientSchedule(
        completed=completed,
        bucket_bytes=np.array([sizes[part].mean() for part in parts]),
        num_buckets=np.array([float(part.size) for part in parts]),
    )


def ready_s(schedule: GradientSchedule, kernel_s: Floats) -> Floats:
    """When each group of buckets is ready, from the start of the backward pass.

    Args:
        schedule: G groups over N backward kernels.
        kernel_s: Seconds of the backward kernels, all repeats, (N,) or (C, N).

    Returns:
        Seconds, (G,) or (C, G).
    """
    ready: Floats = row_by_row(np.asarray(kernel_s, dtype=np.float64), schedule.completed.T)
    return ready


def group_s(schedule: GradientSchedule, lines: Lines, scale: Number = 1.0) -> Floats:
    """Link seconds of each group of buckets.

    Args:
        schedule: G groups.
        lines: Of the collective; scalars or arrays over C configurations.
        scale: Share of the gradients that this device holds (1 / (tensor x pipeline degree)): that
            many fewer buckets, and smaller ones where less than one is left.

    Returns:
        Seconds, (G,) or (C, G).
    """
    if any(np.ndim(x.startup_s) or np.ndim(x.s_per_byte) for x in lines):
        lines = tuple(
            Line(startup_s=np.asarray(x.startup_s)[..., None], s_per_byte=np.asarray(x.s_per_byte)[..., None])
            for x in lines
        )
    share = np.asarray(scale, dtype=np.float64)[..., None]
    count = np.maximum(schedule.num_buckets * share, np.minimum(schedule.num_buckets, 1.0))
    size = schedule.bucket_bytes * schedule.num_buckets * share / count
    return np.asarray(count * min_time_s(lines, size))


@derived
def _group_s(schedule: GradientSchedule, lines: Lines, scale: float) -> Floats:
    """The same once for all batches."""
    return group_s(schedule, lines, scale)


def exposed_s(ready: Floats, group: Floats, backward_s: Number) -> Number:
    """What the exchange lasts beyond the backward pass.

    Args:
        ready: When each group is ready [s], (..., G).
        group: How long each group is on the link [s], (..., G).
        backward_s: Length of the backward pass.

    Returns:
        Seconds, (...): at least max(0, sum(group) - backward_s), at most sum(group).

    Assumes: one communication stream, groups in order.
    Accuracy: exact for the recurrence start_i = max(ready_i, end_{i-1}).
    """
    before = group.cumsum(axis=-1) - group
    left = ready - before
    if left.shape[-1] == 0:
        return np.zeros(left.shape[:-1])
    end = group.sum(axis=-1) + left.max(axis=-1)
    return np.asarray(np.maximum(end - backward_s, 0.0), dtype=np.float64)


def overlapped(
    schedule: GradientSchedule,
    kernel_s: Floats,
    lines: Lines,
    *,
    scale: Number = 1.0,
) -> Overlap:
    """The gradient exchange against one backward pass (the last micro batch's under accumulation).

    Args:
        schedule: G groups over N backward kernels.
        kernel_s: Seconds of the backward kernels on this device, (N,) or (C, N).
        lines: Of the collective, scalars or arrays over C.
        scale: See `group_s`.

    Returns:
        Link, exposed and slowdown seconds, () or (C,).

    Accuracy: see docs/reference/accuracy.md.
    """
    kernel_s = np.ascontiguousarray(kernel_s)  # else sums depend on how many rows there are
    ready = ready_s(schedule, kernel_s)
    kept = isinstance(scale, float)
    group = _group_s(schedule, lines, float(scale)) if kept else group_s(schedule, lines, scale)
    link = np.zeros(ready.shape[:-1]) + group.sum(axis=-1)
    exposed = exposed_s(ready, group, np.sum(kernel_s, axis=-1))
    return partly_hidden(link, exposed)


def pipelined(communication_s: Number, compute_s: Number, num_units: Number) -> Overlap:
    r"""A communication cut into equal units, each one step ahead of its computation (FSDP prefetch).

    $exposed = \tfrac{T}{L} + (L-1)\max(0, \tfrac{T-C}{L})$: the first unit has nothing to hide behind.

    Args:
        communication_s: Link time T of all units.
        compute_s: Computation C that the units serve.
        num_units: Units L >= 1.

    Returns:
        Link, exposed and slowdown seconds.

    Assumes: equal units, prefetch of exactly one.

    Reference: Zhao et al., PyTorch FSDP, PVLDB 16(12), 2023, section 3.3.
    """
    units = np.maximum(num_units, 1.0)
    unit_s = communication_s / units
    exposed = unit_s + (units - 1) * np.maximum(unit_s - compute_s / units, 0.0)
    return partly_hidden(communication_s, exposed)
