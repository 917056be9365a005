"""Gradients and parameters over the data-parallel ranks, by engine and ZeRO stage.

References: Rajbhandari et al., ZeRO, SC 2020 (volumes); Li et al., PyTorch Distributed, PVLDB 13(12),
2020; Zhao et al., PyTorch FSDP, PVLDB 16(12), 2023 (full and hybrid sharding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ..arrays import Number
from ..hardware.links import staged_share
from ..parallel.layout import Layout
from ..records import dataclass
from .axes import Group, StepContext, group_of, lines_of, split_group
from .collectives import all_gather_lines, all_reduce_lines
from .collectives.gather_scatter import parameter_server, root_scatter
from .collectives.line import min_time_s
from .collectives.ring import ring_broadcast
from .overlap import (
    NO_COMMUNICATION,
    GradientSchedule,
    Overlap,
    fully_exposed,
    overlapped,
    partly_hidden,
    pipelined,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterPart:
    """Parameters that share a data-parallel group: the dense ones, or the experts."""

    params: float
    """Trainable elements on this device before sharding over data ranks."""
    gathered_bytes: float
    """Of all parameters of this part, frozen ones too, on the wire of an all-gather."""
    schedule: GradientSchedule
    """Gradient buckets of this part of the whole model, cut to this device's tensor and expert share."""
    share: float
    """Of the schedule's elements that this device's pipeline stage holds, 0..1."""


def data_axis(context: StepContext, parts: Sequence[ParameterPart]) -> Overlap:
    """Gradients and parameters over the ranks that average them, by engine and stage, per optimizer step.

    Accuracy: docs/reference/accuracy.md; DataParallel: three machines of the corpus.
    """
    layout, cluster = context.layout, context.cluster
    if layout.data_parallel_engine == "none":
        return NO_COMMUNICATION
    dense = parts[0]
    ranks, stride = layout.data_ranks, min(layout.stride("dp"), layout.stride("cp"))
    group = group_of(ranks, stride, cluster)
    if ranks > 1 and layout.data_parallel_engine == "dataparallel":
        return _through_first_device(context, dense, group, ranks) * context.rounds
    if ranks > 1 and layout.data_parallel_engine == "parameter-server":
        network = group.inter if cluster.num_nodes > 1 else group.intra
        lines = parameter_server(ranks, cluster.num_nodes, network)
        return overlapped(dense.schedule, context.times.backward_kernel_s, lines, scale=dense.share)
    total = NO_COMMUNICATION
    dp_shard = layout.dp_shard
    for part in parts:
        if ranks > 1:
            total = total + _exchange(context, part, ranks, stride, dp_shard)
        ranks, stride = layout.expert_data_ranks, layout.ep * layout.tensor_degree_of_experts
        dp_shard = 0
    return total


def _exchange(context: StepContext, part: ParameterPart, ranks: int, stride: int, dp_shard: int) -> Overlap:
    """What one part of the parameters sends per optimizer step."""
    group = group_of(ranks, stride, context.cluster)
    if context.layout.zero_stage == 3:
        if 0 < dp_shard < ranks:
            return _fully_sharded(context, part, *split_group(ranks, dp_shard, stride, context.cluster))
        return _fully_sharded(context, part, group)
    found = _reduced(context, part, group)
    return found if context.stack.overlap_grad_reduce else fully_exposed(found.link_s)


def _reduced(context: StepContext, part: ParameterPart, group: Group) -> Overlap:
    """DDP and ZeRO 1 and 2: gradients during the backward pass, then the new parameters.

    DDP all-reduces buckets during the last micro batch's backward pass, 2 (n-1)/n P b per device. ZeRO
    reduce-scatters them, stage 1 in the last micro batch and stage 2 in every one, and gathers the
    parameters, (n-1)/n P (b_g + b_w); the gather overlaps with the first forward pass, layer by layer, where
    the stack does that, and is exposed between two steps otherwise.
    """
    layout, policy, times = context.layout, context.policy, context.times
    sharded = layout.zero_stage > 0
    lines = lines_of(group, all_gather_lines if sharded else context.all_reduce)
    once = overlapped(part.schedule, times.backward_kernel_s, lines, scale=part.share)
    once = _hidden_by_chunks(once, times.backward_s, layout)
    if not sharded:
        return once
    gather_s = min_time_s(
        lines, part.gathered_bytes if policy.gather else part.params * policy.param.num_bytes
    )
    gather = fully_exposed(gather_s)
    if context.stack.overlap_param_gather:
        units = context.traffic.num_layers / layout.pp
        gather = _hidden_by_chunks(pipelined(gather_s, times.forward_s, units), times.forward_s, layout)
    return once * (context.rounds if layout.zero_stage == 2 else 1.0) + gather


def _hidden_by_chunks(found: Overlap, pass_s: Number, layout: Layout) -> Overlap:
    """What interleaving hides of a stage's exchange: each chunk but the last has other work behind it.

    The last passes of two chunks of a stage are as many passes over a chunk apart as there are stages
    (Narayanan et al., SC 2021, figure 4).
    """
    chunks = layout.vpp
    if chunks == 1:
        return found
    window_s = (chunks - 1) / chunks * (layout.pp - 1) * pass_s
    exposed_s = np.maximum(found.exposed_s - window_s, found.exposed_s / chunks)
    newly_hidden = partly_hidden(found.exposed_s, exposed_s)
    return Overlap(
        link_s=found.link_s, exposed_s=exposed_s, slowdown_s=found.slowdown_s + newly_hidden.slowdown_s
    )


def _fully_sharded(
    context: StepContext, part: ParameterPart, shard: Group, replicas: Group | None = None
) -> Overlap:
    """ZeRO 3, FSDP: gather for the forward and for the backward pass, scatter gradients, per layer.

    Every micro batch gathers and scatters: (n-1)/n P (2 b_w + b_g), and 2 (r-1)/r P/n b_g over r replicas.

    Args:
        context: Layout, links, sizes and computation.
        part: The parameters.
        shard: Ranks that hold one copy between them.
        replicas: Ranks that hold the same shard (hybrid sharding): they all-reduce its gradients.
    """
    layout, times = context.layout, context.times
    grad_bytes = part.params * context.policy.reduce.num_bytes
    units = np.maximum(context.traffic.num_layers / layout.pp, 1.0)
    lines = lines_of(shard, all_gather_lines)
    gather_s = units * min_time_s(lines, part.gathered_bytes / units)
    scatter_s = units * min_time_s(lines, grad_bytes / units)
    if replicas is not None:
        between = lines_of(replicas, all_reduce_lines)
        scatter_s = scatter_s + units * min_time_s(between, grad_bytes / units / shard.size)
    again_s = gather_s if layout.reshard_after_forward else np.zeros_like(np.asarray(gather_s))
    if layout.prefetch == 0:
        forward = fully_exposed(gather_s)
        backward = fully_exposed(again_s) + pipelined(scatter_s, times.backward_s, units)
    else:
        forward = pipelined(gather_s, times.forward_s, units)
        backward = pipelined(again_s + scatter_s, times.backward_s, units)
    return (forward + backward) * context.rounds


def _through_first_device(context: StepContext, part: ParameterPart, group: Group, ranks: int) -> Overlap:
    """DataParallel of torch, per micro batch: one process for all devices of a node, all exposed.

    Parameters are broadcast in every forward pass and gradients reduced to the first device, both in rings;
    input is scattered, output gathered and its gradient scattered. Volume at the first device:
    P_w + P_g + (n-1)/n (in + 2 out). The one process starts the kernels of all replicas: in the host's time.
    """
    policy, samples = context.policy, context.micro_batch_size * ranks
    links = group.intra
    if context.cluster.intra_node.name.startswith("pcie"):
        # A pipelined copy uses every link in one direction: the way through host memory costs it nothing.
        whole = links.bandwidth_bytes_per_s / staged_share(context.cluster.device)
        links = replace(links, bandwidth_bytes_per_s=whole)
    copies = ring_broadcast(group.size, 1.0, links, group.inter)
    scatter = root_scatter(group.size, group.intra)
    seconds = min_time_s(copies, part.params * policy.param.num_bytes)
    seconds = seconds + min_time_s(copies, part.params * policy.reduce.num_bytes)
    seconds = seconds + min_time_s(scatter, context.traffic.input_bytes * samples)
    outputs = context.traffic.output_elems * policy.activation.num_bytes * samples
    seconds = seconds + 2 * min_time_s(scatter, outputs)
    return fully_exposed(seconds)
