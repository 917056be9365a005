"""Communication of a training step by parallel axis: link seconds, and which of them lengthen the step.

Devices are placed in the layout's rank order, by default the tensor axis innermost, then context, then
data, pipeline stages outermost (Megatron's). `data_axis` and `model_axes` hold one function per axis.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..parallel.layout import Checkpointing, ContextMethod
from .axes import StepContext, group_of
from .data_axis import ParameterPart, data_axis
from .model_axes import (
    context_all_to_all,
    context_gather,
    context_ring,
    expert_exchange,
    pipeline_messages,
    tensor_parallel,
)
from .overlap import NO_COMMUNICATION, Overlap

AXES = ("data", "tensor", "context", "expert", "pipeline")
MODEL_AXES = ("tensor", "context", "expert")
"""Axes whose messages belong to every micro batch of a stage, and so lengthen the pipeline's bubble."""


def communication(context: StepContext, parts: Sequence[ParameterPart]) -> dict[str, Overlap]:
    """Seconds of everything a step sends, by axis.

    Args:
        context: Layout, links, sizes and computation.
        parts: Parameters by the group that averages their gradients: dense, experts.

    Returns:
        For each of AXES the link seconds per optimizer step, those that are exposed, and those by which
        the hidden ones slow the computation. An axis of one rank sends nothing.

    Assumes: micro batches are equal; axes do not overlap with each other.
    Accuracy: docs/accuracy.md.
    """
    layout, sizes = context.layout, context.traffic
    width, samples = context.policy.activation.num_bytes, context.micro_batch_size
    layers, rounds = context.stage_layers, layout.num_micro_batches
    recomputed = layout.checkpointed_share if layout.checkpointing is Checkpointing.FULL else 0.0
    # Tensor ranks exchange whole boundaries of the context share; experts get the tensor share of it.
    local = samples / layout.cp
    axes = {**dict.fromkeys(AXES, NO_COMMUNICATION), "data": data_axis(context, parts)}
    if layout.tp > 1:
        once = tensor_parallel(
            context.group("tp"), sizes, samples=local, bytes_per_elem=width, layers=layers,
            recomputed=recomputed, sequence_parallel=layout.sequence_parallel,
            hidden=context.stack.overlap_tensor,
        )  # fmt: skip
        axes["tensor"] = once * rounds
    if layout.cp > 1:
        axes["context"] = _context_axis(context) * rounds
    if layout.ep > 1:
        once = expert_exchange(
            group_of(layout.ep, layout.tensor_degree_of_experts, context.cluster), sizes,
            samples=local / layout.tp if layout.sequence_parallel else local, bytes_per_elem=width,
            layers=layers * sizes.expert_layer_share, recomputed=recomputed,
        )  # fmt: skip
        axes["expert"] = once * rounds
    if layout.pp > 1:
        # Ranks of a tensor group send a share each and gather it on the other side (SC 2021, 4.1).
        axes["pipeline"] = pipeline_messages(
            context.group("pp"), sizes, samples=local / layout.tp, bytes_per_elem=width,
            virtual_pp=layout.virtual_pp, num_micro_batches=rounds,
        )  # fmt: skip
    return axes


def _context_axis(context: StepContext) -> Overlap:
    """Keys and values over the context ranks, by method, per micro batch."""
    layout, sizes = context.layout, context.traffic
    group, shared = context.group("cp"), context.micro_batch_size / layout.tp
    width, layers = context.policy.activation.num_bytes, context.stage_layers
    if layout.context_method is ContextMethod.RING:
        return context_ring(
            group, sizes, samples=shared, bytes_per_elem=width, layers=layers, times=context.times
        )
    send = context_gather if layout.context_method is ContextMethod.ALL_GATHER else context_all_to_all
    return send(group, sizes, samples=shared, bytes_per_elem=width, layers=layers)
