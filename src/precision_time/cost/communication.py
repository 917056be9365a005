"""Communication of a training step by parallel axis: link seconds, and what of them the step feels.

Devices are placed with the tensor axis innermost, then context, then data, pipeline stages outermost
(Megatron's order). `data_axis` and `model_axes` hold one function per axis.
"""

from __future__ import annotations

import numpy as np

from ..hardware.device import Cluster
from ..parallel.layout import Checkpointing, Layout
from ..precision.policy import PrecisionPolicy
from .axes import NO_COMMUNICATION, StepTimes, group_of, repeated
from .collectives import Number
from .data_axis import data_axis
from .model_axes import (
    context_ring,
    expert_exchange,
    pipeline_bubble_s,
    pipeline_messages,
    tensor_parallel,
)
from .overlap import GradientSchedule, Overlap
from .traffic import TransformerTraffic

__all__ = ["StepTimes", "TransformerTraffic", "communication"]


def communication(
    layout: Layout,
    cluster: Cluster,
    policy: PrecisionPolicy,
    *,
    params: float,
    schedule: GradientSchedule,
    times: StepTimes,
    traffic: TransformerTraffic | None = None,
    micro_batch_size: Number | None = None,
) -> dict[str, Number]:
    """Named seconds of everything a step sends.

    Args:
        layout: Degrees, batches, sharding.
        cluster: Devices, nodes, links.
        policy: Types of parameters, gradients on the wire, activations.
        params: Trainable parameter elements of the whole model.
        schedule: Buckets of the whole model's gradients, in the wire type.
        times: Computation of one micro batch on one device (its share of the model).
        traffic: Sizes of what the model-parallel axes send; needed only where one is above 1.
        micro_batch_size: Instead of the layout's, for C micro batches at once, (C,).

    Returns:
        For each axis (`data`, `tensor`, `pipeline`, `context`, `expert`) `<axis>_link_s` and
        `<axis>_exposed_s` per optimizer step, `pipeline_bubble_s`, and `contention_s`, by which
        hidden communication slows the computation. One device: all zero.

    Assumes: micro batches are equal; axes do not overlap with each other.
    Accuracy: docs/accuracy.md.
    """
    sizes = traffic or TransformerTraffic()
    samples = layout.micro_batch_size if micro_batch_size is None else micro_batch_size
    times = _with_recomputation(times, layout.checkpointing)
    axes = {
        "data": data_axis(layout, cluster, policy, params, schedule, times, sizes, samples),
        **_model_axes(layout, cluster, policy.activation.num_bytes, sizes, times, samples),
    }
    terms: dict[str, Number] = {}
    for name, axis in axes.items():
        terms[f"{name}_link_s"] = axis.link_s
        terms[f"{name}_exposed_s"] = axis.exposed_s
    micro_batch_s = times.forward_s + times.backward_s
    terms["pipeline_bubble_s"] = pipeline_bubble_s(layout.pp, layout.virtual_pp, micro_batch_s)
    terms["contention_s"] = sum((np.asarray(axis.slowdown_s) for axis in axes.values()), np.zeros(()))
    return terms


def _model_axes(
    layout: Layout,
    cluster: Cluster,
    width: float,
    sizes: TransformerTraffic,
    times: StepTimes,
    samples: Number,
) -> dict[str, Overlap]:
    """Seconds per step of the axes that cut the model; an axis of one rank sends nothing."""
    rounds = layout.num_micro_batches
    layers = sizes.num_layers / layout.pp
    # Tensor ranks exchange whole boundaries of the context share; stages send the tensor share of it.
    local = samples / layout.cp
    sent = local / layout.tp if layout.sequence_parallel else local
    axes = dict.fromkeys(("tensor", "context", "expert", "pipeline"), NO_COMMUNICATION)
    if layout.tp > 1:
        once = tensor_parallel(
            group_of(layout.tp, 1, cluster), sizes, samples=local, bytes_per_elem=width, layers=layers,
            recomputed=layout.checkpointing is Checkpointing.FULL, sequence_parallel=layout.sequence_parallel,
        )  # fmt: skip
        axes["tensor"] = repeated(once, rounds)
    if layout.cp > 1:
        once = context_ring(
            group_of(layout.cp, layout.tp, cluster), sizes, samples=samples / layout.tp, bytes_per_elem=width,
            layers=layers, times=times,
        )  # fmt: skip
        axes["context"] = repeated(once, rounds)
    if layout.ep > 1:
        once = expert_exchange(
            group_of(layout.ep, layout.tp, cluster), sizes, samples=sent, bytes_per_elem=width,
            layers=sizes.moe_layers / layout.pp,
        )  # fmt: skip
        axes["expert"] = repeated(once, rounds)
    if layout.pp > 1:
        axes["pipeline"] = pipeline_messages(
            group_of(layout.pp, layout.tp * layout.cp * layout.dp, cluster), sizes, samples=sent,
            bytes_per_elem=width, virtual_pp=layout.virtual_pp, num_micro_batches=rounds,
        )  # fmt: skip
    return axes


def _with_recomputation(times: StepTimes, checkpointing: Checkpointing) -> StepTimes:
    """The backward pass with the forward pass that full checkpointing repeats in it, spread evenly."""
    if checkpointing is not Checkpointing.FULL:
        return times
    stretch = np.asarray(1.0 + times.forward_s / np.maximum(times.backward_s, 1e-12))
    return StepTimes(
        forward_s=times.forward_s,
        backward_s=times.backward_s * stretch,
        backward_kernel_s=times.backward_kernel_s * stretch[..., None],
    )
