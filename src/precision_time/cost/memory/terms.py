"""Bytes that a training step needs on each pipeline stage, as named terms, and on the fullest one.

References: Korthikanti et al., MLSys 2023, section 4 (activations by recomputation mode, in-flight micro
batches of the interleaved schedule); Rajbhandari et al., ZeRO, SC 2020.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from itertools import accumulate
from operator import attrgetter
from typing import Any

import numpy as np

from ...arrays import Floats, Number, Same
from ...parallel.layout import Checkpointing, Layout, PipelineSchedule, layers_of_stages
from ...parallel.schedules.registry import schedule_of
from ...precision.policy import PrecisionPolicy
from ..constants import constants
from ..job import JobGroup, Stack
from .components import ModelComponents, SavedBytes, model_components
from .states import (
    FrameworkMemory,
    LocalElements,
    framework_bytes,
    framework_memory,
    local_elements,
    state_terms,
    update_bytes,
)

_COMPILERS = frozenset({"inductor", "xla", "torchscript"})
_FULLY_SHARDED = 3
_NARROW_BYTES = 2.0
"""Bytes of the 16-bit logits that the frameworks count with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Stage:
    """A pipeline stage: its layers and place."""

    index: int
    start: float
    """Layers before it."""
    layers: float
    first: bool
    last: bool


def memory_of(group: JobGroup) -> dict[str, Number]:
    """Named bytes on the fullest device, for every job of the group.

    Returns:
        `parameters`, `expert_parameters`, `cast_weights`, `gradients`, `gradient_buckets`,
        `master_weights`, `optimizer_states`, `gathered`, `activations`, `logits`, `temporary`,
        `fragmentation`, `framework`, in bytes; those that grow with the batch of shape (C,). A training
        method adds `other_models` and `generation`.

    Assumes: layers are equal; of the stages in the middle the one with most layers, nearest to the first,
    is the fullest.
    Accuracy: scripts/memory_accuracy.py.
    """
    if len(group) > 1:
        return _memory_of(group)
    return dict(_memory_of_one(_One(group)))  # one answer asks several times


class _One:
    """A group of one job as a key, equal to others with the same model, cluster, types, layout and batch."""

    __slots__ = ("group", "key")

    def __init__(self, group: JobGroup) -> None:
        what = (Same(group.workload), Same(group.cluster), group.precision, group.layout, group.stack)
        self.group, self.key = group, (*what, float(group.micro_batch_size[0]))

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _One) and other.key == self.key


@lru_cache(maxsize=2048)
def _memory_of_one(one: _One) -> dict[str, Number]:
    return _memory_of(one.group)


def _memory_of(group: JobGroup) -> dict[str, Number]:
    if group.workload.method is None:
        return _fullest_of(group)
    return with_method_memory(_fullest_of(group), group)


def _fullest_of(group: JobGroup) -> dict[str, Number]:
    """Named bytes of the model that is trained, on the fullest device."""
    memory = _of_fullest_stages(group)
    fullest = memory.total.argmax(axis=0)
    if (fullest == fullest[0]).all():
        return memory.of_stage(int(fullest[0])).terms()
    found = [memory.of_stage(place).terms() for place in range(len(memory.stages))]
    return {
        name: np.choose(fullest, [np.broadcast_to(terms[name], (len(group),)) for terms in found])
        for name in found[0]
    }


def needed_bytes(
    groups: Sequence[JobGroup], recomputing: Sequence[Sequence[tuple[Checkpointing, float]]]
) -> list[Floats]:
    """Bytes on the fullest device for every job of many groups: the sums of `memory_of`, by arrays.

    Args:
        groups: Of one workload, cluster and stack.
        recomputing: Of each group M modes of checkpointing and the shares of the layers that they cover, in
            the place of its layout's own.

    Returns:
        Of each group of C jobs an array of shape (M, C).
    """
    if not groups:
        return []
    if groups[0].workload.method is not None:
        return [_one_by_one(group, modes) for group, modes in zip(groups, recomputing, strict=True)]
    held: list[Floats] = []
    moving: list[Floats] = []
    in_flight: list[Floats] = []
    found: dict[Hashable, Any] = {}  # of this call: most groups share most of what decides their bytes
    for group, modes in zip(groups, recomputing, strict=True):
        layout = group.layout
        cut = (id(group.precision), layout.recomputed, layout.pp, layout.stage_layers)
        if cut not in found:
            components = _components(group)
            leading = _leading_layers(components)
            stages = _fullest_stages(components.num_layers, layout.pp, layout.stage_layers, leading)
            found[cut] = tuple(map(Same, (stages, components, group.precision, group.stack)))
        what = found[cut]
        if (holding := (*cut, *_holding(layout))) not in found:
            of_states = _held(*what, Same(group.cluster), group.workload.optimizer, *_holding(layout))
            found[holding] = of_states.columns
        held.append(found[holding])
        moved = _moving(layout)[:-2]
        for mode in modes:
            if (kind := (*cut, *moved, *mode)) not in found:
                found[kind] = _moving_bytes(*what, *moved, *mode).columns
            moving.append(found[kind])
        counts = np.broadcast_to(group.num_micro_batches, len(group))
        if (alive := (*cut, layout.schedule, layout.virtual_pp, counts.tobytes())) not in found:
            found[alive] = _in_flight(what[0].value, layout, counts, len(group))
        in_flight.append(found[alive])
    return _needed(groups, recomputing, np.array(held), np.array(moving), np.concatenate(in_flight, axis=1))


_MOST_STAGES = 4
"""That may be the fullest."""


def _needed(
    groups: Sequence[JobGroup],
    recomputing: Sequence[Sequence[Any]],
    held: Floats,
    moving: Floats,
    in_flight: Floats,
) -> list[Floats]:
    """Bytes of the fullest stage of every job and mode of checkpointing.

    Args:
        groups: G groups of R jobs in all.
        recomputing: P pairs of a group and a mode in all.
        held: Shape (G, stages, fields of `_Held`).
        moving: Shape (P, stages, fields of `_Moving`).
        in_flight: Shape (stages, R).
    """
    modes, jobs = [len(each) for each in recomputing], [len(group) for group in groups]
    group_of = np.repeat(np.arange(len(groups)), modes)
    per_pair = np.array(jobs)[group_of]
    pair = np.repeat(np.arange(len(group_of)), per_pair)
    starts = np.cumsum([0, *jobs])[:-1]
    ends = np.cumsum(per_pair)
    job = np.arange(len(pair)) - np.repeat(ends - per_pair - starts[group_of], per_pair)
    batch = np.concatenate([group.micro_batch_size for group in groups])[job]
    states, beyond, head, framework = held[group_of[pair]].transpose(2, 1, 0)
    saved, ends_of, logit, logit_gradient, layer = moving[pair].transpose(2, 1, 0)
    activations, layer = (saved * in_flight[:, job] + ends_of) * batch, layer * batch
    logits = np.maximum(logit * batch, logit_gradient * batch + head)
    fragmentation = framework_memory(groups[0].stack).fragmentation
    fragmented = fragmentation * (states + activations + np.maximum(logits, layer))
    peak = _peak_bytes(logits, layer, beyond - activations)
    total = (states + framework + (activations + peak + fragmented)).max(axis=0)
    cuts = np.split(total, np.cumsum(np.array(modes) * jobs)[:-1])
    return [cut.reshape(count, -1) for cut, count in zip(cuts, modes, strict=True)]


def _in_flight(stages: tuple[_Stage, ...], layout: Layout, counts: Number, size: int) -> Floats:
    """Micro batches in flight on each of the fullest stages, shape (stages, C)."""
    found = [np.broadcast_to(micro_batches_in_flight(each.index, layout, counts), size) for each in stages]
    return np.array([*found, *found[-1:] * (_MOST_STAGES - len(found))], dtype=np.float64)


def _one_by_one(group: JobGroup, modes: Sequence[tuple[Checkpointing, float]]) -> Floats:
    """The same of a group whose method holds more than the model that is trained."""
    layouts = (replace(group.layout, checkpointing=mode, checkpointed_share=share) for mode, share in modes)
    needed = (total_bytes(memory_of(replace(group, layout=layout))) for layout in layouts)
    return np.array([np.broadcast_to(each, (len(group),)) for each in needed])


def _leading_layers(components: ModelComponents) -> float:
    return components.kinds[0].count if len(components.kinds) > 1 else 0.0


def _of_fullest_stages(group: JobGroup) -> _StagesMemory:
    components, layout = _components(group), group.layout
    stages = _fullest_stages(
        components.num_layers, layout.pp, layout.stage_layers, _leading_layers(components)
    )
    return _memory_of_stages(stages, components, group)


def with_method_memory(found: dict[str, Number], group: JobGroup) -> dict[str, Number]:
    """The terms of a step with what its method holds: other models, and answers while they are written."""
    method, layout, policy = group.workload.method, group.layout, group.precision
    if method is None:
        return found
    framework = framework_memory(group.stack)
    others: Number = 0.0
    for graph in method.held:
        components = model_components(graph, policy, fused_attention=True, compiled=False)
        layers = components.num_layers / layout.pp
        local = local_elements(components, layout, layers, first=True, last=True)
        others += sum(state_terms(local, layout, policy, framework, group.workload.optimizer).values())
    found = {**found, "other_models": others}
    generation = method.generation
    if generation is None:
        return found
    rows = group.micro_batch_size * group.num_micro_batches
    cache = rows * generation.cache_elems * policy.activation.num_bytes / layout.tp
    whole = group.workload.graph.params * policy.activation.num_bytes / layout.tp
    gathered = whole * (1.0 - 1.0 / layout.shard_ranks) if layout.zero_stage == _FULLY_SHARDED else 0.0
    free = sum((found[name] for name in ("activations", "logits", "temporary", "fragmentation")), 0.0)
    return {**found, "generation": np.maximum(cache + gathered - free, 0.0)}


def memory_of_stages(group: JobGroup) -> tuple[StageMemory, ...]:
    """What every pipeline stage holds when, first to last; one entry without a pipeline."""
    components, layout = _components(group), group.layout
    stages = _stages(components.num_layers, layout.pp, layout.stage_layers)
    memory = _memory_of_stages(stages, components, group)
    return tuple(memory.of_stage(place) for place in range(len(stages)))


def memory_by_stage(group: JobGroup) -> tuple[dict[str, Number], ...]:
    """Named bytes of every pipeline stage, first to last; one entry without a pipeline."""
    return tuple(stage.terms() for stage in memory_of_stages(group))


def total_bytes(terms: Mapping[str, Number]) -> Number:
    """Sum of the named bytes."""
    return sum(terms.values(), 0.0)


def _components(group: JobGroup) -> ModelComponents:
    stack, framework = group.stack, framework_memory(group.stack)
    compiled = stack.compiler in _COMPILERS
    return model_components(
        group.workload.largest or group.workload.graph,
        group.precision,
        fused_attention=stack.fused_attention,
        compiled=compiled,
        fused_kernels=stack.fused_kernels,
        fp8_saves_fp8=framework.fp8_saves_fp8,
        composed_norms=not (compiled or stack.fused_kernels)
        and stack.framework_year < framework.fused_norms_from,
        recomputed=group.layout.recomputed,
    )


@lru_cache(maxsize=4096)
def _stages(num_layers: float, pp: int, stage_layers: tuple[int, ...]) -> tuple[_Stage, ...]:
    if pp == 1:
        return (_Stage(index=0, start=0.0, layers=num_layers, first=True, last=True),)
    layers_of = layers_of_stages(int(num_layers), Layout(pp=pp, stage_layers=stage_layers))
    before = accumulate(layers_of, initial=0)
    return tuple(
        _Stage(index=index, start=float(start), layers=float(layers), first=index == 0, last=index == pp - 1)
        for index, (start, layers) in enumerate(zip(before, layers_of, strict=False))
    )


@lru_cache(maxsize=4096)
def _fullest_stages(
    num_layers: float, pp: int, stage_layers: tuple[int, ...], leading: float
) -> tuple[_Stage, ...]:
    """The first stage, the last, and the fullest of those between where it has more layers than the first.

    With as many layers the first holds more: the embedding, and at least as many micro batches in flight.
    Where `leading` layers differ from the others, the fullest behind them counts, too.
    """
    stages = _stages(num_layers, pp, stage_layers)
    if len(stages) == 1:
        return stages

    def fullest(of: tuple[_Stage, ...]) -> _Stage:
        return max(of, key=lambda stage: (stage.layers, -stage.index))

    behind = tuple(stage for stage in stages[:-1] if stage.start >= leading)
    found = (stages[0], fullest(stages[:-1]), fullest(behind or stages[:-1]), stages[-1])
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """Bytes on one device of a pipeline stage, by when in a step they live."""

    index: int
    layers: float
    last: bool
    states: Mapping[str, float]
    """From step to step; those in `passing` only until the last backward pass."""
    activations: Number
    """For the backward passes of all micro batches in flight."""
    logits: Number
    """And their gradients, from the loss to the head's backward pass."""
    layer: Number
    """Recomputed activations of a layer and the gradients under way in it, in its backward pass."""
    update: float
    """Copies in the optimizer step."""
    passing: frozenset[str]
    """States that are gone by then."""
    fragmentation: Number
    framework: float

    def terms(self) -> dict[str, Number]:
        """Named bytes at the fullest moment: of the loss, a layer's backward pass, or the optimizer step."""
        freed = sum(self.states[name] for name in self.passing)
        peak = _peak_bytes(self.logits, self.layer, self.update - freed - self.activations)
        at_loss = self.logits >= peak
        return {
            **self.states,
            "activations": self.activations,
            "logits": np.where(at_loss, self.logits, 0.0),
            "temporary": np.where(at_loss, 0.0, peak),
            "fragmentation": self.fragmentation,
            "framework": self.framework,
        }


def _peak_bytes(logits: Number, layer: Number, update: Number) -> Number:
    """The most that is held at the loss, in a layer's backward pass, or at the update beyond activations."""
    return np.maximum(np.maximum(logits, layer), update)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Held:
    """What S stages hold whatever the batch and the schedule; arrays of shape (S, 1)."""

    states: tuple[Mapping[str, float], ...]
    states_bytes: Floats
    """Sum of the states of each stage."""
    passing: frozenset[str]
    update: Floats
    update_beyond: Floats
    """Beyond the states that are gone by then."""
    head: Floats
    """Placeholder of the head's gradient."""
    framework: float
    columns: Floats
    """Of the fullest stages, shape (stages, 4)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _StagesMemory:
    """Bytes on one device of each of S stages for C jobs; arrays of shape (S, C)."""

    stages: tuple[_Stage, ...]
    held: _Held
    activations: Floats
    logits: Floats
    layer: Floats
    fragmentation: Floats

    @property
    def total(self) -> Floats:
        """Sum of the terms of each stage."""
        held = self.held
        peak = _peak_bytes(self.logits, self.layer, held.update_beyond - self.activations)
        total: Floats = held.states_bytes + held.framework + (self.activations + peak + self.fragmentation)
        return total

    def of_stage(self, place: int) -> StageMemory:
        """One of the stages."""
        stage, held = self.stages[place], self.held
        return StageMemory(
            index=stage.index,
            layers=stage.layers,
            last=stage.last,
            states=held.states[place],
            activations=self.activations[place],
            logits=self.logits[place],
            layer=self.layer[place],
            update=float(held.update[place, 0]),
            passing=held.passing,
            fragmentation=self.fragmentation[place],
            framework=held.framework,
        )


@lru_cache(maxsize=4096)
def _of_layers(components: Same, start: float, count: float) -> ModelComponents:
    of_stage: ModelComponents = components.value.of_layers(start, count)
    return of_stage


_HOLDING = (
    *("dp", "tp", "pp", "cp", "ep", "expert_tp", "zero_stage", "shard_size", "reshard_after_forward"),
    *("prefetch", "offload", "data_parallel_engine"),
)
"""Fields of a layout that decide what a stage holds whatever the batch and the schedule."""
_MOVING = ("tp", "cp", "sequence_parallel", "checkpointing", "checkpointed_share")
"""Those that decide what a sample adds to a stage for every micro batch in flight."""
_holding, _moving = attrgetter(*_HOLDING), attrgetter(*_MOVING)


def _memory_of_stages(
    stages: tuple[_Stage, ...], components: ModelComponents, group: JobGroup
) -> _StagesMemory:
    """What stages hold; layouts that differ in the batch and the schedule share most of it."""
    layout, framework = group.layout, framework_memory(group.stack)
    what = (Same(stages), Same(components), Same(group.precision), Same(group.stack))
    held = _held(*what, Same(group.cluster), group.workload.optimizer, *_holding(layout))
    moving = _moving_bytes(*what, *_moving(layout))
    batch = group.micro_batch_size
    counts = group.num_micro_batches
    in_flight = np.array(
        [np.atleast_1d(micro_batches_in_flight(stage.index, layout, counts)) for stage in stages]
    )
    saved, layer = (moving.saved * in_flight + moving.ends) * batch, moving.layer * batch
    logits = np.maximum(moving.logits * batch, moving.logit_gradient * batch + held.head)
    return _StagesMemory(
        stages=stages,
        held=held,
        activations=saved,
        logits=logits,
        layer=layer,
        fragmentation=framework.fragmentation * (held.states_bytes + saved + np.maximum(logits, layer)),
    )


def _column(values: Iterable[float]) -> Floats:
    return np.array([*values], dtype=np.float64)[:, None]


def _padded(stages: Floats) -> Floats:
    """Rows of stages, the last one repeated up to the number of those that may be the fullest."""
    return np.concatenate([stages, np.repeat(stages[-1:], max(_MOST_STAGES - len(stages), 0), axis=0)])


@lru_cache(maxsize=2048)
def _held(
    of_stages: Same, of_model: Same, policy_key: Same, stack_key: Same, on: Same, optimizer: str, *named: Any
) -> _Held:
    """What stages hold under the fields `_HOLDING` of a layout."""
    layout = Layout(**dict(zip(_HOLDING, named, strict=True)))
    policy: PrecisionPolicy = policy_key.value
    stack: Stack = stack_key.value
    framework = framework_memory(stack)
    found: list[tuple[dict[str, float], float, float]] = []
    for stage in of_stages.value:
        components = _of_layers(of_model, stage.start, stage.layers)
        local = local_elements(components, layout, stage.layers, first=stage.first, last=stage.last)
        placeholders, of_head = _placeholder_bytes(stage, components, layout, policy, stack, local)
        states = state_terms(local, layout, policy, framework, optimizer)
        states["gradients"] += placeholders
        found.append((states, of_head, update_bytes(local, layout, framework, fused=stack.fused_optimizer)))
    cached = policy.autocast and not policy.fp8_recipe
    passing = frozenset({"gathered", "cast_weights"} if cached else {"gathered"})
    communicators = framework.pipeline_communicators
    needed = framework_bytes(layout, on.value, stack.framework_year, communicators)
    states_bytes = _column(sum(states.values()) for states, _, _ in found)
    beyond = _column(update - sum(states[name] for name in passing) for states, _, update in found)
    head = _column(of_head for _, of_head, _ in found)
    return _Held(
        states=tuple(states for states, _, _ in found),
        states_bytes=states_bytes,
        passing=passing,
        update=_column(update for _, _, update in found),
        update_beyond=beyond,
        head=head,
        framework=needed,
        columns=_padded(np.hstack([states_bytes, beyond, head, np.full_like(head, needed)])),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Moving:
    """Bytes per sample of the micro batch on one device of S stages, shape (S, 1)."""

    saved: Floats
    """For the backward pass of every micro batch in flight."""
    ends: Floats
    """After the layers: of one micro batch."""
    logits: Floats
    """And the input of the head, gathered where tensor ranks share it."""
    logit_gradient: Floats
    """Of the logits, while the head's own gradients are computed."""
    layer: Floats
    """Recomputed activations of a layer and the gradients under way in it."""
    columns: Floats
    """All of these, of the fullest stages, shape (stages, 5)."""


_MOVED = tuple(item.name for item in fields(_Moving) if item.name != "columns")


@lru_cache(maxsize=2048)
def _moving_bytes(of_stages: Same, of_model: Same, policy_key: Same, stack_key: Same, *named: Any) -> _Moving:
    """What a sample adds to stages under the fields `_MOVING` of a layout."""
    layout = Layout(**dict(zip(_MOVING, named, strict=True)))
    columns = [
        _moving_of(
            stage, _of_layers(of_model, stage.start, stage.layers), layout, policy_key.value, stack_key.value
        )
        for stage in of_stages.value
    ]
    named_columns = dict(zip(_MOVED, map(_column, zip(*columns, strict=True)), strict=True))
    return _Moving(**named_columns, columns=_padded(np.array(columns)))


def _moving_of(
    stage: _Stage, components: ModelComponents, layout: Layout, policy: PrecisionPolicy, stack: Stack
) -> tuple[float, ...]:
    """Bytes per sample on one stage, in the order of the fields of `_Moving`."""
    framework = framework_memory(stack)
    splits_residual = layout.sequence_parallel or framework.splits_residual
    real = float(constants("memory")["unpadded_share"]) if stack.unpadded_sequences else 1.0

    def here(saved: SavedBytes) -> float:
        return saved.per_device(layout.tp, splits_residual) * real / layout.cp

    of_layer, recomputed = _checkpointed(components, layout, framework)
    saved = here(of_layer) * stage.layers + (here(components.before.saved) if stage.first else 0.0)
    ends = here(components.after.saved) if stage.last else 0.0
    per_logit = framework.logit_bytes(stack.compiler in _COMPILERS, stack.framework_year, layout.tp > 1)
    per_logit += max(policy.activation.num_bytes - _NARROW_BYTES, 0.0)
    elems = components.logits / (layout.tp * layout.cp) if stage.last else 0.0
    working = components.working / (layout.tp * layout.cp)
    if layout.sequence_parallel and layout.tp > 1:
        # The gathered input of a column-parallel product, and its gradient before it is scattered.
        working += 2.0 * components.boundary / layout.cp
    gathered = 0.0
    if splits_residual and layout.tp > 1 and stage.last:
        gathered = components.boundary / layout.cp
    outputs = components.boundary / (layout.tp if splits_residual else 1) * real / layout.cp
    if stage.last or not framework.keeps_stage_outputs:
        outputs = 0.0
    return (
        saved + outputs,
        ends,
        elems * per_logit + gathered,
        elems * policy.activation.num_bytes + gathered,
        here(recomputed) + working,
    )


def _placeholder_bytes(
    stage: _Stage,
    components: ModelComponents,
    layout: Layout,
    policy: PrecisionPolicy,
    stack: Stack,
    local: LocalElements,
) -> tuple[float, float]:
    """What autograd is handed where a product adds its gradient to the fp32 sum itself.

    Returns:
        One tensor for every shape of weight in the layers, which stay (Transformer Engine, module/base.py,
        get_dummy_wgrad), and the head's, which is freed.
    """
    framework = framework_memory(stack)
    since = framework.placeholder_gradients_from
    if not since or stack.framework_year < since:
        return 0.0, 0.0
    width = policy.activation.num_bytes
    of_layers = sum(
        elems / (layout.tensor_degree_of_experts if expert else layout.tp)
        for (*_, expert), elems in components.shapes.items()
    )
    return of_layers * width, local.head * width if stage.last else 0.0


def _checkpointed(
    components: ModelComponents, layout: Layout, framework: FrameworkMemory
) -> tuple[SavedBytes, SavedBytes]:
    """What a mean layer keeps, and what one layer recomputes in its backward pass."""
    full = components.layer.saved
    if layout.checkpointing is Checkpointing.SELECTIVE:
        saved = components.without_scores if framework.selective == "attention" else components.products
        return saved, full.minus(saved)
    if layout.checkpointing is Checkpointing.FULL and components.num_layers > 1:
        # A layer keeps its input instead, if that is less: of convolutions in place it may be all there is.
        share = layout.checkpointed_share
        whole = share * min(components.boundary, full.total) + (1.0 - share) * full.whole
        kept = SavedBytes(split=(1.0 - share) * full.split, whole=whole)
        again = min(components.num_layers * max(1.0 - kept.total / max(full.total, 1.0), 0.0), 1.0)
        return kept, SavedBytes(split=again * full.split, whole=again * full.whole)
    return full, SavedBytes()


def micro_batches_in_flight(stage: int, layout: Layout, counts: Number | None = None) -> Number:
    """Micro batches whose activations a stage holds at its peak, in units of one full stage.

    Args:
        stage: Of the pipeline.
        layout: Stages, chunks, schedule.
        counts: Micro batches of a step, () or (C,); those of the layout unless given.
    """
    counts = layout.num_micro_batches if counts is None else counts
    if layout.pp == 1:
        return np.ones_like(counts, dtype=np.float64)
    virtual = layout.virtual_pp if layout.schedule is PipelineSchedule.INTERLEAVED else 1
    return schedule_of(layout.schedule).in_flight(stage, layout.pp, counts, virtual)
