"""Communication of a training step by parallel axis: link seconds, and which of them lengthen the step.

Devices are placed in the layout's rank order, by default the tensor axis innermost, then context, then
data, pipeline stages outermost (Megatron's). `data_axis.py` has the exchange of gradients and parameters.

References: Shoeybi et al., Megatron-LM, 2019, and Korthikanti et al., MLSys 2023 (tensor and sequence
parallelism); Narayanan et al., SC 2021 (scattered pipeline messages); Liu et al., Ring Attention, 2023;
Jacobs et al., DeepSpeed Ulysses, 2023; Lepikhin et al., GShard, ICLR 2021 (expert all-to-all).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..arrays import Number
from ..parallel.layout import CpCommType, Recompute
from .axes import StepContext, group_of, lines_of, sends_of
from .collectives import all_gather_lines, all_reduce_lines, all_to_all_lines, min_time_s
from .constants import constants
from .data_axis import ParameterPart, data_axis
from .overlap import NO_COMMUNICATION, Overlap, fully_exposed, partly_hidden, pipelined

AXES = ("data", "tensor", "context", "expert", "pipeline")
MODEL_AXES = ("tensor", "context", "expert")
"""Axes whose messages belong to every micro batch of a stage, and so lengthen the pipeline's bubble."""


def communication(context: StepContext, parts: Sequence[ParameterPart]) -> dict[str, Overlap]:
    """Seconds of everything a step sends, by axis.

    Returns:
        For each of AXES the link seconds per optimizer step, those that are exposed, and those by which
        the hidden ones slow the computation. An axis of one rank sends nothing.

    Assumes: micro batches are equal; axes do not overlap with each other; experts are balanced.
    Accuracy: docs/reference/accuracy.md.
    """
    axes = {**dict.fromkeys(AXES, NO_COMMUNICATION), "data": data_axis(context, parts)}
    axes |= model_communication(context)
    if context.layout.pp > 1:
        axes["pipeline"] = _pipeline(context)
    return axes


def model_communication(context: StepContext) -> dict[str, Overlap]:
    """What the ranks of MODEL_AXES send in a step, for the axes of more than one rank."""
    layout, rounds = context.layout, context.rounds
    found = {"tensor": _tensor, "context": _context, "expert": _experts}
    degrees = {"tensor": layout.tp, "context": layout.cp, "expert": layout.ep}
    return {axis: send(context) * rounds for axis, send in found.items() if degrees[axis] > 1}


def _local_samples(context: StepContext) -> Number:
    """Samples of a micro batch that a context rank works on."""
    return context.micro_batch_size / context.layout.cp


def _recomputed(context: StepContext) -> float:
    """Share of the layers whose forward pass full checkpointing repeats, messages included."""
    layout = context.layout
    return layout.recompute_share if layout.recompute is Recompute.FULL else 0.0


def _tensor(context: StepContext) -> Overlap:
    """Four all-reduces of the layer boundary per layer and micro batch, two more when recomputing.

    Sequence parallelism sends a reduce-scatter and an all-gather instead: the same volume, 8 (t-1)/t of the
    boundary per layer. Messages that the stack cuts up overlap with the products before and after them.
    """
    group = context.group("tp")
    size = context.traffic.boundary_elems * _local_samples(context) * context.policy.activation.num_bytes
    if context.layout.sequence_parallel:
        once = 2.0 * min_time_s(lines_of(group, all_gather_lines), size)
    else:
        once = min_time_s(lines_of(group, all_reduce_lines), size)
    total = once * context.stage_layers * (4 + 2 * _recomputed(context))
    cut = context.stack.overlap_tensor
    exposed = float(constants("communication")["exposed_share_of_cut_messages"]) if cut else 1.0
    return partly_hidden(total, total * exposed)


def _pipeline(context: StepContext) -> Overlap:
    """Boundary activations forward and their gradients backward, per stage and optimizer step.

    Plain 1F1B sends are exposed; interleaved ones (as many times more as there are chunks) hide in the
    steady state and are exposed while the pipeline fills and drains.
    """
    group, layout = context.group("pp"), context.layout
    # Ranks of a tensor group send a share each and gather it on the other side (SC 2021, 4.1).
    samples = _local_samples(context) / layout.tp
    once = min_time_s(
        sends_of(group), context.traffic.boundary_elems * samples * context.policy.activation.num_bytes
    )
    sends = 2.0 * layout.vpp * context.rounds
    exposed = np.minimum(sends, 2.0 * (layout.pp - 1)) if layout.vpp > 1 else sends
    return Overlap(link_s=once * sends, exposed_s=once * exposed, slowdown_s=np.zeros_like(once))


def _context(context: StepContext) -> Overlap:
    """Keys and values over the context ranks per micro batch, by method.

    Ring and all-gather: 3 (c-1)/c of one layer's keys and values per layer, once forward, they and their
    gradients backward. A ring hides one block behind the computation of the block before it; an all-gather
    (Llama 3, section 3.3.2) is exposed. All-to-all sends queries, keys, values and the output for heads and
    back, forward and backward, exposed.
    """
    group, layout, layers = context.group("cp"), context.layout, context.stage_layers
    local = context.micro_batch_size / layout.tp * context.policy.activation.num_bytes
    keys = context.traffic.kv_elems * local
    if layout.cp_comm_type is CpCommType.RING:
        link_s = 3.0 * (layout.cp - 1.0) * min_time_s(sends_of(group), keys / layout.cp) * layers
        compute_s = context.times.forward_s + context.times.backward_s
        found = pipelined(link_s, compute_s, layers * layout.cp)
        return Overlap(
            link_s=link_s,
            exposed_s=np.minimum(found.exposed_s, link_s),
            slowdown_s=np.maximum(found.slowdown_s, 0.0),
        )
    if layout.cp_comm_type is CpCommType.ALL_GATHER:
        return fully_exposed(layers * 3.0 * min_time_s(lines_of(group, all_gather_lines), keys))
    lines = lines_of(group, all_to_all_lines)
    queries = context.traffic.boundary_elems * local
    once = 2.0 * min_time_s(lines, queries / layout.cp) + min_time_s(lines, keys / layout.cp)
    return fully_exposed(layers * 2.0 * once)


def _experts(context: StepContext) -> Overlap:
    """Dispatch and combine, forward and backward: four all-to-alls per expert layer and micro batch.

    Two more where the forward pass is repeated. Volume: 4 (e-1)/e of the routed activations per layer; under
    sequence parallelism experts get the tensor share of them. Where two micro batches run beside each other,
    one's messages hide behind the other's kernels, layer by layer; the last micro batch has no other.

    References: Lepikhin et al., GShard, ICLR 2021; DeepSeek-V3 technical report, 2024, sections 3.2.1
    (DualPipe) and 3.2.2 (at most four nodes per token, one copy over the network each).
    """
    layout, traffic = context.layout, context.traffic
    samples = _local_samples(context) / (layout.tp if layout.sequence_parallel else 1)
    size = traffic.routed_elems * samples * context.policy.activation.num_bytes
    layers = context.stage_layers * traffic.expert_layer_share
    link_s = (4.0 + 2.0 * _recomputed(context)) * layers * _dispatch_s(context, size)
    if not (layout.expert_overlap or (context.stack.overlap_experts and layout.vpp > 1)):
        return fully_exposed(link_s)
    hidden = pipelined(link_s, context.times.forward_s + context.times.backward_s, layers)
    last = 1.0 / context.rounds
    return partly_hidden(link_s, hidden.exposed_s * (1.0 - last) + link_s * last)


def _dispatch_s(context: StepContext, size: Number) -> Number:
    """Seconds of one all-to-all over the expert ranks, of `size` bytes per rank."""
    layout, traffic = context.layout, context.traffic
    group = group_of(layout.ep, layout.tensor_degree_of_experts, context.cluster)
    most = layout.expert_nodes or (math.inf if context.stack.dispatch_once_per_node else 0)
    if not most or group.nodes <= 1:
        return min_time_s(lines_of(group, all_to_all_lines), size)
    # Over the network once per node; from there to the experts of the node.
    copies = float(traffic.routed_elems / np.maximum(traffic.boundary_elems, 1.0))
    reached = min(group.nodes * (1.0 - (1.0 - 1.0 / group.nodes) ** copies), most, copies)
    once = min_time_s(lines_of(group, all_to_all_lines), size * (reached / copies))
    inside = group_of(
        max(round(layout.ep / float(group.nodes)), 1), layout.tensor_degree_of_experts, context.cluster
    )
    return np.maximum(once, min_time_s(lines_of(inside, all_to_all_lines), size))
