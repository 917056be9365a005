"""Compute seconds of one optimizer step on one device, by named term, and the facts behind them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from ..arrays import Floats, Indices, Number, Same, row_by_row
from ..cache import derived, memo
from ..parallel.layout import Recompute
from ..precision.lowered import LoweredStep
from ..precision.lowering import DTYPES, IS_PRODUCT, OP_CLASSES
from ..precision.policy import DType
from ..records import dataclass
from ..workload.graph import OpClass, OpGraph
from .constants import constants, measured
from .job import Jobs
from .recompute import recomputed_shares
from .roofline import (
    DeviceRates,
    KernelModel,
    compiler_rates,
    kernel_seconds_once,
    rates_of,
    stack_shortfall,
)
from .sharding import ShardSpec, StageShares, shard, stage_shares
from .stacks import Stack
from .terms import CASTS, HOST_STALL, KERNEL_TERMS, REST, TERM_OF_CLASS
from .traffic import traffic_of

_EQUAL = 1e-9
"""Relative difference below which the times of two stages are the same."""
_TINY_S = 1e-12
_KEPT_JOBS, _KEPT_ELEMENTS = 64, 2**18
"""Jobs of a group, or jobs times kernels, whose costs are remembered: more would fill the memory."""
_FUSIBLE = np.array(
    [
        op_class in (OpClass.ELEMENTWISE, OpClass.NORM, OpClass.SOFTMAX, OpClass.REDUCTION, OpClass.MOVE)
        for op_class in OP_CLASSES
    ]
)
_OF_KERNELS = tuple(term for term in KERNEL_TERMS if term != "recompute_s")
_TERM = np.array([_OF_KERNELS.index(TERM_OF_CLASS.get(op_class, REST)) for op_class in OP_CLASSES])
_TIME_SHARES = tuple(f"time_share.{op_class.value}" for op_class in OP_CLASSES)
_MEANS = {"mean_inner": "k", "mean_outer": "n", "mean_kernel_area": "kernel"}
"""Facts that are geometric means of a column of the products."""
_SHORT_S = 1e-5
_NARROW = np.array([dtype.num_bytes <= DType.BF16.num_bytes or dtype is DType.TF32 for dtype in DTYPES])
_SCALED = np.array([dtype.num_bytes < DType.BF16.num_bytes for dtype in DTYPES])
"""Types that need a scale, and so a pass of their own, before they are written."""
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


def compute_costs(step: LoweredStep, group: Jobs, model: KernelModel) -> ComputeCosts:
    """Seconds of the kernels of one optimizer step on one device of the slowest pipeline stage.

    What model parallelism adds in messages is the business of the communication terms.

    Args:
        step: Typed kernels of one micro batch of the whole model.
        group: C jobs.
        model: Calibrated utilizations.
    """
    layout, single = group.layout, group.layout.data_parallel_engine == "dataparallel"
    narrowed_once = layout.zero_stage < 3 and bool(step.once_per_step.any())  # noqa: PLR2004
    cut = _Cut(
        tp=layout.tp,
        ep=layout.ep,
        etp=layout.tensor_degree_of_experts,
        sequence_parallel=layout.sequence_parallel,
        expert_capacity_factor=layout.expert_capacity_factor,
        cp=layout.cp,
        pp=layout.pp,
        stage_layers=layout.stage_layers,
        recompute=layout.recompute,
        recompute_share=layout.recompute_share,
        recompute_modules=layout.recompute_modules,
    )
    kernels = _device_kernels(step, cut, group.stack, Same(group.cluster.device), group.workload.graph, model)
    kept = len(group) <= _KEPT_JOBS or len(group) * len(step.op_class) <= _KEPT_ELEMENTS
    return (_kept_costs if kept else _compute_costs)(
        kernels,
        group.micro_batch_size.tobytes(),
        group.num_microbatches.tobytes(),
        narrowed_once,
        group.cluster.num_devices if single else 1,
    )


class _Cut(NamedTuple):
    """What of a layout decides which kernels a device runs, and how often; fields as of `Layout`."""

    tp: int
    ep: int
    etp: int
    sequence_parallel: bool
    expert_capacity_factor: float
    cp: int
    pp: int
    stage_layers: tuple[int, ...]
    recompute: Recompute
    recompute_share: float
    recompute_modules: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _DeviceKernels:
    """Kernels of one device, and all of their times and sums that the batch does not change."""

    step: LoweredStep
    """Of this device, N kernels; S kinds of stages, T terms."""
    whole: LoweredStep
    shares: StageShares
    rates: DeviceRates
    model: KernelModel
    samples: float
    """Share of a micro batch's samples that the kernels see."""
    samples_of_work: float
    """The same before context ranks share them."""
    scale: Floats
    """Repeats and time steps, and what compilers and stacks make of a kernel, shape (N,)."""
    sums: Floats
    """What kernels are summed by, shape (N, columns): the three passes of each stage, the terms of each
    stage, the operator classes, all."""
    host_s: Floats
    """Host time of both passes on each kind of stage, shape (2, S)."""
    both: Callable[[Floats, Number], Floats]
    """Seconds of the kernels and the host together."""


@memo(512)
def _device_kernels(
    step: LoweredStep, cut: _Cut, stack: Stack, device_key: Same, graph: OpGraph, model: KernelModel
) -> _DeviceKernels:
    """The same for any number of replicas."""
    device = device_key.value
    traffic = traffic_of(graph)
    unpadded = float(constants("memory")["unpadded_share"]) if stack.unpadded_sequences else 1.0
    compiler = compiler_rates(stack.compiler)
    local = shard(step, _shard_spec(cut, stack, float(traffic.boundary_elems)))
    shares = stage_shares(local, round(float(traffic.num_layers)), cut.pp, cut.stage_layers)
    fusion = (
        min(compiler.fusion, constants("kernels")["fused_kernels"])
        if stack.fused_kernels
        else compiler.fusion
    )
    scale = local.sequential_steps * local.repeat * stack_shortfall(stack.profile, device)
    of_activations = local.is_cast & (local.bytes_per_sample > 0.0) & ~_SCALED[local.dtype]
    scale = scale * np.where(_FUSIBLE[local.op_class] | local.is_cast, fusion, 1.0)
    scale = np.where(of_activations, scale * compiler.casts, scale)
    forward, again = local.phase == 0, _recomputed(local, shares, cut, graph)
    passes = np.stack([forward, ~forward, again])
    named = np.where(local.is_cast, _OF_KERNELS.index(CASTS), _TERM[local.op_class])
    terms = named == np.arange(len(_OF_KERNELS))[:, None]
    classes = step.op_class == np.arange(len(OP_CLASSES))[:, None]
    launches = local.launches * local.repeat * local.sequential_steps
    per_launch_s = device.launch_overhead_s * compiler.host * measured(device.arch).get("host", 1.0)
    host_s = np.stack(
        [per_launch_s * shares.kernels @ (launches * part) for part in (forward, ~forward + again)]
    )
    again_layers = float(again.max(initial=0.0)) if cut.recompute is Recompute.FULL else 0.0
    host_s += stack.host_per_layer_s * np.outer([1.0, 1.0 + again_layers], shares.layers)
    return _DeviceKernels(
        step=local,
        whole=step,
        shares=shares,
        rates=rates_of(device),
        model=model,
        samples=unpadded / cut.cp,
        samples_of_work=unpadded,
        scale=scale,
        sums=np.concatenate(
            [(part[:, None] * shares.kernels).reshape(-1, len(scale)) for part in (passes, terms)]
            + [classes, np.ones((1, len(scale)))]
        ).T,
        host_s=host_s,
        both=kernels_and_host(device.arch),
    )


def _compute_costs(
    kernels: _DeviceKernels, batches: bytes, counts: bytes, narrowed_once: bool, process_devices: int
) -> ComputeCosts:
    """Costs of kernels at some batches.

    Args:
        kernels: Of the device.
        batches: Samples of a micro batch of each job, shape (C,).
        counts: Micro batches of a step, shape (C,).
        narrowed_once: Weights are made narrow in one micro batch of a step.
        process_devices: Devices that one process serves.
    """
    micro_batch_size, rounds = np.frombuffer(batches), np.frombuffer(counts)
    jobs, stages = len(micro_batch_size), len(kernels.shares.stages)
    samples = micro_batch_size[:, None] * kernels.samples
    once_s = kernel_seconds_once(kernels.step, samples, kernels.rates, kernels.model)
    whole_s = once_s * kernels.scale
    if narrowed_once and (rounds > 1.0).any():
        whole_s = whole_s * np.where(kernels.step.once_per_step, 1.0 / rounds[:, None], 1.0)
    sums = row_by_row(whole_s, kernels.sums)
    first, last = 3 * stages, sums.shape[1] - len(OP_CLASSES) - 1
    stage_s = sums[:, :first].reshape(jobs, 3, stages).transpose(1, 0, 2)
    host_s = kernels.host_s
    if process_devices > 1:
        host_s = host_s * (1.0 + constants("host")["single_process_share"] * (process_devices - 1))
    busy = stage_s.sum(axis=0)
    longer = kernels.both(busy, host_s.sum(axis=0)) / np.maximum(busy, _TINY_S)
    forward_s, backward_s = stage_s[0] * longer, (stage_s[1] + stage_s[2]) * longer
    slowest = first_slowest(forward_s + backward_s)
    rows = np.arange(jobs)
    busy_s, host_slowest_s = stage_s[:, rows, slowest], host_s.sum(axis=0)[slowest]
    term_s = sums[:, first:last].reshape(jobs, -1, stages)[rows, :, slowest].T
    terms = dict(zip(_OF_KERNELS, term_s, strict=True))
    terms["recompute_s"] = busy_s[2]
    all_s = busy_s.sum(axis=0)
    terms[HOST_STALL] = kernels.both(all_s, host_slowest_s) - all_s
    return ComputeCosts(
        terms={term: values * rounds for term, values in terms.items()},
        forward_s=busy_s[0],
        backward_s=busy_s[1],
        recompute_s=busy_s[2],
        host_s=host_slowest_s,
        kernels_s=whole_s if stages == 1 else whole_s * kernels.shares.kernels[slowest],
        step=kernels.step,
        shares=kernels.shares,
        stage_forward_s=forward_s,
        stage_backward_s=backward_s,
        facts={
            **_facts(kernels.whole, micro_batch_size * kernels.samples_of_work, whole_s, sums[:, last:]),
            "kernels_s": all_s,
            "host_s": host_slowest_s,
        },
    )


_kept_costs = memo(16)(_compute_costs)
"""What is asked on few devices and on many is worked out once: a third of a sweep over numbers of devices."""


def longer_of(one_s: Floats, other_s: Number) -> Floats:
    r"""Seconds of two things at the same time: $(a^3 + b^3)^{1/3}$, the longer one and a little more.

    Neither is even over a step: where kernels are short the device waits, where they are long the host does,
    so that the two are not hidden behind each other entirely when they are alike. At most 26 % above the
    longer one, where they are equal; it never falls with either.

    Accuracy: powers of 2 and 3 leave less spread in steps of one device than higher ones and the plain
    maximum (data/calibrate_host.py).
    """
    other = np.asarray(other_s)
    both: Floats = np.cbrt(one_s * one_s * one_s + other * other * other)  # powers depend on the row count
    return np.maximum(both, one_s)


def kernels_and_host(arch: str) -> Callable[[Floats, Number], Floats]:
    """How the times of kernels and host make up a step: at once (`longer_of`), or on a processor in turn."""
    return operator.add if in_turn_on(arch) else longer_of


def in_turn_on(arch: str) -> bool:
    """Whether host and kernels work one after the other."""
    return bool(measured(arch).get("serial", False))


def first_slowest(stage_s: Floats) -> Indices:
    """The first of the slowest stages, shape (C,).

    Stages that take the same time differ in their last bits, by which jobs are priced together.

    Args:
        stage_s: Seconds of each stage, shape (C, stages).
    """
    first: Indices = np.argmax(stage_s >= stage_s.max(axis=1, keepdims=True) * (1.0 - _EQUAL), axis=1)
    return first


def _shard_spec(cut: _Cut, stack: Stack, boundary_elems: float) -> ShardSpec:
    return ShardSpec(
        tp=cut.tp,
        ep=cut.ep,
        etp=cut.etp,
        sequence_parallel=cut.sequence_parallel,
        expert_capacity_factor=cut.expert_capacity_factor,
        fused_attention=stack.fused_attention,
        boundary_elems=boundary_elems,
    )


def _recomputed(step: LoweredStep, shares: StageShares, cut: _Cut, graph: OpGraph) -> Floats:
    """Share of each kernel that the backward pass runs again under activation checkpointing."""
    again = step.phase == 0
    if cut.recompute is Recompute.NONE:
        return np.zeros(len(again))
    if cut.recompute is Recompute.SELECTIVE and cut.recompute_modules:
        named = recomputed_shares(graph, cut.recompute_modules)
        of_class = np.array([named.get(op_class, 0.0) for op_class in OP_CLASSES])
        return np.asarray(of_class[step.op_class] * again, dtype=np.float64)
    if cut.recompute is Recompute.SELECTIVE:
        return np.asarray(again & _SELECTIVE[step.op_class], dtype=np.float64)
    return np.where(again & shares.in_layers, cut.recompute_share, 0.0)


def _facts(step: LoweredStep, samples: Floats, seconds: Floats, sums: Floats) -> dict[str, Floats]:
    """What the learned stage reads: work, traffic, shares. Shapes (C,).

    Args:
        step: Kernels of the whole model.
        samples: Of a micro batch, shape (C,).
        seconds: Of each kernel, shape (C, N).
        sums: Seconds by operator class, then of all kernels, shape (C, classes + 1).
    """
    work = _work(step)
    moved = dict(zip(work.names, work.per_sample[:, None] * samples + work.fixed[:, None], strict=True))
    total_s = np.maximum(sums[:, -1], 1e-12)
    flops = np.maximum(moved["flops"], 1.0)
    weights = np.maximum(moved["flops"], 1e-12)
    shares = (sums[:, :-1] / total_s[:, None]).T
    short = np.where(seconds / step.repeat < _SHORT_S, step.repeat, 0.0).sum(axis=1)
    return {
        **{name: moved[name] for name in ("flops", "bytes", "cast_bytes")},
        "launches": np.full(len(samples), work.launches),
        "tensor_core_share": moved["narrow_flops"] / flops,
        "weight_gradient_share": moved["weight_flops"] / flops,
        **dict(zip(_TIME_SHARES, shares, strict=True)),
        **{name: np.exp(moved[name] / weights) for name in _MEANS},
        "largest_kernel_share": seconds.max(axis=1) / total_s,
        "short_kernel_share": short / work.kernels,
    }


@dataclass(frozen=True, kw_only=True, slots=True)
class _Work:
    """Sums over the kernels of a step, each a fixed part and one that grows with the samples."""

    names: tuple[str, ...]
    fixed: Floats
    per_sample: Floats
    launches: float
    kernels: float
    """Kernels with their repeats, at least 1."""


@derived
def _work(step: LoweredStep) -> _Work:
    repeats = step.repeat * step.sequential_steps
    scaled = step.m_scales | step.k_scales | step.count_scales
    flops = step.flops * repeats
    narrow = _NARROW[step.dtype] & IS_PRODUCT[step.op_class]
    of_flops = {
        "flops": np.ones(len(flops)),
        "narrow_flops": narrow,
        "weight_flops": step.k_scales,
        # Geometric means of what the products are like, weighted with their FLOPs.
        **{name: np.log(np.maximum(getattr(step, column), 1.0)) for name, column in _MEANS.items()},
    }
    fixed = {name: float((flops * ~scaled) @ share) for name, share in of_flops.items()}
    per_sample = {name: float((flops * scaled) @ share) for name, share in of_flops.items()}
    for name, share in (("bytes", np.ones(len(flops))), ("cast_bytes", step.is_cast)):
        fixed[name] = float((step.bytes_fixed * repeats) @ share)
        per_sample[name] = float((step.bytes_per_sample * repeats) @ share)
    return _Work(
        names=tuple(fixed),
        fixed=np.array([*fixed.values()]),
        per_sample=np.array([*per_sample.values()]),
        launches=float((step.launches * repeats).sum()),
        kernels=max(float(step.repeat.sum()), 1.0),
    )
