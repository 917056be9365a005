"""By how much a job does not fit, and which changes would make it fit: each is checked by its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..cost.job import Job
from ..parallel.layout import Checkpointing
from ..units import GIBI
from .changes import (
    COMBINED,
    FULLY_SHARDED,
    SINGLE,
    Change,
    checkpoints,
    larger_device,
    memory_of_job,
    needed_bytes,
)

_NAMED_TERMS = 3
_MOST_OFFERS = 5
_MOST_TIMES_DEVICES = 4096


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
            found = _offer(
                f"{count} devices with zero=3{more}", replace(base, cluster=cluster, layout=layout)
            )
            if found.fits:
                return found
    return None
