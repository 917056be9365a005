"""Bytes that a training step needs on each pipeline stage, as named terms, and on the fullest one.

All of it is arithmetic on stages and layouts: one stage of one layout are numbers, S stages of one layout
arrays of shape (S, 1) or, by the batch, (S, n), and those of n jobs under several layouts of shape (S, n).

References: Korthikanti et al., MLSys 2023, section 4 (activations by recomputation mode, in-flight micro
batches of the interleaved schedule); Rajbhandari et al., ZeRO, SC 2020, section 3 (what 16 bytes per
parameter are, what each stage shards); Zhao et al., PyTorch FSDP, VLDB 2023 (units, prefetch); Ren et al.,
ZeRO-Offload, ATC 2021.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

import numpy as np

from ...arrays import Floats, Indices, Number, flag_of, least, most, where
from ...hardware.device import Cluster
from ...parallel.layout import Layout
from ...precision.policy import DType, PrecisionPolicy
from ...records import dataclass
from ...workload.packing import PACKED_BYTES
from ..constants import constants
from ..engines import engine_of
from ..job import Jobs
from ..optimizer import state_bytes, states_per_param
from ..stacks import Stack
from .framework import FrameworkMemory, framework_memory
from .parts import Layer, ModelParts, SavedBytes, model_parts
from .stages import Layouts, Stages

_COMPILERS = frozenset({"inductor", "xla", "torchscript"})
_FULLY_SHARDED = 3
_NARROW_BYTES = 2.0
"""Bytes of the 16-bit logits that the frameworks count with."""
_FP32_BYTES = 4.0
_TINY = 1e-300
_HELD_INPUTS = 2.0
"""Inputs of layers on the device where the others are in the memory of the host."""
_CHUNK = 2.0
"""Logits of a chunk at most, over the elements of the head's input: a chunk has the next power of two of as
many tokens as make it as large as that input (Liger-Kernel, ops/fused_linear_cross_entropy.py)."""
_ORIENTATIONS = 2.0
"""An fp8 weight is kept as it is and transposed (Transformer Engine)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageMemory:
    """Bytes on one device of a pipeline stage, or of many, by when in a step they live."""

    layers: Number
    states: Mapping[str, Number]
    """From step to step; those in `passing` only until the last backward pass."""
    activations: Number
    """For the backward passes of all micro batches in flight."""
    logits: Number
    """And their gradients, from the loss to the head's backward pass."""
    layer: Number
    """Recomputed activations of a layer and the gradients under way in it, in its backward pass."""
    update: Number
    """Copies in the optimizer step."""
    passing: frozenset[str]
    """States that are gone by then."""
    fragmentation: Number
    framework: Number

    @property
    def peak(self) -> Number:
        """Beyond activations: the most of the loss, a layer's backward pass and the optimizer step."""
        freed = sum((self.states[name] for name in self.passing), 0.0)
        return np.maximum(np.maximum(self.logits, self.layer), self.update - freed - self.activations)

    @property
    def total(self) -> Number:
        """Sum of the terms."""
        moving = self.activations + self.peak + self.fragmentation
        return total_bytes(self.states) + self.framework + moving

    def terms(self) -> dict[str, Number]:
        """Named bytes at the fullest moment: of the loss, a layer's backward pass, or the optimizer step."""
        peak = self.peak
        at_loss = self.logits >= peak
        return {
            **self.states,
            "activations": self.activations,
            "logits": np.where(at_loss, self.logits, 0.0),
            "temporary": np.where(at_loss, 0.0, peak),
            "fragmentation": self.fragmentation,
            "framework": self.framework,
        }

    def at(self, place: int) -> StageMemory:
        """One of the stages."""
        states = {name: _at(value, place) for name, value in self.states.items()}
        others: dict[str, Any] = {name: _at(getattr(self, name), place) for name in _OF_STAGE}
        return replace(self, states=states, **others)


_OF_STAGE = ("layers", "activations", "logits", "layer", "update", "fragmentation", "framework")


def _at(value: Number, place: int) -> Number:
    """The row of a stage, a number where it has one; what has no rows is of every stage."""
    if np.ndim(value) < 2:  # noqa: PLR2004
        return value
    row = np.asarray(value)[place]
    return float(row[0]) if len(row) == 1 else row


def memory_of(group: Jobs) -> dict[str, Number]:
    """Named bytes on the fullest device, for every job of the group.

    Returns:
        `parameters`, `expert_parameters`, `cast_weights`, `gradients`, `gradient_buckets`,
        `master_weights`, `optimizer_states`, `gathered`, `activations`, `logits`, `temporary`,
        `fragmentation`, `framework`, in bytes; those that grow with the batch of shape (C,). A training
        method adds `other_models` and `generation`.

    Assumes: layers are equal; of the stages in the middle the one with most layers, nearest to the first,
    is the fullest.
    Accuracy: data/memory_accuracy.py.
    """
    stages = _of_stages(group, (group.layout,))
    return with_method_memory(_fullest(stages), group)


def memory_of_each(groups: Sequence[Jobs]) -> list[dict[str, Number]]:
    """`memory_of` of several groups: by arrays over those that differ in their layout and batch alone."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for place, group in enumerate(groups):
        alike[_but_layout(group)].append(place)
    found: list[dict[str, Number]] = [{}] * len(groups)
    for places in alike.values():
        some = [groups[place] for place in places]
        if len(some) == 1 or some[0].workload.method is not None:
            parts = [memory_of(group) for group in some]
        else:
            parts = _memory_under_layouts(some)
        for place, part in zip(places, parts, strict=True):
            found[place] = part
    return found


def _but_layout(group: Jobs) -> Hashable:
    workload = group.workload
    what = (id(workload.graph), id(workload.largest), workload.method, workload.optimizer, id(group.cluster))
    return (*what, group.precision, group.stack, group.layout.recompute_modules)


def _memory_under_layouts(groups: Sequence[Jobs]) -> list[dict[str, Number]]:
    counts = [len(group) for group in groups]
    every = Jobs.at(
        groups[0].shared[0],
        np.concatenate([group.micro_batch_size for group in groups]),
        np.concatenate([group.num_microbatches for group in groups]),
    )
    stages = _of_stages(every, [group.layout for group in groups], np.arange(len(groups)).repeat(counts))
    terms = {name: np.broadcast_to(value, len(every)) for name, value in _fullest(stages).items()}
    ends = np.cumsum(counts).tolist()
    rows = [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]
    return [{name: values[its] for name, values in terms.items()} for its in rows]


def _fullest(stages: StageMemory) -> dict[str, Number]:
    """Named bytes of the fullest stage of every job."""
    if np.ndim(stages.activations) == 1:
        return stages.terms()
    total = np.asarray(stages.total)
    fullest = total.argmax(axis=0)
    if (fullest == fullest[0]).all():
        return stages.at(int(fullest[0])).terms()
    return {
        name: np.take_along_axis(np.broadcast_to(value, total.shape), fullest[None], axis=0)[0]
        for name, value in stages.terms().items()
    }


def needed_bytes(group: Jobs, layouts: Sequence[Layout] = (), under: Indices | None = None) -> Floats:
    """Bytes on the fullest device: the sum of `memory_of`, by arrays.

    Args:
        group: n jobs.
        layouts: In the place of the group's, which then says the batches alone.
        under: The layout of each job, shape (n,).

    Returns:
        Shape (n,).
    """
    if group.workload.method is not None:
        found = np.zeros(len(group))
        for place, layout in enumerate(layouts or [group.layout]):
            rows = np.arange(len(group)) if under is None else np.flatnonzero(under == place)
            found[rows] = total_bytes(memory_of(_under(group, layout, rows)))
        return found
    if under is None:
        return _most(_of_stages(group, (group.layout,)))
    found = np.zeros(len(group))
    for named in {layout.recompute_modules for layout in layouts}:
        mine = np.array([layout.recompute_modules == named for layout in layouts])
        rows, these = np.flatnonzero(mine[under]), [*compress(layouts, mine)]
        some = _under(group, these[0], rows)
        found[rows] = _most(_of_stages(some, these, (np.cumsum(mine) - 1)[under[rows]]))
    return found


def _under(group: Jobs, layout: Layout, rows: Indices) -> Jobs:
    """Some jobs of the group under another layout."""
    job = replace(group.shared[0], layout=layout)
    return Jobs.at(job, group.micro_batch_size[rows], group.num_microbatches[rows])


def _most(stages: StageMemory) -> Floats:
    most: Floats = np.atleast_2d(stages.total).max(axis=0)
    return most


def with_method_memory(found: dict[str, Number], group: Jobs) -> dict[str, Number]:
    """The terms of a step with what its method holds: other models, and answers while they are written."""
    method, layout, policy = group.workload.method, group.layout, group.precision
    if method is None:
        return found
    framework, columns = framework_memory(group.stack), Layouts.of([layout])
    others: Number = 0.0
    for graph in method.held:
        parts = model_parts(graph, policy, fused_attention=True, compiled=False)
        stage = Stages(start=0.0, layers=parts.num_layers / layout.pp, first=1.0, last=1.0, in_flight=1.0)
        local = _local_elements(parts, parts.layer, columns, stage)
        others += total_bytes(_states(local, columns, policy, framework, group.workload.optimizer))
    found = {**found, "other_models": others}
    generation = method.generation
    if generation is None:
        return found
    # One answer at least has room beside the engine's weights; more are written at once where there is more
    # (`cost.generation`). An engine on the same devices sleeps while they train, and they hold no more than
    # the parameters while it writes; a resident one is there all the time.
    engine = engine_of(generation, group)
    if engine.resident:
        return {**found, "generation": engine.needed_bytes}
    kept = () if engine.apart else ("parameters", "expert_parameters", "framework")
    free = sum((value for name, value in found.items() if name not in kept), 0.0)
    return {**found, "generation": np.maximum(engine.needed_bytes - free, 0.0)}


def memory_of_stages(group: Jobs) -> tuple[StageMemory, ...]:
    """What every pipeline stage holds when, first to last; one entry without a pipeline."""
    memory = _of_stages(group, (group.layout,), every=True)
    return tuple(memory.at(place) for place in range(group.layout.pp))


def memory_by_stage(group: Jobs) -> tuple[dict[str, Number], ...]:
    """Named bytes of every pipeline stage, first to last; one entry without a pipeline."""
    return tuple(stage.terms() for stage in memory_of_stages(group))


def frozen_bytes(group: Jobs) -> float:
    """Weights that nothing updates on the stage that holds most of them, wherever they are kept."""
    parts, layout = _parts(group), group.layout
    columns, stages = Layouts.of((layout,)), Stages.of(group, (layout,), parts)
    local = _local_elements(parts, parts.mean_layer(stages.start, stages.layers), columns, stages)
    held = _frozen_bytes(local, group.precision)
    return float(np.max(held)) / (layout.shard_ranks if layout.zero_stage >= _FULLY_SHARDED else 1)


def total_bytes(terms: Mapping[str, Number]) -> Number:
    """Sum of the named bytes."""
    return sum(terms.values(), 0.0)


def _parts(group: Jobs) -> ModelParts:
    stack, framework = group.stack, framework_memory(group.stack)
    compiled = stack.compiler in _COMPILERS
    return model_parts(
        group.workload.largest or group.workload.graph,
        group.precision,
        fused_attention=stack.fused_attention,
        compiled=compiled,
        fused_kernels=stack.fused_kernels,
        fp8_saves_fp8=framework.fp8_saves_fp8,
        composed_norms=not (compiled or stack.fused_kernels)
        and stack.framework_year < framework.fused_norms_from,
        recomputed=group.layout.recompute_modules,
    )


def _of_stages(
    group: Jobs, layouts: Sequence[Layout], under: Indices | None = None, *, every: bool = False
) -> StageMemory:
    """What stages hold, shape (S, n) of n jobs.

    Args:
        group: Model, devices, types, stack and batches; of its layout only what is recomputed by name.
        layouts: One for all, or several.
        under: Of several: the layout of each job, shape (n,).
        every: Every stage, not only those of which one is the fullest.
    """
    parts, stack, policy = _parts(group), group.stack, group.precision
    framework, columns = framework_memory(stack), Layouts.of(layouts, under)
    stages, batches = Stages.of(group, layouts, parts, under, every=every), group.micro_batch_size
    layer = parts.mean_layer(stages.start, stages.layers)
    local = _local_elements(parts, layer, columns, stages)
    states = _states(local, columns, policy, framework, group.workload.optimizer)
    head: Number = 0.0
    if 0.0 < framework.placeholder_gradients_from <= stack.framework_year:
        # Autograd is handed a tensor where a product adds its gradient to the fp32 sum itself: one for every
        # shape in the layers stays (Transformer Engine, module/base.py, get_dummy_wgrad), the head's goes.
        width = policy.activation.num_bytes
        states["gradients"] += (layer.shapes / columns.tp + layer.expert_shapes / columns.etp) * width
        head = local.head * stages.last * width
    moving = _bytes_per_sample(parts, layer, columns, stages, policy, stack)
    activations = (moving.saved * stages.in_flight + moving.ends) * batches
    logits = np.maximum(moving.logits * batches, moving.logit_gradient * batches + head)
    in_layer = moving.layer * batches
    moved = activations + np.maximum(logits, in_layer)
    cached = policy.autocast and not policy.fp8_recipe
    return StageMemory(
        layers=stages.layers,
        states=states,
        activations=activations,
        logits=logits,
        layer=in_layer,
        update=_update_bytes(local, columns, framework, fused=stack.fused_optimizer),
        passing=frozenset({"gathered", "cast_weights"} if cached else {"gathered"}),
        fragmentation=framework.fragmentation * (total_bytes(states) + moved),
        framework=_framework_bytes(
            columns, group.cluster, stack.framework_year, framework.pipeline_communicators
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _BytesPerSample:
    """Bytes per sample of the micro batch on one device of a stage."""

    saved: Number
    """For the backward pass of every micro batch in flight."""
    ends: Number
    """After the layers: of one micro batch."""
    logits: Number
    """And the input of the head, gathered where tensor ranks share it."""
    logit_gradient: Number
    """Of the logits, while the head's own gradients are computed."""
    layer: Number
    """Recomputed activations of a layer and the gradients under way in it."""


def _bytes_per_sample(
    parts: ModelParts,
    layer: Layer,
    layout: Layouts,
    stages: Stages,
    policy: PrecisionPolicy,
    stack: Stack,
) -> _BytesPerSample:
    framework = framework_memory(stack)
    splits_residual = most(layout.sequence_parallel, float(framework.splits_residual))
    real = float(constants("memory")["unpadded_share"]) if stack.unpadded_sequences else 1.0
    of_whole = where(splits_residual, layout.tp, 1.0)

    def here(saved: SavedBytes) -> Number:
        return (saved.split / layout.tp + saved.whole / of_whole) * real / layout.cp

    kept, again = _recomputed(parts, layer, layout, framework)
    is_split = flag_of(layout.tp > 1)
    per_logit = framework.logit_bytes(stack.compiler in _COMPILERS, stack.framework_year, is_split)
    per_logit += max(policy.activation.num_bytes - _NARROW_BYTES, 0.0)
    elems = parts.logits / (layout.tp * layout.cp) * stages.last
    held = stages.layers
    if 0.0 < framework.offloads_checkpoints_from <= stack.framework_year:
        whole = layout.full * flag_of(layout.recomputed_share >= 1.0)
        held = where(whole, least(held, _HELD_INPUTS), held)
    # The gathered input of a column-parallel product, and its gradient before it is scattered.
    gathers = layout.sequence_parallel * is_split
    working = parts.working / (layout.tp * layout.cp) + 2.0 * parts.boundary / layout.cp * gathers
    gathered = parts.boundary / layout.cp * stages.last * splits_residual * is_split
    outputs: Number = 0.0
    if framework.keeps_stage_outputs:
        outputs = parts.boundary / of_whole * real / layout.cp * (1.0 - stages.last)
    logits, gradient = elems * per_logit, elems * policy.activation.num_bytes
    if stack.chunked_loss:
        # Loss and gradients come out of the forward pass: a chunk, and the gradient of the head's input.
        inputs = parts.boundary / layout.cp * stages.last
        logits = least(logits, (_CHUNK + 1.0) * inputs)
        gradient = least(gradient, inputs)
    return _BytesPerSample(
        saved=here(kept) * held + here(parts.before.saved) * stages.first + outputs,
        ends=here(parts.after.saved) * stages.last,
        logits=logits + gathered,
        logit_gradient=gradient + gathered,
        layer=here(again) + working,
    )


def _recomputed(
    parts: ModelParts, layer: Layer, layout: Layouts, framework: FrameworkMemory
) -> tuple[SavedBytes, SavedBytes]:
    """What a mean layer keeps, and what one layer recomputes in its backward pass."""
    whole = layer.saved
    selected = layer.without_scores if framework.selective == "attention" else layer.products
    full = layout.full * (parts.num_layers > 1)
    # A layer keeps its input instead, if that is less: of convolutions in place it may be all there is.
    share = layout.recomputed_share
    split = (1.0 - share) * whole.split
    unsplit = share * least(parts.boundary, whole.total) + (1.0 - share) * whole.whole
    dropped = 1.0 - (split + unsplit) / most(whole.total, 1.0)
    again = least(parts.num_layers * most(dropped, 0.0), 1.0)
    selective = layout.selective

    def of(full_value: Number, selective_value: Number, value: Number) -> Number:
        return where(full, full_value, where(selective, selective_value, value))

    return (
        SavedBytes(
            split=of(split, selected.split, whole.split), whole=of(unsplit, selected.whole, whole.whole)
        ),
        SavedBytes(
            split=of(again * whole.split, most(whole.split - selected.split, 0.0), 0.0),
            whole=of(again * whole.whole, most(whole.whole - selected.whole, 0.0), 0.0),
        ),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _LocalElements:
    """Parameter elements that one device of a stage holds, before data-parallel sharding."""

    dense: Number
    """Trained ones outside experts."""
    experts: Number
    frozen: Number
    packed: Number
    """Of the frozen ones, those held in four bits."""
    products: Number
    """Of those, weights of the layers' products and of an untied head: what is cast to the matmul type."""
    unit: Number
    """Largest sharded unit: one layer."""
    packed_unit: Number
    """Of it, what is held in four bits."""
    unpacked: Number
    """The largest weight that is unpacked at a time."""
    root: Number
    """What belongs to no layer: embedding and head, gathered as a unit of their own."""
    head: Number
    """Of it, what comes after the layers: its gradient is the first there is."""


def _local_elements(parts: ModelParts, layer: Layer, layout: Layouts, stages: Stages) -> _LocalElements:
    """What a stage holds; the first embeds, the last has the head."""
    experts_split, tp = layout.ep * layout.etp, layout.tp
    before, after, layers = stages.first, stages.last, stages.layers
    # A head that shares the embedding's table has its own copy where it stands on another stage.
    copy = parts.tied * after * (1.0 - before)
    ends = parts.before.dense * before + parts.after.dense * after + copy
    frozen_ends = parts.before.frozen * before + parts.after.frozen * after
    packed_ends = parts.before.packed * before + parts.after.packed * after
    expert_ends = parts.before.experts * before + parts.after.experts * after
    unit = (layer.dense + layer.frozen) / tp + layer.experts / experts_split
    head = (parts.after.dense + parts.tied) / tp
    return _LocalElements(
        dense=(layer.dense * layers + ends) / tp,
        experts=(layer.experts * layers + expert_ends) / experts_split,
        frozen=(layer.frozen * layers + frozen_ends) / tp,
        packed=(layer.packed * layers + packed_ends) / tp,
        products=unit * layers + head * after,
        unit=unit,
        packed_unit=layer.packed / tp,
        unpacked=layer.unpacked / tp,
        root=(ends + frozen_ends) / tp,
        head=head * after,
    )


def _states(
    local: _LocalElements,
    layout: Layouts,
    policy: PrecisionPolicy,
    framework: FrameworkMemory,
    optimizer: str,
) -> dict[str, Number]:
    """Named bytes of parameters, gradients, optimizer states and engine buffers on one device."""
    zero, trained = layout.zero_stage, local.dense + local.experts
    shared = local.dense / layout.shards + local.experts / layout.expert_shards
    by_states, by_gradients, fully = (flag_of(zero >= stage) for stage in (1, 2, _FULLY_SHARDED))
    master = policy.master.num_bytes if policy.master is not None else 0.0
    # States alone in host memory are DeepSpeed's: the masters go with them, 16-bit shards stay.
    own_master = 1.0 - (layout.offloads - layout.offloads_parameters)
    shard_is_master = fully * own_master * (framework.shard_is_master and policy.master is not None)
    param = where(shard_is_master, master, policy.param.num_bytes)
    grad = where(shard_is_master, most(policy.grad.num_bytes, param), policy.grad.num_bytes)
    grad = least(grad, framework.most_gradient_bytes)
    kept = 1.0 - fully * layout.offloads_parameters
    on_device = 1.0 - layout.offloads
    frozen = _frozen_bytes(local, policy) / where(fully, layout.shards, 1.0)
    experts = local.experts / where(fully, layout.expert_shards, 1.0)
    narrow = framework.fp32_gradients and policy.grad.num_bytes < _FP32_BYTES
    # DeepSpeed sums bfloat16 gradients into a whole fp32 copy, fp16 ones into a copy of the shard alone.
    accumulated = _FP32_BYTES if narrow and policy.grad is DType.BF16 else 0.0
    fp32_copy = _FP32_BYTES if narrow and not accumulated else 0.0
    outside = np.round(least(local.root, trained) / most(trained, _TINY), 6)
    inside = states_per_param(optimizer)
    per_param = inside + outside * (states_per_param(optimizer, 1.0) - inside)
    states = per_param * state_bytes(optimizer, policy) + fp32_copy
    sharded = where(by_states, shared, trained)
    gathers = fully * flag_of(layout.shards > 1)
    return {
        "parameters": ((where(fully, shared, trained) - experts) * param + frozen) * kept,
        "expert_parameters": experts * param * kept,
        "cast_weights": _cast_bytes(local, policy, framework) * (1.0 - fully)
        + local.unpacked * policy.activation.num_bytes,
        "gradients": where(by_gradients, shared * on_device, trained) * (grad + accumulated),
        "gradient_buckets": _bucket_bytes(trained, layout, policy, framework),
        "master_weights": sharded * where(shard_is_master, 0.0, master) * on_device,
        "optimizer_states": sharded * states * on_device,
        "gathered": _gathered_bytes(local, layout, policy) * gathers,
    }


def _update_bytes(
    local: _LocalElements, layout: Layouts, framework: FrameworkMemory, *, fused: bool
) -> Number:
    """Copies of the optimizer step: one in fp32 where it goes operation by operation, else the stack's."""
    per_param = framework.step_bytes if fused else max(framework.step_bytes, _FP32_BYTES)
    shared = local.dense / layout.shards + local.experts / layout.expert_shards
    return (
        where(flag_of(layout.zero_stage >= 1), shared, local.dense + local.experts)
        * per_param
        * (1.0 - layout.offloads)
    )


def _framework_bytes(layout: Layouts, cluster: Cluster, year: float, pipeline_communicators: int) -> Number:
    """Context, workspaces, and the buffers of one communicator for every axis in use.

    Args:
        layout: Degrees.
        cluster: Its device has multiprocessors, for each of which a context reserves memory; its links have
            channels, each with buffers.
        year: Of the framework: since CUDA 11.7 kernels are loaded when they are first used.
        pipeline_communicators: Those that a pipeline of this stack has beyond one per axis.
    """
    data = constants("memory")
    lazy = year >= float(data["lazy_loading_from"])
    per_sm = float(data["context_bytes_per_sm" if lazy else "eager_context_bytes_per_sm"])
    fixed = float(data["context_bytes"]) + per_sm * min(cluster.device.sm_count, float(data["most_sms"]))
    fixed += float(data["workspace_bytes"])
    axes = sum(flag_of(degree > 1) for degree in (layout.dp, layout.tp, layout.pp, layout.cp, layout.ep))
    rate = cluster.intra_node.bandwidth_bytes_per_s / float(data["communicator_link_bytes_per_s"])
    buffers = max(min(rate, 1.0) * data["communicator_bytes"], data["least_communicator_bytes"])
    return fixed + (axes + pipeline_communicators * flag_of(layout.pp > 1)) * float(buffers)


def _frozen_bytes(local: _LocalElements, policy: PrecisionPolicy) -> Number:
    """Frozen weights are held in the type they are used in, or in four bits: nothing updates them."""
    used = policy.matmul if policy.fp8_recipe else policy.activation
    width = min(used.num_bytes, policy.param.num_bytes)
    return (local.frozen - local.packed) * width + local.packed * PACKED_BYTES


def _cast_bytes(local: _LocalElements, policy: PrecisionPolicy, framework: FrameworkMemory) -> Number:
    """Copies of weights in the matmul type that live as long as the weights.

    Autocast keeps them until the backward pass has used them; under ZeRO 3 only gathered units have any.
    """
    trained = most(local.products - local.frozen, 0.0)
    if policy.fp8_recipe and framework.fp8_weight_copies:
        return trained * policy.matmul.num_bytes * _ORIENTATIONS
    if policy.autocast and policy.activation.num_bytes < policy.param.num_bytes:
        return trained * policy.activation.num_bytes
    return 0.0


def _bucket_bytes(
    trained: Number, layout: Layouts, policy: PrecisionPolicy, framework: FrameworkMemory
) -> Number:
    """Buffers from which gradients are exchanged: all of them again under DDP, fixed ones in DeepSpeed."""
    sharded = flag_of(layout.zero_stage >= 1)
    if framework.bucket_elems:
        # ZeRO reduces and gathers through a bucket each; plain data parallelism only reduces.
        elems = least(where(sharded, framework.bucket_elems, framework.bucket_elems / 2.0), trained)
    else:
        elems = trained * (1.0 - sharded) * framework.copies_gradients
    return elems * policy.reduce.num_bytes * layout.exchanges


def _gathered_bytes(local: _LocalElements, layout: Layouts, policy: PrecisionPolicy) -> Number:
    """Units gathered at once in the type they are used in, with the gradient of one before it is reduced.

    Packed weights are gathered packed.
    """
    width = min(policy.param.num_bytes, policy.activation.num_bytes)
    units = 1.0 + layout.prefetch
    whole = local.dense + local.experts + local.frozen
    gathered = where(layout.reshards, local.root + local.unit * units, whole)
    packed = where(layout.reshards, local.packed_unit * units, local.packed)
    reduced = policy.reduce.num_bytes if policy.reduce.num_bytes != width else 0.0
    trained_share = 1.0 - local.frozen / most(whole, 1.0)
    gradients = (local.unit * (width + reduced) + local.head * width) * trained_share
    return (gathered - packed) * width + packed * PACKED_BYTES + gradients
