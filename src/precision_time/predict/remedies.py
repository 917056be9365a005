"""By how much a job does not fit, and what to ask for instead: each offer was asked, fits and is priced."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from ..cost.job import Job, Jobs
from ..cost.memory import memory_of
from ..errors import PrecisionTimeError
from ..hardware.catalog import known_devices
from ..learn.artifact import TrainedPredictor
from ..learn.priced import predict_step_times
from ..parallel.degrees import divisors
from ..parallel.layout import Offload, Recompute
from ..parallel.shape import model_shape
from ..records import dataclass
from ..request.batch import says_no_layout
from ..request.layout import fields_of, needed_fields, option_words
from ..request.practice import axes_of, axes_said_of
from ..request.request import Request
from ..request.schema import GLOBAL_BATCHES, LAYOUT_OPTIONS
from ..units import GIBI, format_duration
from .method import method_seconds

_NAMED_TERMS = 3
_MOST_OFFERS = 6
_MOST_DOUBLINGS = 12
_MOST_SEARCHED = 5
"""Doublings at which a layout is searched for."""
_DEGREES = (2, 4, 8, 16, 32)
_LEAST_TOKENS = 256
"""Samples are not cut shorter than this."""
_OF_TRAINING = frozenset({"adapter", "seq_len"})
"""Fields that change what is trained, rather than how."""
_ADAPTERS = ("lora", "qlora")
_WITH_ADAPTERS = frozenset({"transformer-decoder", "moe"})
_EIGHT_BITS = "adamw8bit"
_ADAMS = frozenset({"adam", "adamw", "decoupled_adamw", ""})
_COVERAGE = 0.9
"""Of intervals that are not shown."""

Change = Mapping[str, Any]
"""Fields of a request that take other values."""

_Fit = tuple[Change, Job]
"""A change, and the job that it makes, which fits."""
_AS_FAST = 0.5
"""Least memory bandwidth of a device that is offered in the place of another: a processor has more memory."""


def memory_of_job(job: Job) -> dict[str, float]:
    """Named bytes on the fullest device."""
    terms = memory_of(Jobs.at(job))
    return {name: float(np.asarray(value).reshape(-1)[0]) for name, value in terms.items()}


def needed_bytes(job: Job) -> float:
    """Bytes on the fullest device."""
    return sum(memory_of_job(job).values())


def holds(job: Job, memory: Mapping[str, float]) -> bool:
    """Whether a device may hold what a job needs.

    Not counted is what the caching allocator cannot hand out (cost/data/memory.toml): expandable segments
    bring it down. A layout that is chosen must hold it too.
    """
    return sum(memory.values()) - memory.get("fragmentation", 0.0) <= job.cluster.device.usable_bytes


def tightness(job: Job, memory: Mapping[str, float]) -> str:
    """What to say of a job that a device holds if its allocator wastes nothing; empty where it holds all."""
    needed, capacity = sum(memory.values()), job.cluster.device.usable_bytes
    if needed <= capacity or not holds(job, memory):
        return ""
    return (
        f"Tight: needs {needed / GIBI:.1f} of {capacity / GIBI:.1f} GiB per device, "
        f"{memory['fragmentation'] / GIBI:.1f} of which the allocator is assumed to waste. It fits if that "
        "is avoided (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True)."
    )


def shortfall(job: Job) -> str:
    """By how much a job does not fit, and the largest terms; empty if it fits."""
    memory, capacity = memory_of_job(job), job.cluster.device.usable_bytes
    needed = sum(memory.values())
    if needed <= capacity:
        return ""
    largest = sorted(memory, key=lambda name: -memory[name])[:_NAMED_TERMS]
    listed = ", ".join(f"{name.replace('_', ' ')} {memory[name] / GIBI:.1f}" for name in largest)
    return (
        f"Does not fit: needs {needed / GIBI:.1f} GiB per device, {job.cluster.device.name} has "
        f"{capacity / GIBI:.1f} GiB to use, {(needed - capacity) / GIBI:.1f} too little. Largest: {listed}."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """A request that fits, and what it costs."""

    words: str
    """What to type besides the request, or in the place of what it says."""
    job: Job
    needed_bytes: float
    step_time_s: float

    @property
    def s_per_unit(self) -> float:
        """Time for a token or a sample."""
        units = self.job.layout.global_batch_size * self.job.workload.units_per_sample
        return self.step_time_s / units

    @property
    def device_s_per_unit(self) -> float:
        """Device time for a token or a sample: what offers of unlike work and devices have in common."""
        return self.s_per_unit * self.job.cluster.num_devices

    def __str__(self) -> str:
        capacity = self.job.cluster.device.usable_bytes
        return (
            f"{self.words} -> {self.needed_bytes / GIBI:.1f} of {capacity / GIBI:.1f} GiB, "
            f"{format_duration(self.step_time_s)} a step"
        )


def suggest_fit(request: Request, job: Job, predictor: TrainedPredictor) -> str:
    """What to ask for in the place of a request that does not fit.

    Every offer is a request that was resolved like any other, fits, and is priced. What is not named stays as
    it was, the samples per step too, which a default would change with the memory that becomes free. First
    comes how the same is trained on the same devices, then more or larger devices, and last what changes the
    training itself (adapters, shorter samples); of each the one that takes the least device time for a token
    or a sample first. Changes together are tried where no single one suffices. More devices that are slower
    than fewer are not offered.
    """
    single = _fitting(request, job, _single(request, job))
    here = [offer for offer in single if not _changes_training(offer)]
    here += _fitting(request, job, _best_layout(request, job))
    here = here or _fitting(request, job, _combined(request, job, training=False))
    elsewhere = _fitting(request, job, _other_devices(request, job, predictor.model_card["devices"]))
    other = [offer for offer in single if _changes_training(offer)]
    if not here and not other:
        other = _fitting(request, job, _combined(request, job, training=True))
    if not here and not elsewhere and not other:
        return (
            f"Not even {2**_MOST_DOUBLINGS:,} times the devices hold it. To fix: a smaller model or shorter "
            "samples."
        )
    same = _unlike(_priced(here, predictor))
    away = _fewest(_priced(elsewhere, predictor))
    more = _unlike([each for each in away if not _is_slower(each, [*same, *away])])
    offers = [same, more, _unlike(_priced(other, predictor))]
    listed = "; or ".join(str(offer) for group in offers for offer in group[:_MOST_OFFERS])
    return f"To fit: {listed}.{_at_least(request, job)}"


def _at_least(request: Request, job: Job) -> str:
    """What the batch still needs with all that is usually done for memory, where that is too much too."""
    usual = {"zero_stage": 3, "recompute": "full"}
    if request.batch_size is None or not says_no_layout(request):
        return ""
    _, found = _held(request, job, usual)
    if found is None or _fits(found):
        return ""
    return f" Fully sharded and recomputed, this batch needs {needed_bytes(found) / GIBI:.1f} GiB still."


def _changes_training(offer: _Fit) -> bool:
    change, _ = offer
    return not _OF_TRAINING.isdisjoint(change)


def _fewest(offers: list[Offer]) -> list[Offer]:
    """Of each device the offers with the fewest."""
    counts: dict[str, int] = {}
    for offer in offers:
        cluster = offer.job.cluster
        counts[cluster.device.name] = min(
            cluster.num_devices, counts.get(cluster.device.name, cluster.num_devices)
        )
    return [each for each in offers if each.job.cluster.num_devices == counts[each.job.cluster.device.name]]


def _is_slower(offer: Offer, others: list[Offer]) -> bool:
    """Whether it takes longer for its samples than another on no more of the same devices."""

    def beats(other: Offer) -> bool:
        here, there = offer.job.cluster, other.job.cluster
        alike = here.device.name == there.device.name and here.num_devices >= there.num_devices
        return alike and offer.s_per_unit > other.s_per_unit

    return any(map(beats, others))


def _unlike(offers: list[Offer]) -> list[Offer]:
    """Without those that are the same job in more words."""
    kept: dict[tuple[Any, ...], Offer] = {}
    for each in offers:
        cluster = each.job.cluster
        what = (
            each.job.layout,
            cluster.device.name,
            cluster.num_devices,
            each.needed_bytes,
            each.step_time_s,
        )
        if what not in kept or len(each.words) < len(kept[what].words):
            kept[what] = each
    return [*kept.values()]


def _priced(found: list[_Fit], predictor: TrainedPredictor) -> list[Offer]:
    """Offers, cheapest first."""
    if not found:
        return []
    times = predict_step_times([job for _, job in found], predictor, coverage=_COVERAGE)
    offers = [
        Offer(
            words=words_of(change),
            job=job,
            needed_bytes=needed_bytes(job),
            step_time_s=update_s + math.fsum(method_seconds(job, update_s, analytical_s).values()),
        )
        for (change, job), update_s, analytical_s in zip(
            found, times.step_time_s.tolist(), times.analytical_s.tolist(), strict=True
        )
    ]
    return sorted(offers, key=lambda offer: offer.device_s_per_unit)


def words_of(change: Change) -> str:
    """A change as the command line takes it."""
    options = {name: value for name, value in change.items() if name not in ("device", "gpus")}
    named = [f"{name} {change[key]}" for key, name in (("device", "-d"), ("gpus", "-g")) if key in change]
    return " ".join([*named, *([option_words(options)] if options else [])])


def asked(request: Request, change: Change, **known: Any) -> Job | None:
    """The job of a request with other values; None where that is refused; `known` as of `Request.resolve`."""
    try:
        return request.with_(**change).resolve(**known)
    except PrecisionTimeError:
        return None


def _fits(job: Job) -> bool:
    return needed_bytes(job) <= job.cluster.device.usable_bytes


def _held(request: Request, job: Job, change: Change) -> tuple[Change, Job | None]:
    """A change and its job, at the samples per step and device of the job that was asked.

    A batch that nobody stated grows with the memory that a change makes free: an offer would then be a job
    of more work, and seem to need more memory than a lesser change.
    """
    found = asked(request, change)
    if found is None or not {*GLOBAL_BATCHES, "batch_size"}.isdisjoint({*change, *request.given()}):
        return change, found
    samples = _samples(job) * found.cluster.num_devices / job.cluster.num_devices
    if _samples(found) == samples or samples != int(samples):
        return change, found
    held = {**change, "global_batch_size": int(samples)}
    return held, asked(request, held)


def _samples(job: Job) -> float:
    return job.layout.global_batch_size / job.workload.rows_per_sample


def _fitting(request: Request, asked_for: Job, changes: Iterator[Change | tuple[Change, ...]]) -> list[_Fit]:
    """Changes that fit and their jobs; of alternatives from mild to drastic, the first that does."""
    found = []
    for alternatives in changes:
        for change in alternatives if isinstance(alternatives, tuple) else (alternatives,):
            held, job = _held(request, asked_for, change)
            if job is not None and _fits(job):
                found.append((held, job))
                break
    return found


def _single(request: Request, job: Job) -> Iterator[Change | tuple[Change, ...]]:
    """Every single change, with its alternatives from mild to drastic."""
    layout, workload, here = job.layout, job.workload, job.cluster
    as_is = assumed_sharding(request, job)
    tokens = workload.graph.seq_len
    if tokens is not None and "image_size" not in request.model_fields_set:
        lengths = (tokens // 2**times for times in range(1, tokens.bit_length()))
        yield tuple({**as_is, "seq_len": length} for length in lengths if length >= _LEAST_TOKENS)
    yield tuple({**as_is, **change} for change in _smaller_batches(job))
    if model_shape(workload.graph).num_layers:
        if layout.recompute is Recompute.NONE:
            yield {**as_is, "recompute": "selective"}
        if layout.recompute is not Recompute.FULL:
            yield {**as_is, "recompute": "full"}
    if workload.optimizer in _ADAMS:
        yield {**as_is, "optimizer": _EIGHT_BITS}
    yield from ({**as_is, **change} for change in _adapters(request, job))
    if layout.data_parallel_engine == "ddp" and layout.data_ranks > 1:
        yield tuple({**as_is, "zero_stage": stage} for stage in range(layout.zero_stage + 1, 4))
    if layout.offload is Offload.NONE:
        stage = max(layout.zero_stage, 2) if layout.pp == 1 else max(layout.zero_stage, 1)
        yield {**as_is, "offload": "optimizer", "zero_stage": stage}
        yield {**as_is, "offload": "parameters", "zero_stage": 3}
    yield from _cuts(job, as_is, int(here.devices_per_node))


def assumed_sharding(request: Request, job: Job) -> Change:
    """Sharding that was assumed is said, so that a change of something else keeps it."""
    assumed = job.layout.zero_stage and request.zero_stage is None
    return {"zero_stage": job.layout.zero_stage} if assumed else {}


def _smaller_batches(job: Job) -> Iterator[Change]:
    """Micro batches that divide the present one, the samples per step kept."""
    layout, batch = job.layout, job.layout.micro_batch_size / job.workload.rows_per_sample
    if batch != int(batch):
        return
    for parts in divisors(int(batch))[1:]:
        yield {"batch_size": int(batch) // parts, "num_microbatches": layout.num_microbatches * parts}


def _adapters(request: Request, job: Job) -> Iterator[Change]:
    """Adapters instead of all weights: of a language model on one host, where people fine-tune."""
    trained = job.workload.graph.trainable_params / max(job.workload.graph.params, 1.0)
    if not isinstance(request.model, str) or job.cluster.num_nodes > 1 or trained < 1.0:
        return
    if job.workload.family in _WITH_ADAPTERS:
        yield from ({"adapter": kind} for kind in _ADAPTERS)


def _cuts(job: Job, as_is: Change, domain: int) -> Iterator[Change | tuple[Change, ...]]:
    """Tensor and pipeline degrees taken from the data axis, the samples per step kept.

    Where the stack has them: who offloads to the host trains with ZeRO or FSDP, which have none.
    """
    layout, axes = job.layout, _axes(job.stack.profile)
    if layout.data_parallel_engine != "ddp" or not model_shape(job.workload.graph).heads:
        return
    if layout.offload is not Offload.NONE:
        return

    def cut(name: str, degree: int) -> Change:
        """The option, with micro batches of one sample: a replica now has the samples of several."""
        whole = layout.global_batch_size / job.workload.rows_per_sample * degree / layout.dp
        batch = 1 if whole == int(whole) else whole
        return {
            **as_is,
            name: getattr(layout, name) * degree,
            "batch_size": batch,
            "num_microbatches": int(whole / batch),
        }

    degrees = [degree for degree in _DEGREES if layout.dp % degree == 0]
    if "tp" in axes:
        yield tuple(cut("tp", degree) for degree in degrees if layout.tp * degree <= domain)
    if "pp" in axes and layout.vpp == 1 and not layout.stage_layers:
        yield tuple({**cut("pp", degree), "zero_stage": min(layout.zero_stage, 1)} for degree in degrees)


def _axes(stack: str) -> tuple[str, ...]:
    """Axes that may be offered of a stack: those that it has, and all where nothing is known of it."""
    return ("tp", "pp") if axes_said_of(stack) is None else axes_of(stack)


def _best_layout(request: Request, job: Job) -> Iterator[Change]:
    """The layout that would be chosen if none were stated, with the samples per step as they are."""
    of_layout = {*LAYOUT_OPTIONS, *GLOBAL_BATCHES, "batch_size"}
    given = {name: value for name, value in request.given().items() if name not in of_layout}
    whole = job.layout.global_batch_size / job.workload.rows_per_sample
    try:
        chosen = Request.of({**given, "global_batch_size": whole}).resolve()
    except PrecisionTimeError:
        return
    if not chosen.layout_chosen:
        return
    said = needed_fields(chosen.layout, chosen.workload)
    usual = {name: Request.model_fields[name].default for name in request.given() if name in LAYOUT_OPTIONS}
    back = {name: usual[name] for name in usual if name not in said and usual[name] is not None}
    yield {**{name: value for name, value in back.items() if value != getattr(request, name)}, **said}


def _combined(request: Request, job: Job, *, training: bool) -> Iterator[Change]:
    """Changes added one after the other until the job fits, then without those that were not needed."""
    layout = job.layout
    steps: list[Change] = [{"recompute": "full"}]
    samples = layout.micro_batch_size / job.workload.rows_per_sample
    if samples > 1 and samples == int(samples):
        parts = int(samples)
        steps.insert(0, {"batch_size": 1, "num_microbatches": layout.num_microbatches * parts})
    if layout.data_ranks > 1 and layout.data_parallel_engine == "ddp":
        steps.append({"zero_stage": 3})
    if job.workload.optimizer in _ADAMS:
        steps.append({"optimizer": _EIGHT_BITS})
    steps.append({"offload": "parameters", "zero_stage": 3})
    if training:
        tokens = job.workload.graph.seq_len or 0
        steps += _adapters(request, job)
        steps += [{"seq_len": tokens // parts} for parts in (2, 4, 8) if tokens // parts >= _LEAST_TOKENS]
    used: list[Change] = []
    least = needed_bytes(job)
    for step in steps:
        _, tried = _held(request, job, _together(used, step))
        if tried is None or needed_bytes(tried) >= least:
            continue
        used.append(step)
        least = needed_bytes(tried)
        if _fits(tried):
            break
    for step in used[:-1]:
        fewer = [other for other in used if other is not step]
        _, tried = _held(request, job, _together(fewer))
        if tried is not None and _fits(tried):
            used = fewer
    yield _together(used)


def _together(changes: list[Change], last: Change | None = None) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for change in (*changes, *((last,) if last else ())):
        merged |= change
    return merged


def _other_devices(
    request: Request, job: Job, measured: Collection[str]
) -> Iterator[Change | tuple[Change, ...]]:
    """The fewest devices, doubling, that hold the job fully sharded, and the least device that holds it."""
    counts = [job.cluster.num_devices * 2**times for times in range(1, _MOST_DOUBLINGS + 1)]
    yield tuple(
        {
            "gpus": count,
            **(
                {"nodes": math.ceil(count * request.nodes / job.cluster.num_devices)} if request.nodes else {}
            ),
            "zero_stage": 3,
            **more,
        }
        for count in counts
        for more in ({}, {"recompute": "full"})
    )
    if says_no_layout(request):
        yield tuple({"gpus": count} for count in counts[:_MOST_SEARCHED])
    here, needed = job.cluster.device, needed_bytes(job)
    as_fast = [
        device
        for device in known_devices()
        if device.vendor == here.vendor
        and device.usable_bytes > here.usable_bytes
        and device.release_year >= here.release_year
        and device.memory_bandwidth_bytes_per_s >= _AS_FAST * here.memory_bandwidth_bytes_per_s
    ]
    as_fast.sort(
        key=lambda device: (
            device.name not in measured,
            device.usable_bytes,
            device.release_year,
            device.name,
        )
    )
    larger = [device for device in as_fast if device.usable_bytes >= needed]
    as_is = assumed_sharding(request, job)
    yield tuple({"device": device.name, **as_is} for device in larger[:3])
    if says_no_layout(request):  # the same chip with more memory, spread as it is there
        alike = [device for device in as_fast if device.arch == here.arch]
        linked = here.link_bandwidth_bytes_per_s > 0.0
        alike.sort(key=lambda device: (device.link_bandwidth_bytes_per_s > 0.0) is not linked)
        yield tuple({"device": device.name} for device in alike[:3])


def at_layout(request: Request, job: Job) -> Request:
    """A request for a layout that a search found: what is said of it stands in the request."""
    samples = job.layout.micro_batch_size / job.workload.rows_per_sample
    return request.with_(**fields_of(job.layout), dp_replicate=None, batch_size=samples)
