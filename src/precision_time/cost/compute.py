"""Compute seconds of one optimizer step on one device, by named term, and the facts behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..identity_cache import cache_by_identity
from ..parallel.layout import Checkpointing, Layout
from ..precision.lowered import LoweredStep
from ..precision.lowering import DTYPES, OP_CLASSES
from ..precision.policy import DType
from ..workload.graph import PRODUCT_CLASSES, OpClass
from .group import JobGroup
from .roofline import KernelModel, compiler_rates, kernel_seconds, rates_of

Floats = NDArray[np.float64]

TERM_OF_CLASS: Mapping[OpClass, str] = {
    OpClass.CONV: "conv_s",
    OpClass.GROUPED_CONV: "conv_s",
    OpClass.DEPTHWISE_CONV: "conv_s",
    OpClass.GEMM: "gemm_s",
    OpClass.RNN: "rnn_s",
    OpClass.ATTENTION: "attention_s",
    OpClass.BMM: "attention_s",
    OpClass.SOFTMAX: "attention_s",
    OpClass.NORM: "norm_s",
    OpClass.EMBEDDING: "embedding_s",
    OpClass.GATHER: "embedding_s",
}
"""Which term the kernels of a class are counted in; the rest is `memory_bound_s`."""
_REST = "memory_bound_s"
_CASTS = "casts_s"
COMPUTE_TERMS = (
    *dict.fromkeys(TERM_OF_CLASS.values()),
    _REST,
    _CASTS,
    "recompute_s",
    "host_stall_s",
)
_FUSIBLE = np.array(
    [
        op_class in (OpClass.ELEMENTWISE, OpClass.NORM, OpClass.SOFTMAX, OpClass.REDUCTION, OpClass.MOVE)
        for op_class in OP_CLASSES
    ]
)
_PRODUCT = np.array([op_class in PRODUCT_CLASSES for op_class in OP_CLASSES])
_NARROW = np.array([dtype.num_bytes <= DType.BF16.num_bytes or dtype is DType.TF32 for dtype in DTYPES])
_SELECTIVE = np.array(
    [op_class in (OpClass.BMM, OpClass.SOFTMAX, OpClass.ATTENTION) for op_class in OP_CLASSES]
)
_UNPADDED_SHARE = 0.55
"""Real tokens per padded position where variable-length kernels skip padding (MLPerf BERT logs)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComputeCosts:
    """Seconds per optimizer step, shape (C,) each; `terms` add up to the compute part of a step."""

    terms: Mapping[str, Floats]
    forward_s: Floats
    """Forward kernels of one micro batch."""
    backward_s: Floats
    kernels_s: Floats
    """Seconds of each kernel of one micro batch, shape (C, N)."""
    facts: Mapping[str, Floats]


def compute_costs(step: LoweredStep, group: JobGroup, model: KernelModel) -> ComputeCosts:
    """Seconds of the kernels of one optimizer step on one device.

    Model-parallel degrees divide the work evenly; what they add is the business of the
    communication terms.

    Args:
        step: Typed kernels of one micro batch.
        group: C jobs.
        model: Calibrated utilisations.
    """
    layout, device = group.layout, group.cluster.device
    share = _UNPADDED_SHARE if group.stack.unpadded_sequences else 1.0
    samples = group.micro_batch_size[:, None] * share
    compiler = compiler_rates(group.stack.compiler)
    step = _with_local_experts(step, layout.ep)
    seconds = kernel_seconds(step, samples, rates_of([device]), model)
    fusible = _FUSIBLE[step.op_class] | step.is_cast
    seconds = seconds * np.where(fusible, compiler.fusion, 1.0) / (layout.tp * layout.pp * layout.cp)
    forward = step.phase == 0
    forward_s, backward_s = seconds[:, forward].sum(axis=1), seconds[:, ~forward].sum(axis=1)
    host_s = _launches(step) * device.launch_overhead_s * compiler.host / layout.pp
    terms = {term: seconds[:, mask].sum(axis=1) for term, mask in _term_masks(step).items()}
    terms["recompute_s"] = _recompute_s(step, seconds, layout)
    terms["host_stall_s"] = np.maximum(host_s - forward_s - backward_s, 0.0)
    return ComputeCosts(
        terms={term: values * layout.num_micro_batches for term, values in terms.items()},
        forward_s=forward_s,
        backward_s=backward_s,
        kernels_s=seconds,
        facts={**_facts(step, samples, seconds), "host_s": np.full(len(group), host_s)},
    )


@cache_by_identity
def _with_local_experts(step: LoweredStep, ep: int) -> LoweredStep:
    """The step as one expert-parallel rank runs it: a share of the experts, each with all its tokens."""
    if ep == 1 or not step.expert.any():
        return step
    share = np.where(step.expert, float(ep), 1.0)
    return replace(
        step, bytes_fixed=step.bytes_fixed / share, count=step.count / share, m=step.m * share, n=step.n
    )


def _term_masks(step: LoweredStep) -> dict[str, NDArray[np.bool_]]:
    names = np.array([TERM_OF_CLASS.get(op_class, _REST) for op_class in OP_CLASSES])[step.op_class]
    names = np.where(step.is_cast, _CASTS, names)
    return {term: names == term for term in (*dict.fromkeys(TERM_OF_CLASS.values()), _REST, _CASTS)}


def _recompute_s(step: LoweredStep, seconds: Floats, layout: Layout) -> Floats:
    """Forward work done again in the backward pass under activation checkpointing."""
    again = step.phase == 0
    if layout.checkpointing is Checkpointing.SELECTIVE:
        again = again & _SELECTIVE[step.op_class]
    elif layout.checkpointing is Checkpointing.NONE:
        again = np.zeros_like(again)
    total: Floats = seconds[:, again].sum(axis=1)
    return total


def _launches(step: LoweredStep) -> float:
    """Kernels of one micro batch: the host's floor when they are many and small."""
    return float((step.launches * step.repeat * step.sequential_steps).sum())


def _facts(step: LoweredStep, samples: Floats, seconds: Floats) -> dict[str, Floats]:
    """What the learned stage reads: work, traffic, shares. Shapes (C,)."""
    scaled = step.m_scales | step.k_scales | step.count_scales
    repeats = step.repeat * step.sequential_steps
    flops = step.flops * repeats * np.where(scaled, samples, 1.0)
    moved = (step.bytes_per_sample * samples + step.bytes_fixed) * repeats
    narrow = _NARROW[step.dtype] & _PRODUCT[step.op_class]
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
