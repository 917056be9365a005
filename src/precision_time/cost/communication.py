"""Communication of a training step by parallel axis: link seconds, and what of them the step feels.

Devices are placed in the layout's rank order, by default the tensor axis innermost, then context, then
data, pipeline stages outermost (Megatron's). `data_axis` and `model_axes` hold one function per axis.
"""

from __future__ import annotations

import numpy as np

from ..hardware.device import Cluster
from ..parallel.layout import Checkpointing, ContextMethod, Layout
from ..precision.policy import PrecisionPolicy
from .axes import NO_COMMUNICATION, StepTimes, group_of, repeated
from .collectives import Number
from .data_axis import ParameterPart, data_axis
from .job import Stack
from .model_axes import (
    context_all_to_all,
    context_gather,
    context_ring,
    expert_exchange,
    pipeline_messages,
    tensor_parallel,
)
from .overlap import Overlap
from .traffic import TransformerTraffic

__all__ = ["ParameterPart", "StepTimes", "TransformerTraffic", "communication"]

AXES = ("data", "tensor", "context", "expert", "pipeline")
MODEL_AXES = ("tensor", "context", "expert")
"""Axes whose messages belong to every micro batch of a stage, and so lengthen the pipeline's bubble."""


def communication(
    layout: Layout,
    cluster: Cluster,
    policy: PrecisionPolicy,
    *,
    parts: tuple[ParameterPart, ...],
    times: StepTimes,
    traffic: TransformerTraffic | None = None,
    layers: float | None = None,
    micro_batch_size: Number | None = None,
    stack: Stack | None = None,
) -> dict[str, Number]:
    """Named seconds of everything a step sends.

    Args:
        layout: Degrees, batches, sharding.
        cluster: Devices, nodes, links.
        policy: Types of parameters, gradients on the wire, activations.
        parts: Parameters by the group that averages their gradients: dense, experts.
        times: Computation of one micro batch on one device (its share of the model), with what
            checkpointing repeats in the backward pass.
        traffic: Sizes of what the model-parallel axes send; needed only where one is above 1.
        layers: Layers of the stage; an even share when None.
        micro_batch_size: Instead of the layout's, for C micro batches at once, (C,).
        stack: What the software hides.

    Returns:
        For each of AXES `<axis>_link_s` and `<axis>_exposed_s` per optimizer step, and `contention_s`,
        by which hidden communication slows the computation. One device: all zero.

    Assumes: micro batches are equal; axes do not overlap with each other.
    Accuracy: docs/reference/accuracy.md.
    """
    sizes, software = traffic or TransformerTraffic(), stack or Stack()
    samples = layout.micro_batch_size if micro_batch_size is None else micro_batch_size
    held = float(np.asarray(sizes.num_layers)) / layout.pp if layers is None else layers
    axes = {
        "data": data_axis(layout, cluster, policy, parts, times, sizes, samples, software),
        **_model_axes(layout, cluster, policy.activation.num_bytes, sizes, times, samples, held, software),
    }
    terms: dict[str, Number] = {}
    for name, axis in axes.items():
        terms[f"{name}_link_s"] = axis.link_s
        terms[f"{name}_exposed_s"] = axis.exposed_s
    terms["contention_s"] = sum((np.asarray(axis.slowdown_s) for axis in axes.values()), np.zeros(()))
    return terms


def _model_axes(
    layout: Layout,
    cluster: Cluster,
    width: float,
    sizes: TransformerTraffic,
    times: StepTimes,
    samples: Number,
    layers: float,
    stack: Stack,
) -> dict[str, Overlap]:
    """Seconds per step of the axes that cut the model; an axis of one rank sends nothing."""
    rounds = layout.num_micro_batches
    again = layout.checkpointed_share if layout.checkpointing is Checkpointing.FULL else 0.0
    # Tensor ranks exchange whole boundaries of the context share; experts get the tensor share of it.
    local = samples / layout.cp
    sent = local / layout.tp if layout.sequence_parallel else local
    axes = dict.fromkeys(AXES[1:], NO_COMMUNICATION)
    if layout.tp > 1:
        once = tensor_parallel(
            group_of(layout.tp, layout.stride("tp"), cluster), sizes, samples=local, bytes_per_elem=width,
            layers=layers, recomputed=again, sequence_parallel=layout.sequence_parallel,
            hidden=stack.overlap_tensor,
        )  # fmt: skip
        axes["tensor"] = repeated(once, rounds)
    if layout.cp > 1:
        axes["context"] = repeated(_context(layout, cluster, width, sizes, times, samples, layers), rounds)
    if layout.ep > 1:
        moe_share = sizes.moe_layers / np.maximum(sizes.num_layers, 1.0)
        once = expert_exchange(
            group_of(layout.ep, layout.tensor_degree_of_experts, cluster), sizes, samples=sent,
            bytes_per_elem=width, layers=layers * moe_share, recomputed=again,
        )  # fmt: skip
        axes["expert"] = repeated(once, rounds)
    if layout.pp > 1:
        # Ranks of a tensor group send a share each and gather it on the other side (SC 2021, 4.1).
        axes["pipeline"] = pipeline_messages(
            group_of(layout.pp, layout.stride("pp"), cluster), sizes, samples=local / layout.tp,
            bytes_per_elem=width, virtual_pp=layout.virtual_pp, num_micro_batches=rounds,
        )  # fmt: skip
    return axes


def _context(
    layout: Layout,
    cluster: Cluster,
    width: float,
    sizes: TransformerTraffic,
    times: StepTimes,
    samples: Number,
    layers: float,
) -> Overlap:
    """Keys and values over the context ranks, by method, per micro batch."""
    group = group_of(layout.cp, layout.stride("cp"), cluster)
    shared = samples / layout.tp
    if layout.context_method is ContextMethod.RING:
        return context_ring(group, sizes, samples=shared, bytes_per_elem=width, layers=layers, times=times)
    send = context_gather if layout.context_method is ContextMethod.ALL_GATHER else context_all_to_all
    return send(group, sizes, samples=shared, bytes_per_elem=width, layers=layers)
