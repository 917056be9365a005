"""By how much a job does not fit, and which changes would make it fit: each is checked by its memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..cost.job import Job, group_of_jobs
from ..cost.memory import memory_of
from ..cost.stacks import policy_under
from ..errors import LayoutError
from ..hardware.catalog import known_devices
from ..parallel.layout import Checkpointing, Layout, Offload
from ..parallel.shape import model_shape
from ..parallel.validation import check_model_layout
from ..precision.policy import DType
from ..units import GIBI

FULLY_SHARDED = 3
_NAMED_TERMS = 3
_MOST_OFFERS = 5
_MOST_TIMES_DEVICES = 4096
_DEGREES = (2, 4, 8, 16, 32, 64)

Change = tuple[Callable[[Job], str], Callable[[Job], Job | None]]
"""What a changed job is called, and a job changed, or None where that cannot be or changes nothing."""


def memory_of_job(job: Job) -> dict[str, float]:
    """Named bytes on the fullest device."""
    terms = memory_of(group_of_jobs([job]))
    return {name: float(np.asarray(value).reshape(-1)[0]) for name, value in terms.items()}


def needed_bytes(job: Job) -> float:
    """Bytes on the fullest device."""
    return sum(memory_of_job(job).values())


def _with_layout(job: Job, layout: Layout) -> Job | None:
    """The job under another layout; None where the layout is the same or cannot be."""
    if layout == job.layout:
        return None
    try:
        check_model_layout(layout, model_shape(job.workload.graph), num_devices=job.cluster.num_devices)
    except LayoutError:
        return None
    return _laid_out(job, layout)


def _laid_out(job: Job, layout: Layout, **changes: Any) -> Job:
    """The job under another layout, its weights as the code holds them there."""
    precision = policy_under(job.precision, job.stack.profile, job.layout.zero_stage, layout.zero_stage)
    return replace(job, layout=layout, precision=precision, **changes)


def _smaller_batch(job: Job) -> Job | None:
    """The largest fraction of the micro batch that fits, accumulated; a single sample where none does."""
    layout, batch = job.layout, job.layout.micro_batch_size
    if batch <= 1 or batch != int(batch):
        return None
    least: Job | None = None
    for parts in range(2, int(batch) + 1):
        if int(batch) % (parts * job.workload.rows_per_sample):
            continue
        smaller = replace(
            layout, micro_batch_size=batch / parts, num_micro_batches=layout.num_micro_batches * parts
        )
        changed = _with_layout(job, smaller)
        if changed is None:
            continue
        least = changed
        if needed_bytes(changed) <= job.cluster.device.memory_bytes:
            break
    return least


def _batch_words(job: Job) -> str:
    layout, rows = job.layout, job.workload.rows_per_sample
    return f"micro batch {layout.micro_batch_size / rows:g} with {layout.num_micro_batches} accumulated"


def checkpoints(mode: Checkpointing) -> Callable[[Job], Job | None]:
    """The change to a mode of activation checkpointing."""

    def change(job: Job) -> Job | None:
        if job.layout.checkpointing is Checkpointing.FULL and mode is Checkpointing.SELECTIVE:
            return None
        return _with_layout(job, replace(job.layout, checkpointing=mode, checkpointed_share=1.0))

    return change


def _shards(stage: int) -> Callable[[Job], Job | None]:
    def change(job: Job) -> Job | None:
        layout = job.layout
        if layout.data_ranks == 1 or layout.zero_stage >= stage or layout.data_parallel_engine != "ddp":
            return None
        return _with_layout(job, replace(layout, zero_stage=stage))

    return change


def _narrow_states(job: Job) -> Job | None:
    if job.precision.optimizer_state.num_bytes <= 1.0:
        return None
    return replace(job, precision=replace(job.precision, optimizer_state=DType.INT8))


def _splits_tensors(job: Job) -> Job | None:
    """The smallest tensor degree within a node that fits, taken from the data axis; else the largest."""
    layout, domain = job.layout, job.cluster.devices_per_node
    if layout.data_parallel_engine != "ddp" and layout.dp > 1:
        return None
    return _first_fitting(
        job,
        (
            replace(
                layout,
                tp=layout.tp * degree,
                dp=layout.dp // degree,
                num_micro_batches=layout.num_micro_batches * degree,
                sequence_parallel=True,
            )
            for degree in _DEGREES
            if layout.dp % degree == 0 and layout.tp * degree <= domain
        ),
    )


def _splits_layers(job: Job) -> Job | None:
    """The fewest pipeline stages that fit, taken from the data axis, with the samples per step kept."""
    layout = job.layout
    return _first_fitting(
        job,
        (
            replace(
                layout,
                pp=layout.pp * degree,
                dp=layout.dp // degree,
                num_micro_batches=layout.num_micro_batches * degree,
                stage_layers=(),
            )
            for degree in _DEGREES
            if layout.dp % degree == 0 and layout.virtual_pp == 1
        ),
    )


def _first_fitting(job: Job, layouts: Iterator[Layout]) -> Job | None:
    last: Job | None = None
    for layout in layouts:
        changed = _with_layout(job, layout)
        if changed is None:
            continue
        last = changed
        if needed_bytes(changed) <= job.cluster.device.memory_bytes:
            break
    return last


def _offloads(job: Job) -> Job | None:
    """States and master weights in host memory; gradients go there as they come (ZeRO-Offload)."""
    layout = job.layout
    if layout.offload is not Offload.NONE:
        return None
    stage = max(layout.zero_stage, 2) if layout.pp == 1 else layout.zero_stage
    return _with_layout(job, replace(layout, offload=Offload.OPTIMIZER, zero_stage=stage))


_AS_FAST = 0.5
"""Least memory bandwidth of a device that is offered in the place of another: a processor has more memory."""


def larger_device(job: Job) -> Job | None:
    """The catalogue's device of the same vendor with the least memory that suffices, and that is fast."""
    here, needed = job.cluster.device, needed_bytes(job)
    enough = [
        device
        for device in known_devices()
        if device.vendor == here.vendor
        and device.memory_bytes >= needed
        and device.release_year >= here.release_year
        and device.memory_bandwidth_bytes_per_s >= _AS_FAST * here.memory_bandwidth_bytes_per_s
    ]
    if not enough:
        return None
    best = min(enough, key=lambda device: (device.memory_bytes, device.release_year, device.name))
    return replace(job, cluster=replace(job.cluster, device=best, reference=None))


SINGLE: tuple[Change, ...] = (
    (_batch_words, _smaller_batch),
    (lambda _: "selective checkpointing", checkpoints(Checkpointing.SELECTIVE)),
    (lambda _: "zero=1 (optimizer states sharded)", _shards(1)),
    (lambda _: "zero=2 (and gradients)", _shards(2)),
    (lambda _: "zero=3 (FSDP: and parameters)", _shards(3)),
    (lambda _: "full checkpointing", checkpoints(Checkpointing.FULL)),
    (lambda _: "optimizer states in 8 bits", _narrow_states),
    (lambda job: f"tp={job.layout.tp}", _splits_tensors),
    (lambda job: f"pp={job.layout.pp}", _splits_layers),
    (lambda _: "optimizer offloaded to the host", _offloads),
)
"""Mildest first: what costs little time before what costs much."""
COMBINED: tuple[Change, ...] = (
    (_batch_words, _smaller_batch),
    (lambda _: "full checkpointing", checkpoints(Checkpointing.FULL)),
    (lambda _: f"zero={FULLY_SHARDED}", _shards(FULLY_SHARDED)),
    (lambda job: f"tp={job.layout.tp}", _splits_tensors),
    (lambda job: f"pp={job.layout.pp}", _splits_layers),
    (lambda _: "optimizer offloaded to the host", _offloads),
)
"""In the order in which they are added up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Offer:
    """A change in words and what the job then needs."""

    words: str
    job: Job
    needed_bytes: float

    @property
    def fits(self) -> bool:
        """Whether the device holds it."""
        return self.needed_bytes <= self.job.cluster.device.memory_bytes

    def __str__(self) -> str:
        capacity = self.job.cluster.device.memory_bytes
        return f"{self.words} -> {self.needed_bytes / GIBI:.1f} of {capacity / GIBI:.1f} GiB"


def suggest_fit(job: Job) -> tuple[str, ...]:
    """What to say of a job that does not fit; nothing if it fits.

    Args:
        job: Any job.

    Returns:
        One sentence with the shortfall and the largest terms, and one with changes that make it fit. Every
        change was tried: the bytes after the arrow are what the job then needs on its fullest device.

    Changes keep the samples per step, but for more devices, which bring their own. Single ones come first,
    mildest first; where none suffices they are added up.
    """
    memory = memory_of_job(job)
    needed, capacity = sum(memory.values()), job.cluster.device.memory_bytes
    if needed <= capacity:
        return ()
    return _shortfall(job, memory, needed), _remedy(job)


def _offer(words: str, job: Job) -> _Offer:
    return _Offer(words=words, job=job, needed_bytes=needed_bytes(job))


def _shortfall(job: Job, memory: Mapping[str, float], needed: float) -> str:
    capacity = job.cluster.device.memory_bytes
    largest = sorted(memory, key=lambda name: -memory[name])[:_NAMED_TERMS]
    listed = ", ".join(f"{name.replace('_', ' ')} {memory[name] / GIBI:.1f}" for name in largest)
    return (
        f"Does not fit: needs {needed / GIBI:.1f} GiB per device, {job.cluster.device.name} has "
        f"{capacity / GIBI:.1f} GiB, {(needed - capacity) / GIBI:.1f} too little. Largest: {listed}."
    )


def _remedy(job: Job) -> str:
    """Single changes of the same devices that suffice; else all of them together, or more devices."""
    offers = [offer for offer in _offers(job) if offer.fits][:_MOST_OFFERS]
    if not offers:
        tried = (_combined(job), _more_devices(job))
        offers = [offer for offer in tried if offer is not None and offer.fits]
    moved = larger_device(job)
    if moved is not None and len(offers) < _MOST_OFFERS:
        device = _offer(f"{moved.cluster.device.name} instead", moved)
        offers += [device] if device.fits else []
    if offers:
        return "To fit: " + "; or ".join(str(offer) for offer in offers) + "."
    return (
        f"Not even {_MOST_TIMES_DEVICES} times the devices hold it. "
        "To fit: a smaller model or shorter samples."
    )


def _offers(job: Job) -> Iterator[_Offer]:
    """Every single change, mildest first: what costs little time before what costs much."""
    for words, change in SINGLE:
        changed = change(job)
        if changed is not None:
            yield _offer(words(changed), changed)


def _combined(job: Job) -> _Offer:
    """Changes added one after the other until the job fits, then without those that were not needed."""
    used: list[Change] = []
    here = _offer("", job)
    for change in COMBINED:
        if here.fits:
            break
        tried = _applied(job, [*used, change])
        if tried.needed_bytes < here.needed_bytes:
            used, here = [*used, change], tried
    for change in used[:-1]:
        fewer = [other for other in used if other is not change]
        tried = _applied(job, fewer)
        if here.fits and tried.fits:
            used, here = fewer, tried
    return here


def _applied(job: Job, changes: Sequence[Change]) -> _Offer:
    """The job after those of the changes that can be."""
    said = []
    for words, change in changes:
        changed = change(job)
        if changed is not None:
            said.append(words(changed))
            job = changed
    return _offer(", ".join(said), job)


def _more_devices(job: Job) -> _Offer | None:
    """The fewest devices, doubling, on which the job fits fully sharded, recomputing if it must."""
    recomputing = checkpoints(Checkpointing.FULL)(job)
    times = 1
    while times < _MOST_TIMES_DEVICES:
        times *= 2
        for base, more in ((job, ""), (recomputing, ", full checkpointing")):
            if base is None:
                continue
            count = base.cluster.num_devices * times
            cluster = replace(
                base.cluster, num_devices=count, num_nodes=base.cluster.num_nodes * times, reference=None
            )
            layout = replace(base.layout, dp=base.layout.dp * times, zero_stage=FULLY_SHARDED)
            found = _offer(f"{count} devices with zero=3{more}", _laid_out(base, layout, cluster=cluster))
            if found.fits:
                return found
    return None
