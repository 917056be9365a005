"""The layouts of a job that fit, and those that cost least: by arrays, as the cost model has it.

Candidates come from outside (`parallel/space.py`). `fitting` keeps each micro batch with the least
recomputation that fits; `usual_layout` finds the layout of a job that does not say one among the usual ones.
`planning/layouts` searches all of them and ranks them by learned times.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from operator import attrgetter
from typing import Any

import numpy as np

from ..arrays import Floats
from ..cache import memo
from ..parallel.layout import EQUAL_WITHIN, Layout, Offload, PipelineSchedule, Recompute, simplicity
from ..parallel.schedules.registry import searched_schedules
from ..parallel.shape import ModelShape, model_shape
from ..parallel.space import Fixed, Frame, Space, powers_of_two
from ..precision.policy import PrecisionPolicy
from ..records import dataclass
from ..workload.workload import Workload
from .job import Job, Jobs, TimingScope, group_key
from .memory import memory_of, needed_bytes
from .stacks import get_stack_profile, policy_under
from .step import price

CUT_UP = ("tp", "pp")
"""Axes of stacks that are written to cut models up."""
_ROUNDING = 1e-9
_SMALL_SHARE = 0.25
"""Where selective recomputation of all layers fits, full recomputation of some is tried up to this share of
them: of 330 pairs (Llama 3 8B and 70B, GPT-3 6.7B on H100 and A100) 42 were predicted faster, all below."""
_LONG_TOKENS, _TOKENS_PER_RANK = 8192, 4096
"""Samples as long are cut over context ranks, and what each of them keeps at least: of the measured runs on
16 or more devices that cut the model up, 137 of 246 do so at 8,192 tokens (6 sources of 14), 4 of 188 at
4,096."""
_MOST_STAGES, _MOST_CONTEXT_RANKS, _MOST_EXPERT_RANKS = 32, 16, 64
_CHUNKS = (2, 4, 8)
_REFINED = 2
"""The fastest pipelines, which are priced under the other schedules too."""
_PLAIN: Fixed = {"dp_shard": (0,), "reshard_after_forward": (True,)}
_HELD = ("tp", "pp", "cp", "ep", "etp", "schedule", "vpp", "sequence_parallel")
_TOKENS_PER_STEP = 2**22
"""Of a step when no batch is given: what models of some ten billion parameters were trained with
(Llama 3: 4M tokens at first, arXiv 2407.21783, section 3.4.1; GPT-3: 3.2M, arXiv 2005.14165, table 2.1)."""
_MOST_DEVICES_PER_SAMPLE = 8
"""Of large clusters, which take more tokens (Llama 3 405B: 16M on 16,384 devices, table 4)."""
_SAMPLES_PER_DEVICE = 32
"""The same for models without sequences."""
_ON_HOST = ("parameters", "expert_parameters", "gradients", "master_weights", "optimizer_states")
"""Terms of memory that offloading moves to the host."""
_but_batch = attrgetter(
    *(item.name for item in fields(Layout) if item.name not in ("micro_batch_size", "num_microbatches"))
)


def space_of(job: Job, batch: int, **options: Any) -> Space:
    """The candidates of a job whose steps take `batch` rows over all devices; options as of `Space`."""
    return Space(
        shape=model_shape(job.workload.graph),
        num_devices=job.training_devices,
        devices_per_node=int(job.cluster.devices_per_node),
        batch=batch,
        rows_per_sample=job.workload.rows_per_sample,
        **options,
    )


def under(job: Job, layout: Layout) -> Job:
    """The job under another layout, its weights held as the code of its stack does under that ZeRO stage."""
    policy = policy_under(job.precision, job.stack.profile, job.layout.weights_stage, layout.weights_stage)
    return replace(job, layout=layout, precision=policy)


def group_under(job: Job, layout: Layout, batches: Sequence[tuple[float, int]] = ()) -> Jobs:
    """The job under a layout, with several micro batches and numbers of them where they are given."""
    sizes, counts = zip(*batches, strict=True) if batches else ((), ())
    return Jobs.at(under(job, layout), sizes, counts)


def groups_under(job: Job, layouts: Sequence[Layout]) -> Iterator[tuple[list[int], Jobs]]:
    """The job under many layouts: those that only cut up the batch otherwise are a group.

    Groups that run the same kernels follow each other, so that what is kept of them serves all.

    Yields:
        Places of the layouts of a group, and the group.
    """
    found: dict[Hashable, list[int]] = defaultdict(list)
    for place, layout in enumerate(layouts):
        found[_but_batch(layout)].append(place)
    for places in sorted(found.values(), key=lambda places: kernels_key(layouts[places[0]])):
        batches = [(layouts[place].micro_batch_size, layouts[place].num_microbatches) for place in places]
        yield places, group_under(job, layouts[places[0]], batches)


kernels_key = attrgetter("tp", "pp", "cp", "ep", "tensor_degree_of_experts", "recompute", "micro_batch_size")
"""What decides which kernels a device runs, for how many samples."""


def host_bytes(job: Job, layout: Layout) -> float:
    """Bytes per device that a layout keeps in host memory: what it takes off the device."""
    held = memory_of(group_under(job, replace(layout, offload=Offload.NONE)))
    left = memory_of(group_under(job, layout))
    return sum(float(np.max(held[name]) - np.max(left[name])) for name in _ON_HOST)


@dataclass(frozen=True, kw_only=True, slots=True)
class Nearest:
    """The layout that needs the least memory, and how much."""

    layout: Layout
    needed_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """What is left of frames, and what was left out by which rule."""

    layouts: tuple[Layout, ...] = ()
    too_large: int = 0
    """Layouts that do not fit."""
    recomputing: int = 0
    """Layouts that recompute although the same one with less recomputation fits."""
    nearest: Nearest | None = None


def merged(parts: Sequence[Pruned]) -> Pruned:
    """All parts as one, in their order."""
    found = [part.nearest for part in parts if part.nearest is not None]
    return Pruned(
        layouts=tuple(layout for part in parts for layout in part.layouts),
        too_large=sum(part.too_large for part in parts),
        recomputing=sum(part.recomputing for part in parts),
        nearest=min(found, key=lambda nearest: nearest.needed_bytes, default=None),
    )


def fitting(job: Job, frames: Sequence[Frame]) -> list[Pruned]:
    """The layouts of each frame that fit, each micro batch with the least recomputation that does.

    Args:
        job: What is sought a layout for.
        frames: Candidates; memory grows with their micro batch and shrinks with their recomputation.
    """
    capacity = job.cluster.device.usable_bytes
    needed = _needed_bytes(job, frames, [frame.recomputations for frame in frames])
    least = [_least_modes((each > capacity).tolist()) for each in needed]
    cut = [row for row, frame in enumerate(frames) if frame.layers > 1 and least[row][0] < len(needed[row])]
    some = [frames[row] for row in cut]
    of_layers = _needed_bytes(job, some, [_by_layer(frame.layers) for frame in some])
    by_layer = dict(zip(cut, of_layers, strict=True))
    return [
        _pruned(frame, needed[row], least[row], by_layer.get(row), capacity)
        for row, frame in enumerate(frames)
    ]


def _needed_bytes(
    job: Job, frames: Sequence[Frame], modes: Sequence[Sequence[tuple[Recompute, float]]]
) -> list[Floats]:
    """Bytes by mode and batch of each frame: one call for all that run in one precision.

    Args:
        job: What is sought a layout for.
        frames: Candidates.
        modes: What each of them recomputes, and of which share of the layers.
    """
    found: list[Floats] = [np.zeros((0, 0))] * len(frames)
    for places in _by_precision(job, frames):
        layouts: list[Layout] = []
        batches: list[tuple[float, int]] = []
        of: list[int] = []
        ends: list[int] = []
        for place in places:
            frame = frames[place]
            for mode, share in modes[place]:
                of += [len(layouts)] * len(frame.batches)
                layouts.append(frame.layout(frame.batches[0], mode, share))
                batches += frame.batches
            ends.append(len(batches))
        needed = needed_bytes(group_under(job, layouts[0], batches), layouts, np.array(of))
        for place, part in zip(places, np.split(needed, ends[:-1]), strict=True):
            found[place] = part.reshape(len(modes[place]), -1)
    return found


def _by_precision(job: Job, frames: Sequence[Frame]) -> list[list[int]]:
    """Places of the frames that run in one precision."""
    precision: dict[Hashable, PrecisionPolicy] = {}
    alike: dict[PrecisionPolicy, list[int]] = defaultdict(list)
    for place, frame in enumerate(frames):
        sharding = frame.settings.get("zero_stage"), frame.settings.get("offload")
        if sharding not in precision:
            precision[sharding] = under(job, frame.layout(frame.batches[0], Recompute.NONE)).precision
        alike[precision[sharding]].append(place)
    return [*alike.values()]


def _by_layer(layers: int) -> list[tuple[Recompute, float]]:
    """One layer of a chunk recomputed, and a small share of them."""
    some = max(int(layers * _SMALL_SHARE), 1)
    return [(Recompute.FULL, count / layers) for count in (1, some)]


def _least_modes(too_large: list[list[bool]]) -> list[int]:
    """The place of the least recomputation that fits, of each batch; larger batches need no less of it.

    Args:
        too_large: By mode and batch.

    Returns:
        The number of modes where none fits.
    """
    found: list[int] = []
    least = 0
    for place in range(len(too_large[0])):
        while least < len(too_large) and too_large[least][place]:
            least += 1
        found.append(least)
    return found


def _pruned(
    frame: Frame, needed: Floats, least: Sequence[int], by_layer: Floats | None, capacity_bytes: float
) -> Pruned:
    """What is left of one frame.

    Args:
        frame: Its candidates.
        needed: Bytes by mode and batch.
        least: The least recomputation that fits, by batch.
        by_layer: Bytes under `_by_layer` and by batch, where layers are recomputed one by one.
        capacity_bytes: What a device has.
    """
    modes = frame.recompute
    smallest = frame.layout(frame.batches[0], modes[-1])
    nearest = Nearest(layout=smallest, needed_bytes=float(needed[-1, 0]))
    if nearest.needed_bytes > capacity_bytes:
        return Pruned(too_large=len(frame), nearest=nearest)
    found: list[Layout] = []
    recomputing, short = 0, True
    for place, (batch, start) in enumerate(zip(frame.batches, least, strict=True)):
        if start == len(modes):
            break
        mode = modes[start]
        fewest = None
        full = mode is Recompute.FULL
        if by_layer is not None and (full or (short and mode is not Recompute.NONE)):
            most_bytes = needed[-1, place] if full else by_layer[1, place]
            most = frame.layers if full else int(frame.layers * _SMALL_SHARE)
            fewest = _fewest_layers(most, float(by_layer[0, place]), float(most_bytes), capacity_bytes)
        short = short and mode is not Recompute.NONE
        kept = [] if fewest and full else [frame.layout(batch, mode)]
        kept += [frame.layout(batch, modes[-1], fewest / frame.layers)] if fewest else []
        found += kept
        recomputing += len(modes) - start - len(kept)
    too_large = len(frame) - len(found) - recomputing
    return Pruned(layouts=tuple(found), too_large=too_large, recomputing=recomputing, nearest=nearest)


def _fewest_layers(most: int, one_bytes: float, most_bytes: float, capacity_bytes: float) -> int | None:
    """As few layers of a chunk recomputed as fit; None where that cannot be the fastest.

    What a stage needs falls by the same amount with every layer, and the fullest of several stages is
    convex in their number: between one layer and all of them the need lies at or below the chord.

    Args:
        most: Layers that may be.
        one_bytes: Needed where one is.
        most_bytes: Where all of these are.
        capacity_bytes: What a device has.
    """
    if most < 1 or most_bytes > capacity_bytes:
        return None
    more = 0.0
    if one_bytes > capacity_bytes:
        more = (one_bytes - capacity_bytes) / (one_bytes - most_bytes) * (most - 1)
    return min(1 + math.ceil(more - _ROUNDING), most)


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The layout that costs least, and how many fitted."""

    layout: Layout
    fitting: int


def usual_batch(workload: Workload, gpus: int, *, tokens: float = _TOKENS_PER_STEP) -> int:
    """Samples per step where nothing says them: a usual number that the devices divide.

    Args:
        workload: What is trained.
        gpus: Devices in all.
        tokens: Of a step.
    """
    length = workload.graph.seq_len
    if length is None:
        return _SAMPLES_PER_DEVICE * gpus
    usual = max(tokens / length, gpus / _MOST_DEVICES_PER_SAMPLE, 1.0)
    # A multiple of the devices, or a divisor of them: so that the replicas share it evenly.
    shares = next(share for share in range(max(int(gpus / usual), 1), 0, -1) if gpus % share == 0)
    return gpus // shares if shares > 1 else math.ceil(usual / gpus) * gpus


def usual_layout(
    job: Job, batch: float, fixed: Fixed, *, degrees: bool, axes: Sequence[str] = CUT_UP
) -> Choice | None:
    """The fastest usual layout that fits, by the cost model; the simplest of those that are equal.

    As people run it: a replica on every device as long as that fits, with recomputation if need be; then its
    states sharded; then cut up as the stack can. Suites that are written to cut models up do so at once, and
    whoever has several nodes, where the fastest layout errs less on measured runs.

    Args:
        job: With plain data parallelism, or with the layout of which some fields are fixed.
        batch: Rows per step.
        fixed: Fields of the layout that the request states.
        degrees: Whether tensor, pipeline, context and expert degrees are open too.
        axes: Those that the stack has. Where nothing fits without others, they are tried as well.

    Returns:
        None where nothing fits, or the batch is not of whole samples.
    """
    if batch != int(batch):
        return None
    held = tuple(sorted(fixed.items()))
    return _usual_layout(_Question(job), int(batch), held, degrees, tuple(axes))


class _Question:
    """A job as a key, equal to others of one `group_key` and layout, and kept with them."""

    __slots__ = ("job", "key")

    def __init__(self, job: Job) -> None:
        self.job, self.key = job, (group_key(job), job.layout)

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Question) and other.key == self.key


@memo(512)
def _usual_layout(
    question: _Question, batch: int, fixed: tuple[tuple[str, Any], ...], degrees: bool, axes: tuple[str, ...]
) -> Choice | None:
    """A search takes a tenth of a second, so that what was chosen for a job is remembered."""
    job, held = replace(question.job, scope=TimingScope.FULL_STEP), dict(fixed)
    found = _Cheapest(job=job, batch=batch, seconds={}, fitting=0)
    for tier in _tiers(job, held, degrees, axes):
        for usual in tier:
            found = found.with_layouts(usual)
        if found.seconds:
            break
    if degrees:
        for layout in [each for each in found.best_first() if each.pp > 1][:_REFINED]:
            found = found.with_layouts(_with_less_bubble(layout, held))
    ranked = found.best_first()
    if not ranked:
        return None
    least_s = found.seconds[ranked[0]]
    equal = [layout for layout in ranked if found.seconds[layout] <= (1.0 + EQUAL_WITHIN) * least_s]
    return Choice(layout=min(equal, key=simplicity), fitting=found.fitting)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Cheapest:
    """Layouts priced so far."""

    job: Job
    batch: int
    seconds: dict[Layout, float]
    fitting: int

    def with_layouts(self, fixed: Fixed) -> _Cheapest:
        """The same with a few layouts of each frame that fit, of a space where some fields are fixed."""
        frames = [_shared(frame) for frame in space_of(self.job, self.batch, fixed=fixed).frames()]
        chosen: dict[Layout, None] = dict.fromkeys(self.seconds)
        count = self.fitting
        for part in fitting(self.job, frames):
            count += sum(layout not in chosen for layout in part.layouts)
            chosen |= dict.fromkeys(_worth_pricing(part.layouts))
        new = [layout for layout in chosen if layout not in self.seconds]
        seconds = dict(zip(new, step_seconds(self.job, new).tolist(), strict=True))
        return replace(self, seconds=self.seconds | seconds, fitting=count)

    def best_first(self) -> list[Layout]:
        """All that were priced."""
        return sorted(self.seconds, key=lambda layout: self.seconds[layout])


def step_seconds(job: Job, layouts: Sequence[Layout]) -> Floats:
    """Step times of a job under n layouts, as the cost model has them [s], shape (n,)."""
    found = np.zeros(len(layouts))
    for places, group in groups_under(job, layouts):
        found[places] = price(group).step_time_s
    return found


def _shared(frame: Frame) -> Frame:
    """The frame without sharding where there is one data-parallel rank: it has nobody to share with."""
    settings = frame.settings
    if settings["dp"] * settings["cp"] > 1 or not settings.get("zero_stage"):
        return frame
    return replace(frame, settings={**settings, "zero_stage": 0})


def _worth_pricing(layouts: Sequence[Layout]) -> Iterable[Layout]:
    """The largest micro batch of each recomputation, and the smallest of a pipeline."""
    largest = {layout.recompute: layout for layout in layouts}
    return (*largest.values(), *(layouts[:1] if layouts and layouts[0].pp > 1 else ()))


def _tiers(job: Job, fixed: Fixed, degrees: bool, axes: Sequence[str]) -> Iterator[list[Fixed]]:
    """Usual layouts in the order in which people try them: the next only where nothing before fits."""
    every = [*_usual(job, fixed, degrees)]
    suite = set(CUT_UP) <= set(axes) and degrees
    if suite or job.cluster.num_nodes > 1 or job.layout.pp > 1 or "zero_stage" in fixed:
        if degrees and "cp" not in axes:
            yield [{**each, "cp": (1,), **fixed} for each in every]
        yield every
        return
    usual = get_stack_profile(job.stack.profile).usual_zero_stage(job.stack.framework_year, pipeline=False)
    whole = every[0] if not degrees else {**every[0], **dict.fromkeys(("tp", "cp", "ep"), (1,)), **fixed}
    stages = dict.fromkeys((usual, 3))
    for stage in stages:
        yield [{**whole, "zero_stage": (stage,)}]
    if degrees and axes:
        yield [{**every[0], **dict.fromkeys({"tp", "cp", "ep"} - set(axes), (1,)), **fixed}]
    yield every


def _usual(job: Job, fixed: Fixed, degrees: bool) -> Iterator[Fixed]:
    """Values that the fields of usual layouts have: without a pipeline, and with one."""
    layout, gpus, shape = job.layout, job.training_devices, model_shape(job.workload.graph)
    if not degrees:
        held = {name: (getattr(layout, name),) for name in _HELD if getattr(layout, name) is not None}
        yield {**_PLAIN, "zero_stage": (0, 3) if layout.pp == 1 else (0, 1), **held, **fixed}
        return
    usual = _usual_degrees(shape, int(job.cluster.devices_per_node))
    yield {**usual, "pp": (1,), "zero_stage": (0, 1, 3), **fixed}
    most = min(_MOST_STAGES, gpus, shape.num_layers or 1)
    stages = tuple(pp for pp in range(2, most + 1) if gpus % pp == 0)
    if shape.heads and stages:
        yield {**usual, "pp": stages, "zero_stage": (1,), **fixed}


def _usual_degrees(shape: ModelShape, devices_per_node: int) -> dict[str, tuple[Any, ...]]:
    usual: dict[str, tuple[Any, ...]] = {**_PLAIN, "schedule": (PipelineSchedule.ONE_F_ONE_B,)}
    tokens, experts = shape.seq_len or 1, shape.num_experts
    most = _MOST_CONTEXT_RANKS if shape.heads and tokens >= _LONG_TOKENS else 1
    usual["cp"] = powers_of_two(min(tokens // _TOKENS_PER_RANK, most))
    if experts:
        domains = (1, devices_per_node, _MOST_EXPERT_RANKS)
        usual["ep"] = tuple(sorted({math.gcd(experts, powers_of_two(min(experts, n))[-1]) for n in domains}))
        usual["etp"] = (1,)
    return usual


def _with_less_bubble(layout: Layout, fixed: Fixed) -> Fixed:
    """The same layout under the other schedules of a pipeline, its stages in chunks or whole."""
    held = {name: (getattr(layout, name),) for name in (*_HELD, "zero_stage") if getattr(layout, name)}
    others = tuple(each for each in searched_schedules() if each is not PipelineSchedule.ONE_F_ONE_B)
    return {**_PLAIN, **held, "schedule": others, "vpp": (1, *_CHUNKS), **fixed}
