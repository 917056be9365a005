"""Bytes that a training step needs on each pipeline stage, as named terms, and on the fullest one.

References: Korthikanti et al., MLSys 2023, section 4 (activations by recomputation mode, in-flight micro
batches of the interleaved schedule); Rajbhandari et al., ZeRO, SC 2020.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

import numpy as np

from ...arrays import Number, Same
from ...parallel.layout import Checkpointing, Layout, PipelineSchedule, layers_of_stages
from ...parallel.schedules.registry import schedule_of
from ..constants import constants
from ..job import JobGroup
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
    if group.workload.method is None:
        return _fullest_of(group)
    return with_method_memory(_fullest_of(group), group)


def _fullest_of(group: JobGroup) -> dict[str, Number]:
    """Named bytes of the model that is trained, on the fullest device."""
    components, layout = _components(group), group.layout
    leading = components.kinds[0].count if len(components.kinds) > 1 else 0.0
    stages = _fullest_stages(components.num_layers, layout.pp, layout.stage_layers, leading)
    stage_memory = [_stage_memory(stage, components, group) for stage in stages]
    if len(stage_memory) == 1:
        return stage_memory[0].terms()
    fullest = np.array([memory.total for memory in stage_memory]).argmax(axis=0)
    if (fullest == fullest[0]).all():
        return stage_memory[int(fullest[0])].terms()
    found = [memory.terms() for memory in stage_memory]
    return {
        name: np.choose(fullest, [np.broadcast_to(terms[name], (len(group),)) for terms in found])
        for name in found[0]
    }


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
    rows = group.micro_batch_size * layout.num_micro_batches
    cache = rows * generation.cache_elems * policy.activation.num_bytes / layout.tp
    whole = group.workload.graph.params * policy.activation.num_bytes / layout.tp
    gathered = whole * (1.0 - 1.0 / layout.shard_ranks) if layout.zero_stage == _FULLY_SHARDED else 0.0
    free = sum((found[name] for name in ("activations", "logits", "temporary", "fragmentation")), 0.0)
    return {**found, "generation": np.maximum(cache + gathered - free, 0.0)}


def memory_of_stages(group: JobGroup) -> tuple[StageMemory, ...]:
    """What every pipeline stage holds when, first to last; one entry without a pipeline."""
    components, layout = _components(group), group.layout
    stages = _stages(components.num_layers, layout.pp, layout.stage_layers)
    return tuple(_stage_memory(stage, components, group) for stage in stages)


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
        peak = self._peak
        at_loss = self.logits >= peak
        return {
            **self.states,
            "activations": self.activations,
            "logits": np.where(at_loss, self.logits, 0.0),
            "temporary": np.where(at_loss, 0.0, peak),
            "fragmentation": self.fragmentation,
            "framework": self.framework,
        }

    @property
    def total(self) -> Number:
        """Sum of the terms."""
        moving = self.activations + self._peak + self.fragmentation
        return sum(self.states.values()) + self.framework + moving

    @property
    def _peak(self) -> Number:
        freed = sum(self.states[name] for name in self.passing)
        return np.maximum(np.maximum(self.logits, self.layer), self.update - freed - self.activations)


@lru_cache(maxsize=4096)
def _of_layers(components: Same, start: float, count: float) -> ModelComponents:
    of_stage: ModelComponents = components.value.of_layers(start, count)
    return of_stage


def _stage_memory(stage: _Stage, components: ModelComponents, group: JobGroup) -> StageMemory:
    layout, framework = group.layout, framework_memory(group.stack)
    components = _of_layers(Same(components), stage.start, stage.layers)
    local = local_elements(components, layout, stage.layers, first=stage.first, last=stage.last)
    moving = _moving_bytes(stage, components, group)
    batch = group.micro_batch_size
    placeholders, of_head = _placeholder_bytes(stage, components, group, local)
    states = state_terms(local, layout, group.precision, framework, group.workload.optimizer)
    states["gradients"] += placeholders
    saved, layer = moving.saved * batch, moving.layer * batch
    logits = np.maximum(moving.logits * batch, moving.logit_gradient * batch + of_head)
    cached = group.precision.autocast and not group.precision.fp8_recipe
    return StageMemory(
        index=stage.index,
        layers=stage.layers,
        last=stage.last,
        states=states,
        activations=saved,
        logits=logits,
        layer=layer,
        update=update_bytes(local, layout, framework, fused=group.stack.fused_optimizer),
        passing=frozenset({"gathered", "cast_weights"} if cached else {"gathered"}),
        fragmentation=framework.fragmentation * (sum(states.values()) + saved + np.maximum(logits, layer)),
        framework=framework_bytes(
            layout,
            group.cluster,
            group.stack.framework_year,
            framework.pipeline_communicators,
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Moving:
    """Bytes per sample of the micro batch on one device of a stage."""

    saved: float
    """For the backward passes of all micro batches in flight."""
    logits: float
    """And the input of the head, gathered where tensor ranks share it."""
    logit_gradient: float
    """Of the logits, while the head's own gradients are computed."""
    layer: float
    """Recomputed activations of a layer and the gradients under way in it."""


def _moving_bytes(stage: _Stage, components: ModelComponents, group: JobGroup) -> _Moving:
    layout, stack, framework = group.layout, group.stack, framework_memory(group.stack)
    splits_residual = layout.sequence_parallel or framework.splits_residual
    real = float(constants("memory")["unpadded_share"]) if stack.unpadded_sequences else 1.0

    def here(saved: SavedBytes) -> float:
        return saved.per_device(layout.tp, splits_residual) * real / layout.cp

    of_layer, recomputed = _checkpointed(components, layout, framework)
    saved = here(of_layer) * stage.layers + (here(components.before.saved) if stage.first else 0.0)
    ends = here(components.after.saved) if stage.last else 0.0
    per_logit = framework.logit_bytes(stack.compiler in _COMPILERS, stack.framework_year, layout.tp > 1)
    per_logit += max(group.precision.activation.num_bytes - _NARROW_BYTES, 0.0)
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
    return _Moving(
        saved=(saved + outputs) * micro_batches_in_flight(stage.index, layout) + ends,
        logits=elems * per_logit + gathered,
        logit_gradient=elems * group.precision.activation.num_bytes + gathered,
        layer=here(recomputed) + working,
    )


def _placeholder_bytes(
    stage: _Stage, components: ModelComponents, group: JobGroup, local: LocalElements
) -> tuple[float, float]:
    """What autograd is handed where a product adds its gradient to the fp32 sum itself.

    Returns:
        One tensor for every shape of weight in the layers, which stay (Transformer Engine, module/base.py,
        get_dummy_wgrad), and the head's, which is freed.
    """
    layout, framework = group.layout, framework_memory(group.stack)
    since = framework.placeholder_gradients_from
    if not since or group.stack.framework_year < since:
        return 0.0, 0.0
    width = group.precision.activation.num_bytes
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
        share = layout.checkpointed_share
        whole = share * components.boundary + (1.0 - share) * full.whole
        return SavedBytes(split=(1.0 - share) * full.split, whole=whole), full
    return full, SavedBytes()


def micro_batches_in_flight(stage: int, layout: Layout) -> float:
    """Micro batches whose activations a stage holds at its peak, in units of one full stage."""
    if layout.pp == 1:
        return 1.0
    virtual = layout.virtual_pp if layout.schedule is PipelineSchedule.INTERLEAVED else 1
    return schedule_of(layout.schedule).in_flight(stage, layout.pp, layout.num_micro_batches, virtual)
