"""The layout of a job that does not say one and does not fit plainly: the fastest of the usual ones that fit.

A quick search by the cost model alone, over some tens of layouts. `plan` searches all of them and corrects
their times.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..cost.job import Job, group_key
from ..cost.step import price
from ..parallel.layout import EQUAL_WITHIN, Checkpointing, Layout, PipelineSchedule, simplicity
from ..parallel.shape import ModelShape, model_shape
from ..workload.workload import Workload
from .problem import Problem
from .space import Fixed, Frame, Space, fitting, powers_of_two

_LONG_TOKENS, _TOKENS_PER_RANK = 16384, 8192
"""Longer samples are cut over context ranks, and what each of them keeps at least."""
_MOST_STAGES, _MOST_CONTEXT_RANKS, _MOST_EXPERT_RANKS = 32, 16, 64
_CHUNKS = (2, 4, 8)
_REFINED = 2
"""The fastest pipelines, which are priced interleaved too."""
_PLAIN: Fixed = {"shard_size": (0,), "reshard_after_forward": (True,)}
_HELD = ("tp", "pp", "cp", "ep", "expert_tp", "schedule", "virtual_pp", "sequence_parallel")
_TOKENS_PER_STEP = 2**22
"""Of a step when no batch is given: what models of some ten billion parameters were trained with
(Llama 3: 4M tokens at first, arXiv 2407.21783, section 3.4.1; GPT-3: 3.2M, arXiv 2005.14165, table 2.1)."""
_MOST_DEVICES_PER_SAMPLE = 8
"""Of large clusters, which take more tokens (Llama 3 405B: 16M on 16,384 devices, table 4)."""
_SAMPLES_PER_DEVICE = 32
"""The same for models without sequences."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The fastest layout, and how many fitted."""

    layout: Layout
    fitting: int


def usual_batch(workload: Workload, gpus: int) -> int:
    """Samples per step where nothing says them: a usual number that the devices divide."""
    tokens = workload.graph.seq_len
    if tokens is None:
        return _SAMPLES_PER_DEVICE * gpus
    usual = max(_TOKENS_PER_STEP / tokens, gpus / _MOST_DEVICES_PER_SAMPLE, 1.0)
    # A multiple of the devices, or a divisor of them: so that the replicas share it evenly.
    shares = next(share for share in range(max(int(gpus / usual), 1), 0, -1) if gpus % share == 0)
    return gpus // shares if shares > 1 else math.ceil(usual / gpus) * gpus


_MOST_KEPT = 512
_CHOICES: dict[Hashable, tuple[Choice | None, Job]] = {}
"""What was chosen before, and for which job: keys name objects by where they are, so the job is kept."""


def usual_layout(job: Job, batch: float, fixed: Fixed, *, degrees: bool) -> Choice | None:
    """The fastest usual layout that fits, by the cost model; the simplest of those that are equal.

    A search takes a tenth of a second and more, so that what was chosen for a job is remembered.

    Args:
        job: With plain data parallelism, or with the layout of which some fields are fixed.
        batch: Samples per step.
        fixed: Fields of the layout that the request states.
        degrees: Whether tensor, pipeline, context and expert degrees are open too.

    Returns:
        None where nothing fits, or the batch is not of whole samples.
    """
    if batch != int(batch):
        return None
    key = (group_key(job), job.layout, batch, repr(sorted(fixed.items())), degrees)
    if (found := _CHOICES.get(key)) is None:  # another thread may forget all of them at any time
        if len(_CHOICES) >= _MOST_KEPT:
            _CHOICES.clear()
        found = _CHOICES[key] = (_searched(job, int(batch), fixed, degrees), job)
    return found[0]


def _searched(job: Job, batch: int, fixed: Fixed, degrees: bool) -> Choice | None:
    problem = Problem(
        workload=job.workload,
        cluster=job.cluster,
        precision=job.precision,
        stack=job.stack,
        global_batch_size=batch,
        stragglers=job.stragglers,
    )
    search = _Search(problem=problem)
    for usual in _usual(job, model_shape(job.workload.graph), fixed, degrees):
        search.price(Space(problem=problem, fixed=usual).frames())
    if degrees:
        for layout in [each for each in search.best_first() if each.pp > 1][:_REFINED]:
            search.price(Space(problem=problem, fixed=_interleaved(layout, fixed)).frames())
    ranked = search.best_first()
    if not ranked:
        return None
    least_s = search.seconds[ranked[0]]
    equal = [layout for layout in ranked if search.seconds[layout] <= (1.0 + EQUAL_WITHIN) * least_s]
    return Choice(layout=min(equal, key=simplicity), fitting=search.fitting)


@dataclass(slots=True)
class _Search:
    """Layouts priced so far."""

    problem: Problem
    seconds: dict[Layout, float] = field(default_factory=dict)
    fitting: int = 0

    def price(self, frames: Iterator[Frame]) -> None:
        """Price a few layouts of each frame that fit."""
        for frame in map(_shared, frames):
            kept = fitting(self.problem, frame).layouts
            self.fitting += sum(layout not in self.seconds for layout in kept)
            for layout in _worth_pricing(kept):
                if layout not in self.seconds:
                    self.seconds[layout] = float(price(self.problem.group(layout)).step_time_s[0])

    def best_first(self) -> list[Layout]:
        """All that were priced."""
        return sorted(self.seconds, key=lambda layout: self.seconds[layout])


def _shared(frame: Frame) -> Frame:
    """The frame without sharding where there is one data-parallel rank: it has nobody to share with."""
    settings = frame.settings
    if settings["dp"] * settings["cp"] > 1 or not settings.get("zero_stage"):
        return frame
    return replace(frame, settings={**settings, "zero_stage": 0})


def _worth_pricing(layouts: Sequence[Layout]) -> set[Layout]:
    """The largest micro batch, the largest that recomputes nothing, and the smallest of a pipeline."""
    if not layouts:
        return set()
    whole = [layout for layout in layouts if layout.checkpointing is Checkpointing.NONE]
    return {layouts[-1], *whole[-1:], *(layouts[:1] if layouts[0].pp > 1 else ())}


def _usual(job: Job, shape: ModelShape, fixed: Fixed, degrees: bool) -> Iterator[Fixed]:
    """Values that the fields of usual layouts have: without a pipeline, and with one."""
    layout, gpus = job.layout, job.cluster.num_devices
    if not degrees:
        held = {name: (getattr(layout, name),) for name in _HELD if getattr(layout, name) is not None}
        yield {**_PLAIN, "zero_stage": (0, 3) if layout.pp == 1 else (0, 1), **held, **fixed}
        return
    usual: dict[str, tuple[Any, ...]] = {**_PLAIN, "schedule": (PipelineSchedule.ONE_F_ONE_B,)}
    tokens, heads, experts = shape.seq_len or 1, shape.heads, shape.num_experts
    most = _MOST_CONTEXT_RANKS if heads and tokens > _LONG_TOKENS else 1
    usual["cp"] = powers_of_two(min(tokens // _TOKENS_PER_RANK, most))
    if experts:
        domains = (1, int(job.cluster.devices_per_node), _MOST_EXPERT_RANKS)
        usual["ep"] = tuple(sorted({math.gcd(experts, powers_of_two(min(experts, n))[-1]) for n in domains}))
        usual["expert_tp"] = (1,)
    yield {**usual, "pp": (1,), "zero_stage": (0, 1, 3), **fixed}
    stages = [pp for pp in powers_of_two(min(_MOST_STAGES, gpus, shape.num_layers or 1)) if gpus % pp == 0]
    if heads and len(stages) > 1:
        yield {**usual, "pp": tuple(stages[1:]), "zero_stage": (1,), **fixed}


def _interleaved(layout: Layout, fixed: Fixed) -> Fixed:
    """The same layout with its stages in chunks."""
    held = {name: (getattr(layout, name),) for name in (*_HELD, "zero_stage") if getattr(layout, name)}
    return {**_PLAIN, **held, "schedule": (PipelineSchedule.INTERLEAVED,), "virtual_pp": _CHUNKS, **fixed}
