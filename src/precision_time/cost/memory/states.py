"""Bytes that do not grow with the batch: parameters, gradients, optimizer states, gathered units, buffers.

References: Rajbhandari et al., ZeRO, SC 2020, section 3 (what 16 bytes per parameter are, what each stage
shards); Zhao et al., PyTorch FSDP, VLDB 2023 (units, prefetch); Ren et al., ZeRO-Offload, ATC 2021.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from ...hardware.device import Cluster
from ...parallel.layout import Layout, Offload
from ...precision.policy import DType, PrecisionPolicy
from ...workload.packing import PACKED_BYTES
from ..constants import constants
from ..job import Stack
from ..optimizer import state_bytes, states_per_param
from ..stacks import kind_of_stack
from .components import ModelComponents

_FULLY_SHARDED = 3
_FP32_BYTES = 4.0
_ORIENTATIONS = 2.0
"""An fp8 weight is kept as it is and transposed (Transformer Engine)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FrameworkMemory:
    """What a stack holds besides what the mathematics needs; `cost/data/memory.toml` explains each field."""

    splits_residual: bool
    selective: str
    loss_bytes: float
    split_loss_bytes: float
    fused_loss_from: float
    fused_loss_bytes: float
    loss_needs_compiler: bool
    shard_is_master: bool
    fp32_gradients: bool
    step_bytes: float
    copies_gradients: bool
    most_gradient_bytes: float
    bucket_elems: float
    pipeline_communicators: int
    fragmentation: float
    fused_norms_from: float
    keeps_stage_outputs: bool
    placeholder_gradients_from: float
    fp8_weight_copies: bool
    fp8_saves_fp8: bool

    def logit_bytes(self, compiled: bool, year: float, split: bool) -> float:
        """Bytes per entry of the logits at the peak of the loss, for 16-bit logits, split or not."""
        if (compiled or not self.loss_needs_compiler) and 0.0 < self.fused_loss_from <= year:
            return self.fused_loss_bytes
        return self.split_loss_bytes if split else self.loss_bytes


@cache
def _of_profile(profile: str) -> FrameworkMemory:
    tables: Mapping[str, Mapping[str, Any]] = constants("memory")["framework"]
    named = (profile, kind_of_stack(profile))
    found = (table for name in named for table in tables.values() if name in table.get("stacks", ()))
    own = next(found, {})
    fields = {**tables["default"], **own}
    return FrameworkMemory(**{name: fields[name] for name in FrameworkMemory.__dataclass_fields__})


def framework_memory(stack: Stack) -> FrameworkMemory:
    """How a stack uses memory; as plain PyTorch does where the data do not name its profile."""
    return _of_profile(stack.profile)


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalElements:
    """Parameter elements that one device of a stage holds, before data-parallel sharding."""

    dense: float
    """Trained ones outside experts."""
    experts: float
    frozen: float
    packed: float
    """Of the frozen ones, those held in four bits."""
    products: float
    """Of those, weights of the layers' products and of an untied head: what is cast to the matmul type."""
    unit: float
    """Largest sharded unit: one layer."""
    packed_unit: float
    """Of it, what is held in four bits."""
    unpacked: float
    """The largest weight that is unpacked at a time."""
    root: float
    """What belongs to no layer: embedding and head, gathered as a unit of their own."""
    head: float
    """Of it, what comes after the layers: its gradient is the first there is."""


def local_elements(
    components: ModelComponents, layout: Layout, layers: float, *, first: bool, last: bool
) -> LocalElements:
    """What a stage with so many layers holds; the first embeds, the last has the head."""
    experts_split = layout.ep * layout.tensor_degree_of_experts
    before, after, layer = (float(first), float(last), components.layer)
    # A head that shares the embedding's table has its own copy where it stands on another stage.
    copy = components.tied * after * (1.0 - before)
    ends = components.before.dense * before + components.after.dense * after + copy
    frozen_ends = components.before.frozen * before + components.after.frozen * after
    packed_ends = components.before.packed * before + components.after.packed * after
    tp = layout.tp
    unit = (layer.dense + layer.frozen) / tp + layer.experts / experts_split
    return LocalElements(
        dense=(layer.dense * layers + ends) / tp,
        experts=(
            layer.experts * layers + components.before.experts * before + components.after.experts * after
        )
        / experts_split,
        frozen=(layer.frozen * layers + frozen_ends) / tp,
        packed=(layer.packed * layers + packed_ends) / tp,
        products=unit * layers + (components.after.dense + components.tied) * after / tp,
        unit=unit,
        packed_unit=layer.packed / tp,
        unpacked=layer.unpacked / tp,
        root=(ends + frozen_ends) / tp,
        head=(components.after.dense + components.tied) * after / tp,
    )


def state_terms(
    local: LocalElements, layout: Layout, policy: PrecisionPolicy, framework: FrameworkMemory, optimizer: str
) -> dict[str, float]:
    """Named bytes of parameters, gradients, optimizer states and engine buffers on one device."""
    shards = layout.shard_ranks
    expert_shards = min(layout.expert_data_ranks, shards)
    zero = layout.zero_stage

    def sharded(stage: int) -> float:
        """Trained elements under a ZeRO stage that shards them, or does not yet."""
        if zero < stage:
            return local.dense + local.experts
        return local.dense / shards + local.experts / expert_shards

    fully = zero >= _FULLY_SHARDED
    on_host = layout.offload is not Offload.NONE
    shard_is_master = fully and framework.shard_is_master and policy.master is not None
    param = policy.master.num_bytes if shard_is_master and policy.master else policy.param.num_bytes
    grad = max(policy.grad.num_bytes, param) if shard_is_master else policy.grad.num_bytes
    grad = min(grad, framework.most_gradient_bytes)
    kept = 0.0 if fully and layout.offload is Offload.PARAMETERS else 1.0
    on_device = 0.0 if on_host else 1.0
    frozen = _frozen_bytes(local, policy) / (shards if fully else 1)
    experts = local.experts / (expert_shards if fully else 1)
    master = policy.master.num_bytes if policy.master is not None and not shard_is_master else 0.0
    narrow = framework.fp32_gradients and policy.grad.num_bytes < _FP32_BYTES
    # DeepSpeed sums bfloat16 gradients into a whole fp32 copy, fp16 ones into a copy of the shard alone.
    accumulated = _FP32_BYTES if narrow and policy.grad is DType.BF16 else 0.0
    fp32_copy = _FP32_BYTES if narrow and not accumulated else 0.0
    return {
        "parameters": ((sharded(3) - experts) * param + frozen) * kept,
        "expert_parameters": experts * param * kept,
        "cast_weights": _cast_bytes(local, layout, policy, framework)
        + local.unpacked * policy.activation.num_bytes,
        "gradients": sharded(2) * (grad + accumulated) * (on_device if zero > 1 else 1.0),
        "gradient_buckets": _bucket_bytes(local, layout, policy, framework),
        "master_weights": sharded(1) * master * on_device,
        "optimizer_states": sharded(1)
        * (_states(optimizer, round(_outside_share(local), 6)) * _state_bytes(optimizer, policy) + fp32_copy)
        * on_device,
        "gathered": _gathered_bytes(local, layout, policy) if fully and shards > 1 else 0.0,
    }


def update_bytes(local: LocalElements, layout: Layout, framework: FrameworkMemory, *, fused: bool) -> float:
    """Copies of the optimizer step: one in fp32 where it goes operation by operation, else the stack's."""
    per_param = framework.step_bytes if fused else max(framework.step_bytes, _FP32_BYTES)
    if layout.offload is not Offload.NONE:
        return 0.0
    shards = layout.shard_ranks if layout.zero_stage else 1
    expert_shards = min(layout.expert_data_ranks, shards)
    return (local.dense / shards + local.experts / expert_shards) * per_param


def framework_bytes(layout: Layout, cluster: Cluster, year: float, pipeline_communicators: int) -> float:
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
    axes = sum(degree > 1 for degree in (layout.dp, layout.tp, layout.pp, layout.cp, layout.ep))
    if not axes:
        return fixed
    pairs = pipeline_communicators if layout.pp > 1 else 0
    rate = cluster.intra_node.bandwidth_bytes_per_s / float(data["communicator_link_bytes_per_s"])
    buffers = max(min(rate, 1.0) * data["communicator_bytes"], data["least_communicator_bytes"])
    return fixed + (axes + pairs) * float(buffers)


@lru_cache(maxsize=512)
def _states(optimizer: str, outside_share: float) -> float:
    return states_per_param(optimizer, outside_share)


@lru_cache(maxsize=512)
def _state_bytes(optimizer: str, policy: PrecisionPolicy) -> float:
    return state_bytes(optimizer, policy)


def _outside_share(local: LocalElements) -> float:
    """Share of the trained elements in embedding and head."""
    trained = local.dense + local.experts
    return min(local.root, trained) / trained if trained else 0.0


def _frozen_bytes(local: LocalElements, policy: PrecisionPolicy) -> float:
    """Frozen weights are held in the type they are used in, or in four bits: nothing updates them."""
    used = policy.matmul if policy.fp8_recipe else policy.activation
    width = min(used.num_bytes, policy.param.num_bytes)
    return (local.frozen - local.packed) * width + local.packed * PACKED_BYTES


def _cast_bytes(
    local: LocalElements, layout: Layout, policy: PrecisionPolicy, framework: FrameworkMemory
) -> float:
    """Copies of weights in the matmul type that live as long as the weights.

    Autocast keeps them until the backward pass has used them; under ZeRO 3 only gathered units have any.
    """
    if layout.zero_stage >= _FULLY_SHARDED:
        return 0.0
    trained = local.products - local.frozen if local.products > local.frozen else 0.0
    if policy.fp8_recipe and framework.fp8_weight_copies:
        return trained * policy.matmul.num_bytes * _ORIENTATIONS
    if policy.autocast and policy.activation.num_bytes < policy.param.num_bytes:
        return trained * policy.activation.num_bytes
    return 0.0


def _bucket_bytes(
    local: LocalElements, layout: Layout, policy: PrecisionPolicy, framework: FrameworkMemory
) -> float:
    """Buffers from which gradients are exchanged: all of them again under DDP, fixed ones in DeepSpeed."""
    if layout.data_ranks == 1 or layout.data_parallel_engine != "ddp":
        return 0.0
    if framework.bucket_elems:
        # ZeRO reduces and gathers through a bucket each; plain data parallelism only reduces.
        elems = framework.bucket_elems if layout.zero_stage else framework.bucket_elems / 2.0
        return min(elems, local.dense + local.experts) * policy.reduce.num_bytes
    if layout.zero_stage or not framework.copies_gradients:
        return 0.0
    return (local.dense + local.experts) * policy.reduce.num_bytes


def _gathered_bytes(local: LocalElements, layout: Layout, policy: PrecisionPolicy) -> float:
    """Units gathered at once in the type they are used in, with the gradient of one before it is reduced.

    Packed weights are gathered packed.
    """
    width = min(policy.param.num_bytes, policy.activation.num_bytes)
    gathered = local.root + local.unit * (1.0 + layout.prefetch)
    packed = local.packed_unit * (1.0 + layout.prefetch)
    if not layout.reshard_after_forward:
        gathered, packed = local.dense + local.experts + local.frozen, local.packed
    reduced = policy.reduce.num_bytes if policy.reduce.num_bytes != width else 0.0
    trained_share = 1.0 - local.frozen / max(local.dense + local.experts + local.frozen, 1.0)
    gradients = (local.unit * (width + reduced) + local.head * width) * trained_share
    return (gathered - packed) * width + packed * PACKED_BYTES + gradients
