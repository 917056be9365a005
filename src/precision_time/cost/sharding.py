"""The kernels that one device runs: a lowered step, split over tensor and expert ranks and over stages.

The batch does the rest: context-parallel ranks see a share of the samples, pipeline stages a share of the
repeats (`stage_shares`).

References: Shoeybi et al., Megatron-LM, 2019 (columns, then rows); Korthikanti et al., MLSys 2023
(what sequence parallelism splits besides); Lepikhin et al., GShard, ICLR 2021 (experts).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Bools, Floats
from ..cache import derived, memo
from ..parallel.layout import Layout, layers_of_stages
from ..precision.lowered import LoweredStep
from ..precision.lowering import DTYPES, IS_PRODUCT, OP_CLASSES
from ..records import dataclass
from ..workload.graph import OpClass
from .constants import constants

_PER_HEAD = np.array(
    [op_class in (OpClass.ATTENTION, OpClass.BMM, OpClass.SOFTMAX, OpClass.RNN) for op_class in OP_CLASSES]
)
_NORM = OP_CLASSES.index(OpClass.NORM)
_DISPATCH = OP_CLASSES.index(OpClass.DISPATCH)
_ATTENTION, _BMM = OP_CLASSES.index(OpClass.ATTENTION), OP_CLASSES.index(OpClass.BMM)
_NUM_BYTES = np.array([dtype.num_bytes for dtype in DTYPES])


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardSpec:
    """How a device's kernels differ from the whole model's."""

    tp: int = 1
    ep: int = 1
    etp: int = 1
    sequence_parallel: bool = False
    expert_capacity_factor: float = 0.0
    fused_attention: bool = True
    boundary_elems: float = 0.0
    """Elements between two layers per sample: what operators on the residual stream work on."""


@memo(512)
def shard(step: LoweredStep, spec: ShardSpec) -> LoweredStep:
    """The kernels of one device.

    Args:
        step: Of the whole model.
        spec: Degrees and choices.

    Returns:
        As many kernels, smaller. Every product's FLOPs are divided by tp; those of experts keep that
        share while expert parallelism gives a device fewer experts with more tokens each.

    Assumes: tokens spread evenly over experts; kernels on the residual stream, recognized by their bytes, are
    repeated by every tensor rank unless the sequence is split too.
    """
    if not spec.fused_attention:
        step = _with_scores(step)
    if spec.tp > 1:
        step = _tensor_share(step, spec)
    if step.expert.any():
        step = _expert_share(step, spec)
    return step


def _tensor_share(step: LoweredStep, spec: ShardSpec) -> LoweredStep:
    """One tensor rank's part of everything but the experts' shapes."""
    tp = float(spec.tp)
    product = IS_PRODUCT[step.op_class]
    heads = _PER_HEAD[step.op_class]
    linear = product & ~heads & ~step.expert
    by_rows = np.where(step.k_scales, step.m, step.k) > step.n
    inner = step.repeat > 1.0
    stream = inner & ~product & ~heads & ~step.expert
    most_bytes = constants("kernels")["residual_bytes"] * spec.boundary_elems
    stream &= (step.op_class == _NORM) | (step.bytes_per_sample <= most_bytes)
    whole = stream & (step.bytes_fixed <= step.bytes_per_sample) & (not spec.sequence_parallel)
    share = np.where(whole, 1.0, 1.0 / tp)
    # A linear layer reads its whole input or writes its whole output; the other side is split.
    moved = np.where(linear & ~spec.sequence_parallel, 0.5 + 0.5 / tp, share)
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


def _expert_share(step: LoweredStep, spec: ShardSpec) -> LoweredStep:
    """Fewer experts on a device, each with the tokens of all its expert-parallel ranks."""
    expert, ep, within = step.expert, float(spec.ep), float(spec.etp)
    crowd = ep * within / spec.tp
    crowd *= spec.expert_capacity_factor or 1.0
    by_rows = np.where(step.k_scales, step.m, step.k) > step.n
    tokens_in_k = step.k_scales
    forward, backward = constants("kernels")["dispatch"]["launches"]
    held = ep * within
    work = spec.expert_capacity_factor or 1.0
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
        launches=np.where(
            step.op_class == _DISPATCH, np.where(step.phase == 1, backward, forward), step.launches
        ),
    )


def _with_scores(step: LoweredStep) -> LoweredStep:
    """Attention as separate products with the score matrix in memory, the masked half computed too."""
    plain = step.op_class == _ATTENTION
    if not plain.any():
        return step
    unfused = constants("kernels")["unfused_attention"]
    scores = step.m * step.n * step.count
    multiplies = np.maximum(scores * step.k, 1.0)
    backward = step.phase == 1
    per_multiply = step.flops / multiplies / np.where(backward, 2.5, 1.0)
    full = np.where(per_multiply < unfused["least_flops_per_multiply"], 2.0, 1.0)
    # A fused backward pass recomputes the scores; here they were kept.
    kept = np.where(backward, 2.0 / 2.5, 1.0)
    accesses = np.where(backward, *reversed(unfused["score_accesses"]))
    traffic = scores * accesses * _NUM_BYTES[step.dtype]
    return replace(
        step,
        op_class=np.where(plain, _BMM, step.op_class),
        flops=np.where(plain, step.flops * full * kept, step.flops),
        bytes_per_sample=np.where(plain, step.bytes_per_sample + traffic, step.bytes_per_sample),
        launches=np.where(plain, np.where(backward, *reversed(unfused["launches"])), step.launches),
    )


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class StageShares:
    """Shares of the kernels on S kinds of stages: the first, those between, the last.

    Equal only to itself, as a key of caches.
    """

    kernels: Floats
    """Share of each kernel's repeats, shape (S, N)."""
    stages: Floats
    """How many stages are of each kind, shape (S,)."""
    layers: Floats
    """Layers of one stage of each kind, shape (S,)."""
    in_layers: Bools
    """Kernels of the repeated layers and of what stands between them, shape (N,)."""


@derived
def stage_shares(step: LoweredStep, num_layers: int, pp: int, stage_layers: tuple[int, ...]) -> StageShares:
    """How the kernels spread over the stages of a pipeline.

    Args:
        step: Kernels in execution order, forward then backward.
        num_layers: Repeated layers of the model.
        pp: Stages.
        stage_layers: Layers of each stage where they are not split evenly.

    Assumes: in a model with a vocabulary, what runs before the first repeated layer belongs to the first
    stage, what runs after the last one to the last stage; any other model is cut evenly.
    """
    before, inside, after = _spans(step)
    if pp == 1:
        ones = np.ones((1, len(inside)))
        return StageShares(
            kernels=ones, stages=np.ones(1), layers=np.array([float(num_layers)]), in_layers=inside
        )
    layers = layers_of_stages(num_layers, Layout(pp=pp, stage_layers=stage_layers))
    middle = float(max(layers[1:-1])) if pp > 2 else 0.0  # noqa: PLR2004
    kinds = np.array([float(layers[0]), middle, float(layers[-1])])
    counts = np.array([1.0, pp - 2.0, 1.0])
    kernels = np.where(inside, kinds[:, None] / max(num_layers, 1), 0.0)
    kernels[0, before] = 1.0
    kernels[2, after] = 1.0
    used = counts > 0
    return StageShares(kernels=kernels[used], stages=counts[used], layers=kinds[used], in_layers=inside)


def _spans(step: LoweredStep) -> tuple[Bools, Bools, Bools]:
    """Kernels ahead of the layers in the model, in them, and behind them, each of shape (N,)."""
    before, inside, after = (np.zeros(len(step.phase), dtype=np.bool_) for _ in range(3))
    for number in (0, 1):
        rows = np.flatnonzero(step.phase == number)
        repeated = rows[step.repeat[rows] > 1.0]
        if not len(repeated) or not step.vocabulary.any():
            inside[rows] = True
            continue
        early, late = (before, after) if number == 0 else (after, before)
        early[rows[rows < repeated[0]]] = True
        late[rows[rows > repeated[-1]]] = True
        inside[repeated[0] : repeated[-1] + 1] = True
    return before, inside, after
