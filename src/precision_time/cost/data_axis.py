"""Gradients and parameters over the data-parallel ranks, by engine and ZeRO stage.

References: Rajbhandari et al., ZeRO, SC 2020 (volumes); Li et al., PyTorch Distributed, PVLDB 13(12),
2020; Zhao et al., PyTorch FSDP, PVLDB 16(12), 2023 (full and hybrid sharding).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..hardware.device import Cluster
from ..parallel.layout import Layout
from ..precision.policy import PrecisionPolicy
from .axes import NO_COMMUNICATION, Group, StepTimes, group_of, lines_of, repeated, split_group
from .collectives import Number, all_gather_lines, all_reduce_lines
from .collectives.gather_scatter import parameter_server, root_reduce, root_scatter
from .collectives.line import fastest_s
from .job import Stack
from .overlap import CONTENTION, GradientSchedule, Overlap, overlapped, pipelined
from .traffic import TransformerTraffic


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


def later_chunks_hide(found: Overlap, pass_s: Number, pipeline: tuple[int, int]) -> Overlap:
    """What interleaving hides of a stage's exchange: each chunk but the last has other work behind it.

    Args:
        found: Against one pass over the whole stage.
        pass_s: Forward or backward pass of one micro batch on the stage.
        pipeline: Stages p and chunks v: the last passes of two chunks of a stage are p passes over a
            chunk apart (Narayanan et al., SC 2021, figure 4).
    """
    stages, chunks = pipeline
    window_s = (chunks - 1) / chunks * (stages - 1) * pass_s
    shown = np.maximum(found.exposed_s - window_s, found.exposed_s / chunks)
    slowed = found.slowdown_s + (found.exposed_s - shown) * CONTENTION
    return Overlap(link_s=found.link_s, exposed_s=shown, slowdown_s=slowed)


def gradient_all_reduce(
    group: Group,
    schedule: GradientSchedule,
    times: StepTimes,
    *,
    model_share: Number,
    pipeline: tuple[int, int] = (1, 1),
) -> Overlap:
    """DistributedDataParallel: buckets against the last micro batch's backward pass.

    Args:
        group: Data-parallel ranks.
        schedule: Buckets of the whole model.
        times: The backward kernels the buckets wait for.
        model_share: Share of the schedule's elements on this device.
        pipeline: Stages and chunks per stage, see `later_chunks_hide`.

    Returns:
        Seconds per optimizer step. Volume: 2 (n-1)/n P b per device.

    Accuracy: docs/reference/accuracy.md.
    """
    lines = lines_of(group, all_reduce_lines)
    found = overlapped(schedule, times.backward_kernel_s, lines, scale=model_share)
    return later_chunks_hide(found, times.backward_s, pipeline)


def sharded_gradients(
    group: Group,
    schedule: GradientSchedule,
    times: StepTimes,
    *,
    model_share: Number,
    param_bytes: Number,
    num_micro_batches: Number,
    zero_stage: int,
    num_units: Number = 1.0,
    overlap_parameters: bool = False,
    pipeline: tuple[int, int] = (1, 1),
) -> Overlap:
    """ZeRO 1 and 2: reduce-scatter beside the backward pass, all-gather of the new parameters.

    Args:
        group: Data-parallel ranks.
        schedule: Buckets of the whole model's gradients.
        times: The backward kernels the buckets wait for.
        model_share: Share of the schedule's elements on this device.
        param_bytes: Bytes of the parameters of this device's share.
        num_micro_batches: Stage 2 reduces in every micro batch, stage 1 in the last.
        zero_stage: 1 or 2.
        num_units: Layers, the units in which parameters are gathered ahead.
        overlap_parameters: The gather runs beside the first forward pass, layer by layer; otherwise it
            stands between two steps, not hidden.
        pipeline: Stages and chunks per stage, see `later_chunks_hide`.

    Returns:
        Seconds per optimizer step. Volume: (n-1)/n P (b_g + b_w), gradients times the micro batches
        in stage 2.

    Accuracy: docs/reference/accuracy.md.
    """
    lines = lines_of(group, all_gather_lines)
    one = overlapped(schedule, times.backward_kernel_s, lines, scale=model_share)
    rounds = num_micro_batches if zero_stage == 2 else 1.0
    one = later_chunks_hide(one, times.backward_s, pipeline)
    gather_s = fastest_s(lines, param_bytes)
    gather = _shown(gather_s)
    if overlap_parameters:
        gather = later_chunks_hide(pipelined(gather_s, times.forward_s, num_units), times.forward_s, pipeline)
    return _sum(repeated(one, rounds), gather)


def fully_sharded(
    shard: Group,
    times: StepTimes,
    *,
    param_bytes: Number,
    grad_bytes: Number,
    num_units: Number,
    num_micro_batches: Number,
    replicas: Group | None = None,
    reshard_after_forward: bool = True,
    prefetch: int = 1,
) -> Overlap:
    """ZeRO 3, FSDP: gather for the forward and for the backward pass, scatter gradients.

    Args:
        shard: Ranks that hold one copy between them.
        times: Forward and backward of one micro batch.
        param_bytes: Bytes of the gathered parameters of this device's share of the model.
        grad_bytes: Bytes of its gradients on the wire.
        num_units: Wrapped units (layers).
        num_micro_batches: Every micro batch gathers and scatters anew.
        replicas: Ranks that hold the same shard (hybrid sharding): they all-reduce its gradients.
        reshard_after_forward: Gather again for the backward pass.
        prefetch: Units gathered ahead; 0 hides nothing.

    Returns:
        Seconds per optimizer step. Volume: (n-1)/n P (2 b_w + b_g) per micro batch, and
        2 (r-1)/r P/n b_g over r replicas.

    Accuracy: docs/reference/accuracy.md.
    """
    units = np.maximum(num_units, 1.0)
    lines = lines_of(shard, all_gather_lines)
    gather_s = units * fastest_s(lines, param_bytes / units)
    scatter_s = units * fastest_s(lines, grad_bytes / units)
    if replicas is not None:
        between = lines_of(replicas, all_reduce_lines)
        scatter_s = scatter_s + units * fastest_s(between, grad_bytes / units / shard.size)
    again_s = gather_s if reshard_after_forward else np.zeros_like(np.asarray(gather_s))
    if prefetch == 0:
        forward = _shown(gather_s)
        backward = _sum(_shown(again_s), pipelined(scatter_s, times.backward_s, units))
    else:
        forward = pipelined(gather_s, times.forward_s, units)
        backward = pipelined(again_s + scatter_s, times.backward_s, units)
    return repeated(_sum(forward, backward), num_micro_batches)


def data_parallel_module(
    group: Group, *, param_bytes: Number, grad_bytes: Number, scattered_bytes: Number, gathered_bytes: Number
) -> Overlap:
    """DataParallel of torch: replicate, scatter, gather and reduce through the first device, all exposed.

    Args:
        group: Devices of one node.
        param_bytes: Parameters, replicated in every forward pass.
        grad_bytes: Gradients, summed at the first device.
        scattered_bytes: Input of all devices together.
        gathered_bytes: Output of all devices together, gathered and its gradient scattered.

    Returns:
        Seconds per micro batch. Volume at the first device: (n-1) (P_w + P_g) + (n-1)/n (in + 2 out).

    Accuracy: not calibrated.
    """
    copies_s = fastest_s(root_reduce(group.size, group.intra), param_bytes) + fastest_s(
        root_reduce(group.size, group.intra), grad_bytes
    )
    spread_s = fastest_s(root_scatter(group.size, group.intra), scattered_bytes) + 2 * fastest_s(
        root_scatter(group.size, group.intra), gathered_bytes
    )
    return _shown(copies_s + spread_s)


def data_axis(
    layout: Layout,
    cluster: Cluster,
    policy: PrecisionPolicy,
    parts: tuple[ParameterPart, ...],
    times: StepTimes,
    sizes: TransformerTraffic,
    samples: Number,
    stack: Stack,
) -> Overlap:
    """Gradients and parameters over the ranks that average them, by engine and stage.

    The first of `parts` are the dense parameters, a second one the experts where they have ranks of their
    own; the rest as `communication`.
    """
    if layout.data_parallel_engine == "none":
        return NO_COMMUNICATION
    dense = parts[0]
    ranks, stride = layout.data_ranks, min(layout.stride("dp"), layout.stride("cp"))
    group = group_of(ranks, stride, cluster)
    if ranks > 1 and layout.data_parallel_engine == "dataparallel":
        all_samples = samples * ranks
        once = data_parallel_module(
            group,
            param_bytes=dense.params * policy.param.num_bytes,
            grad_bytes=dense.params * policy.reduce.num_bytes,
            scattered_bytes=sizes.input_bytes * all_samples,
            gathered_bytes=sizes.output_elems * policy.activation.num_bytes * all_samples,
        )
        return repeated(once, layout.num_micro_batches)
    if ranks > 1 and layout.data_parallel_engine == "parameter-server":
        network = group.inter if cluster.num_nodes > 1 else group.intra
        lines = parameter_server(ranks, cluster.num_nodes, network)
        return overlapped(dense.schedule, times.backward_kernel_s, lines, scale=dense.share)
    total = NO_COMMUNICATION
    shard_size = layout.shard_size
    for part in parts:
        if ranks > 1:
            found = _exchange(layout, cluster, policy, part, times, sizes, stack, ranks, stride, shard_size)
            total = _sum(total, found)
        ranks, stride = layout.expert_data_ranks, layout.ep * layout.tensor_degree_of_experts
        shard_size = 0
    return total


def _exchange(
    layout: Layout,
    cluster: Cluster,
    policy: PrecisionPolicy,
    part: ParameterPart,
    times: StepTimes,
    sizes: TransformerTraffic,
    stack: Stack,
    ranks: int,
    stride: int,
    shard_size: int,
) -> Overlap:
    """What one part of the parameters sends per optimizer step."""
    group = group_of(ranks, stride, cluster)
    units = sizes.num_layers / layout.pp
    pipeline = (layout.pp, layout.virtual_pp)
    if layout.zero_stage == 3:
        shard, replicas = group, None
        if 0 < shard_size < ranks:
            shard, replicas = split_group(ranks, shard_size, stride, cluster)
        return fully_sharded(
            shard, times, param_bytes=part.gathered_bytes,
            grad_bytes=part.params * policy.reduce.num_bytes, num_units=units,
            num_micro_batches=layout.num_micro_batches, replicas=replicas,
            reshard_after_forward=layout.reshard_after_forward, prefetch=layout.prefetch,
        )  # fmt: skip
    if layout.zero_stage == 0:
        found = gradient_all_reduce(group, part.schedule, times, model_share=part.share, pipeline=pipeline)
    else:
        found = sharded_gradients(
            group, part.schedule, times, model_share=part.share,
            param_bytes=part.gathered_bytes if policy.gather else part.params * policy.param.num_bytes,
            num_units=units, num_micro_batches=layout.num_micro_batches, zero_stage=layout.zero_stage,
            overlap_parameters=stack.overlap_parameters, pipeline=pipeline,
        )  # fmt: skip
    if stack.overlap_gradients:
        return found
    return _shown(found.link_s)


def _shown(seconds: Number) -> Overlap:
    """A communication that nothing hides."""
    return Overlap(link_s=seconds, exposed_s=seconds, slowdown_s=np.zeros_like(np.asarray(seconds)))


def _sum(one: Overlap, other: Overlap) -> Overlap:
    """One after the other."""
    return Overlap(
        link_s=one.link_s + other.link_s,
        exposed_s=one.exposed_s + other.exposed_s,
        slowdown_s=one.slowdown_s + other.slowdown_s,
    )
