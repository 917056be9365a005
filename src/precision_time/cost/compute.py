"""Compute seconds of one optimizer step on one device, by named term, and the facts behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from ..arrays import Bools, Floats, Indices, Number, Same
from ..parallel.layout import Checkpointing, Layout
from ..precision.lowered import LoweredStep
from ..precision.lowering import DTYPES, IS_PRODUCT, OP_CLASSES
from ..precision.policy import DType
from ..workload.graph import OpClass
from .constants import constants
from .job import JobGroup, Stack
from .roofline import KernelModel, compiler_rates, kernel_seconds, rates_of, stack_shortfall
from .sharding import ShardSpec, StageShares, shard, stage_shares
from .terms import CASTS, HOST_STALL, KERNEL_TERMS, REST, TERM_OF_CLASS
from .traffic import traffic_of

_EQUAL = 1e-9
"""Relative difference below which the times of two stages are the same."""
_TINY_S = 1e-12
_KEPT_JOBS, _KEPT_ELEMENTS = 64, 2**18
"""Jobs of a group, or jobs times kernels, whose costs are remembered: arrays of more would fill the memory."""
_FUSIBLE = np.array(
    [
        op_class in (OpClass.ELEMENTWISE, OpClass.NORM, OpClass.SOFTMAX, OpClass.REDUCTION, OpClass.MOVE)
        for op_class in OP_CLASSES
    ]
)
_NARROW = np.array([dtype.num_bytes <= DType.BF16.num_bytes or dtype is DType.TF32 for dtype in DTYPES])
_SELECTIVE = np.array(
    [op_class in (OpClass.BMM, OpClass.SOFTMAX, OpClass.ATTENTION) for op_class in OP_CLASSES]
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeCosts:
    """Seconds on the slowest stage, shape (C,) each; `terms` add up to the compute part of a step."""

    terms: Mapping[str, Floats]
    forward_s: Floats
    """Forward kernels of one micro batch."""
    backward_s: Floats
    """Backward kernels of one micro batch, without what checkpointing repeats."""
    recompute_s: Floats
    """Forward kernels that the backward pass of one micro batch repeats."""
    host_s: Floats
    """Time of the host to start the kernels of one micro batch."""
    kernels_s: Floats
    """Seconds of each kernel of one micro batch, shape (C, N)."""
    step: LoweredStep
    """The kernels of this device."""
    shares: StageShares
    stage_forward_s: Floats
    """Of one micro batch on each kind of stage, shape (C, S); the host's time where it is longer."""
    stage_backward_s: Floats
    """With what checkpointing repeats, shape (C, S)."""
    facts: Mapping[str, Floats]

    @property
    def busy_s(self) -> Floats:
        """Kernels of one micro batch, with what checkpointing repeats."""
        busy: Floats = self.forward_s + self.backward_s + self.recompute_s
        return busy


def compute_costs(step: LoweredStep, group: JobGroup, model: KernelModel) -> ComputeCosts:
    """Seconds of the kernels of one optimizer step on one device of the slowest pipeline stage.

    What model parallelism adds in messages is the business of the communication terms.

    Args:
        step: Typed kernels of one micro batch of the whole model.
        group: C jobs.
        model: Calibrated utilizations.
    """
    layout, single = group.layout, group.layout.data_parallel_engine == "dataparallel"
    kept = is_kept(len(group), step)
    return (_compute_costs if kept else _compute_costs.__wrapped__)(
        step,
        replace(layout, dp=1, shard_size=0, micro_batch_size=1.0, zero_stage=layout.zero_stage // 3 * 3),
        group.stack,
        Same(group.cluster.device),
        Same(group.workload.graph),
        Same(model),
        np.asarray(group.micro_batch_size, dtype=np.float64).tobytes(),
        group.cluster.num_devices if single else 1,
    )


@lru_cache(maxsize=16)
def _compute_costs(
    step: LoweredStep,
    layout: Layout,
    stack: Stack,
    device_key: Same,
    graph_key: Same,
    model_key: Same,
    batches: bytes,
    process_devices: int,
) -> ComputeCosts:
    """The same for any number of replicas: what is asked on few devices and on many is worked out once."""
    device, model = device_key.value, model_key.value
    micro_batch_size = np.frombuffer(batches)
    traffic = traffic_of(graph_key.value)
    unpadded = float(constants("memory")["unpadded_share"]) if stack.unpadded_sequences else 1.0
    samples = micro_batch_size[:, None] * (unpadded / layout.cp)
    compiler = compiler_rates(stack.compiler)
    local = shard(step, _shard_spec(layout, stack, float(traffic.boundary_elems)))
    shares = stage_shares(local, round(float(traffic.num_layers)), layout.pp, layout.stage_layers)
    whole_s = kernel_seconds(local, samples, rates_of([device]), model) * stack_shortfall(stack.profile)
    fusion = (
        min(compiler.fusion, constants("kernels")["fused_kernels"])
        if stack.fused_kernels
        else compiler.fusion
    )
    whole_s = whole_s * np.where(_FUSIBLE[local.op_class] | local.is_cast, fusion, 1.0)
    if layout.zero_stage < 3:  # noqa: PLR2004
        whole_s = whole_s * np.where(local.once_per_step, 1.0 / layout.num_micro_batches, 1.0)
    forward, again = local.phase == 0, _recomputed(local, shares, layout)
    launches = local.launches * local.repeat * local.sequential_steps
    per_launch_s = device.launch_overhead_s * compiler.host
    stage_s = np.stack([whole_s @ (shares.kernels * part).T for part in (forward, ~forward, again)])
    host_s = np.stack(
        [per_launch_s * shares.kernels @ (launches * part) for part in (forward, ~forward + again)]
    )
    again_layers = float(again.max(initial=0.0)) if layout.checkpointing is Checkpointing.FULL else 0.0
    host_s += stack.host_per_layer_s * np.outer([1.0, 1.0 + again_layers], shares.layers)
    if layout.data_parallel_engine == "dataparallel":
        host_s *= 1.0 + constants("host")["single_process_share"] * (process_devices - 1)
    busy = stage_s.sum(axis=0)
    longer = longer_of(busy, host_s.sum(axis=0)) / np.maximum(busy, _TINY_S)
    forward_s, backward_s = stage_s[0] * longer, (stage_s[1] + stage_s[2]) * longer
    slowest = first_slowest(forward_s + backward_s)
    rows = np.arange(len(micro_batch_size))
    kernels_s = whole_s * shares.kernels[slowest]
    busy_s, host_slowest_s = stage_s[:, rows, slowest], host_s.sum(axis=0)[slowest]
    terms = {term: kernels_s[:, mask].sum(axis=1) for term, mask in _term_masks(local).items()}
    terms["recompute_s"] = busy_s[2]
    terms[HOST_STALL] = longer_of(busy_s.sum(axis=0), host_slowest_s) - busy_s.sum(axis=0)
    return ComputeCosts(
        terms={term: values * layout.num_micro_batches for term, values in terms.items()},
        forward_s=busy_s[0],
        backward_s=busy_s[1],
        recompute_s=busy_s[2],
        host_s=host_slowest_s,
        kernels_s=kernels_s,
        step=local,
        shares=shares,
        stage_forward_s=forward_s,
        stage_backward_s=backward_s,
        facts={**_facts(step, samples * layout.cp, whole_s), "host_s": host_slowest_s},
    )


def is_kept(jobs: int, step: LoweredStep) -> bool:
    """Whether what is worked out for so many jobs of a group is remembered."""
    return jobs <= _KEPT_JOBS or jobs * len(step.op_class) <= _KEPT_ELEMENTS


def longer_of(one_s: Floats, other_s: Number) -> Floats:
    r"""Seconds of two things at the same time: $(a^3 + b^3)^{1/3}$, the longer one and a little more.

    Neither is even over a step: where kernels are short the device waits, where they are long the host does,
    so that the two are not hidden behind each other entirely when they are alike. At most 26 % above the
    longer one, where they are equal; it never falls with either.

    Accuracy: powers of 2 and 3 leave less spread in steps of one device than higher ones and the plain
    maximum (scripts/calibrate_host.py).
    """
    both: Floats = np.cbrt(one_s**3 + np.asarray(other_s) ** 3)
    return np.maximum(both, one_s)


def first_slowest(stage_s: Floats) -> Indices:
    """The first of the slowest stages, shape (C,).

    Stages that take the same time differ in their last bits, by which jobs are priced together.

    Args:
        stage_s: Seconds of each stage, shape (C, stages).
    """
    first: Indices = np.argmax(stage_s >= stage_s.max(axis=1, keepdims=True) * (1.0 - _EQUAL), axis=1)
    return first


def _shard_spec(layout: Layout, stack: Stack, boundary_elems: float) -> ShardSpec:
    return ShardSpec(
        tp=layout.tp,
        ep=layout.ep,
        expert_tp=layout.tensor_degree_of_experts,
        sequence_parallel=layout.sequence_parallel,
        expert_capacity=layout.expert_capacity,
        fused_attention=stack.fused_attention,
        boundary_elems=boundary_elems,
    )


@lru_cache(maxsize=512)
def _term_masks(step: LoweredStep) -> dict[str, Bools]:
    names = np.array([TERM_OF_CLASS.get(op_class, REST) for op_class in OP_CLASSES])[step.op_class]
    names = np.where(step.is_cast, CASTS, names)
    return {term: names == term for term in KERNEL_TERMS if term != "recompute_s"}


def _recomputed(step: LoweredStep, shares: StageShares, layout: Layout) -> Floats:
    """Share of each kernel that the backward pass runs again under activation checkpointing."""
    again = step.phase == 0
    if layout.checkpointing is Checkpointing.NONE:
        return np.zeros(len(again))
    if layout.checkpointing is Checkpointing.SELECTIVE:
        return np.asarray(again & _SELECTIVE[step.op_class], dtype=np.float64)
    return np.where(again & shares.in_layers, layout.checkpointed_share, 0.0)


def _facts(step: LoweredStep, samples: Floats, seconds: Floats) -> dict[str, Floats]:
    """What the learned stage reads: work, traffic, shares. Shapes (C,)."""
    scaled = step.m_scales | step.k_scales | step.count_scales
    repeats = step.repeat * step.sequential_steps
    flops = step.flops * repeats * np.where(scaled, samples, 1.0)
    moved = (step.bytes_per_sample * samples + step.bytes_fixed) * repeats
    narrow = _NARROW[step.dtype] & IS_PRODUCT[step.op_class]
    total_flops = flops.sum(axis=1)
    total_bytes = moved.sum(axis=1)
    total_s = np.maximum(seconds.sum(axis=1), 1e-12)
    facts = {
        "flops": total_flops,
        "bytes": total_bytes,
        "cast_bytes": moved[:, step.is_cast].sum(axis=1),
        "launches": np.full(len(samples), (step.launches * repeats).sum()),
        "tensor_core_share": flops[:, narrow].sum(axis=1) / np.maximum(total_flops, 1.0),
        "weight_gradient_share": flops[:, step.k_scales].sum(axis=1) / np.maximum(total_flops, 1.0),
    }
    for op_class in OP_CLASSES:
        mask = step.op_class == OP_CLASSES.index(op_class)
        facts[f"time_share.{op_class.value}"] = seconds[:, mask].sum(axis=1) / total_s
    facts["mean_inner"] = _weighted(step.k, flops)
    facts["mean_outer"] = _weighted(step.n, flops)
    facts["mean_kernel_area"] = _weighted(step.kernel, flops)
    facts["largest_kernel_share"] = seconds.max(axis=1) / total_s
    facts["short_kernel_share"] = np.where(seconds / step.repeat < 1e-5, step.repeat, 0.0).sum(axis=1) / max(
        float(step.repeat.sum()), 1.0
    )
    return facts


def _weighted(values: Floats, weights: Floats) -> Floats:
    """Weighted geometric mean of `values` (at least 1) over kernels, shape (C,)."""
    logs = np.log(np.maximum(values, 1.0))
    mean: Floats = np.exp((weights * logs).sum(axis=1) / np.maximum(weights.sum(axis=1), 1e-12))
    return mean
