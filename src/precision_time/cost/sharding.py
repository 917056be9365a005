"""The kernels that one device runs: a lowered step cut by tensor, expert and attention choices.

The batch does the rest: context-parallel ranks see a share of the samples, pipeline stages a share of the
repeats (`stage_shares.py`).

References: Shoeybi et al., Megatron-LM, 2019 (columns, then rows); Korthikanti et al., MLSys 2023
(what sequence parallelism splits besides); Lepikhin et al., GShard, ICLR 2021 (experts).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from ..precision.lowered import LoweredStep
from ..precision.lowering import DTYPES, OP_CLASSES
from ..workload.graph import PRODUCT_CLASSES, OpClass

Floats = NDArray[np.float64]

_IS_PRODUCT = np.array([op_class in PRODUCT_CLASSES for op_class in OP_CLASSES])
_PER_HEAD = np.array(
    [op_class in (OpClass.ATTENTION, OpClass.BMM, OpClass.SOFTMAX, OpClass.RNN) for op_class in OP_CLASSES]
)
_NORM = OP_CLASSES.index(OpClass.NORM)
_ATTENTION, _BMM = OP_CLASSES.index(OpClass.ATTENTION), OP_CLASSES.index(OpClass.BMM)
_NUM_BYTES = np.array([dtype.num_bytes for dtype in DTYPES])
_RESIDUAL_BYTES = 13.0
"""Most bytes per boundary element that an operator on the residual stream moves: a sum of fp32 moves 12,
the narrowest one inside a layer (GELU of 4 h in 16 bits) 16."""
_SCORE_ACCESSES = (6.5, 9.0)
"""Reads and writes of the score matrix beyond the products' own, forward and backward: softmax with its
mask reads and writes, dropout does with a mask of one byte, and the products write and read it."""
_SCORE_LAUNCHES = (5.0, 8.0)
_MIN_CAUSAL_FLOPS = 3.0
"""FLOPs per multiply of scores below which a kernel skipped the masked half (4 forward, 10 backward)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """How a device's kernels differ from the whole model's."""

    tp: int = 1
    ep: int = 1
    expert_tp: int = 1
    sequence_parallel: bool = False
    expert_capacity: float = 0.0
    fused_attention: bool = True
    boundary_elems: float = 0.0
    """Elements between two layers per sample: what operators on the residual stream work on."""


@lru_cache(maxsize=512)
def shard(step: LoweredStep, cut: Cut) -> LoweredStep:
    """The kernels of one device.

    Args:
        step: Of the whole model.
        cut: Degrees and choices.

    Returns:
        As many kernels, smaller. Every product's FLOPs are divided by tp; those of experts keep that
        share while expert parallelism gives a device fewer experts with more tokens each.

    Assumes: tokens spread evenly over experts; kernels on the residual stream, told by what they move,
    are repeated by every tensor rank unless the sequence is split too.
    """
    if not cut.fused_attention:
        step = _with_scores(step)
    if cut.tp > 1:
        step = _tensor_share(step, cut)
    if step.expert.any():
        step = _expert_share(step, cut)
    return step


def _tensor_share(step: LoweredStep, cut: Cut) -> LoweredStep:
    """One tensor rank's part of everything but the experts' shapes."""
    tp = float(cut.tp)
    product = _IS_PRODUCT[step.op_class]
    heads = _PER_HEAD[step.op_class]
    linear = product & ~heads & ~step.expert
    by_rows = np.where(step.k_scales, step.m, step.k) > step.n
    inner = step.repeat > 1.0
    stream = inner & ~product & ~heads & ~step.expert
    stream &= (step.op_class == _NORM) | (step.bytes_per_sample <= _RESIDUAL_BYTES * cut.boundary_elems)
    whole = stream & (step.bytes_fixed <= step.bytes_per_sample) & (not cut.sequence_parallel)
    share = np.where(whole, 1.0, 1.0 / tp)
    # A linear layer reads its whole input or writes its whole output; the other side is split.
    moved = np.where(linear & ~cut.sequence_parallel, 0.5 + 0.5 / tp, share)
    return replace(
        step,
        flops=step.flops / tp,
        bytes_per_sample=step.bytes_per_sample * moved,
        bytes_fixed=step.bytes_fixed * np.where(step.expert, 1.0, 1.0 / tp),
        count=np.where(heads, step.count / tp, step.count),
        n=np.where(linear & ~by_rows, step.n / tp, step.n),
        k=np.where(linear & by_rows & ~step.k_scales, step.k / tp, step.k),
        m=np.where(linear & by_rows & step.k_scales, step.m / tp, step.m),
        param_elems=step.param_elems * np.where(step.expert, 1.0, 1.0 / tp),
    )


def _expert_share(step: LoweredStep, cut: Cut) -> LoweredStep:
    """Fewer experts on a device, each with the tokens of all its expert-parallel ranks."""
    expert, ep, within = step.expert, float(cut.ep), float(cut.expert_tp)
    crowd = ep * within / cut.tp
    crowd *= cut.expert_capacity or 1.0
    by_rows = np.where(step.k_scales, step.m, step.k) > step.n
    tokens_in_k = step.k_scales
    held = ep * within
    work = cut.expert_capacity or 1.0
    return replace(
        step,
        flops=np.where(expert, step.flops * work, step.flops),
        bytes_per_sample=np.where(expert, step.bytes_per_sample * work, step.bytes_per_sample),
        bytes_fixed=np.where(expert, step.bytes_fixed / held, step.bytes_fixed),
        count=np.where(expert, step.count / ep, step.count),
        m=np.where(
            expert & ~tokens_in_k,
            step.m * crowd,
            np.where(expert & tokens_in_k & by_rows, step.m / within, step.m),
        ),
        k=np.where(
            expert & tokens_in_k,
            step.k * crowd,
            np.where(expert & ~tokens_in_k & by_rows, step.k / within, step.k),
        ),
        n=np.where(expert & ~by_rows, step.n / within, step.n),
        param_elems=np.where(expert, step.param_elems / held, step.param_elems),
    )


def _with_scores(step: LoweredStep) -> LoweredStep:
    """Attention as separate products with the score matrix in memory, the masked half computed too."""
    plain = step.op_class == _ATTENTION
    if not plain.any():
        return step
    scores = step.m * step.n * step.count
    multiplies = np.maximum(scores * step.k, 1.0)
    backward = step.phase == 1
    per_multiply = step.flops / multiplies / np.where(backward, 2.5, 1.0)
    full = np.where(per_multiply < _MIN_CAUSAL_FLOPS, 2.0, 1.0)
    # A fused backward pass recomputes the scores; here they were kept.
    kept = np.where(backward, 2.0 / 2.5, 1.0)
    accesses = np.where(backward, _SCORE_ACCESSES[1], _SCORE_ACCESSES[0])
    traffic = scores * accesses * _NUM_BYTES[step.dtype]
    return replace(
        step,
        op_class=np.where(plain, _BMM, step.op_class),
        flops=np.where(plain, step.flops * full * kept, step.flops),
        bytes_per_sample=np.where(plain, step.bytes_per_sample + traffic, step.bytes_per_sample),
        launches=np.where(plain, np.where(backward, _SCORE_LAUNCHES[1], _SCORE_LAUNCHES[0]), step.launches),
    )
