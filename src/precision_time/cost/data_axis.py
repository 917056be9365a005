"""Gradients and parameters over the data-parallel ranks, by engine and ZeRO stage.

References: Rajbhandari et al., ZeRO, SC 2020 (volumes); Li et al., PyTorch Distributed, PVLDB 13(12),
2020; Zhao et al., PyTorch FSDP, PVLDB 16(12), 2023.
"""

from __future__ import annotations

import numpy as np

from ..hardware.device import Cluster
from ..parallel.layout import Layout
from ..precision.policy import PrecisionPolicy
from .axes import NO_COMMUNICATION, Group, StepTimes, group_of, repeated
from .collectives import Number, all_gather_s, all_reduce_lines, reduce_scatter_s
from .collectives.gather_scatter import parameter_server, root_reduce, root_scatter
from .collectives.line import fastest_s
from .collectives.ring import ring_all_gather
from .overlap import GradientSchedule, Overlap, overlapped, pipelined
from .traffic import TransformerTraffic


def gradient_all_reduce(
    group: Group, schedule: GradientSchedule, times: StepTimes, *, model_share: Number
) -> Overlap:
    """DistributedDataParallel: buckets against the last micro batch's backward pass.

    Args:
        group: Data-parallel ranks.
        schedule: Buckets of the whole model.
        times: The backward kernels the buckets wait for.
        model_share: Share of the model on this device, 1 / (tp pp).

    Returns:
        Seconds per optimizer step. Volume: 2 (n-1)/n P b per device.

    Accuracy: docs/accuracy.md.
    """
    lines = all_reduce_lines(group.size, group.nodes, group.intra, group.inter)
    return overlapped(schedule, times.backward_kernel_s, lines, scale=model_share)


def sharded_gradients(
    group: Group,
    schedule: GradientSchedule,
    times: StepTimes,
    *,
    model_share: Number,
    param_bytes: Number,
    num_micro_batches: Number,
    zero_stage: int,
) -> Overlap:
    """ZeRO 1 and 2: reduce-scatter beside the backward pass, all-gather of the new parameters.

    Args:
        group: Data-parallel ranks.
        schedule: Buckets of the whole model's gradients.
        times: The backward kernels the buckets wait for.
        model_share: Share of the model on this device, 1 / (tp pp).
        param_bytes: Bytes of the parameters of this device's share.
        num_micro_batches: Stage 2 reduces in every micro batch, stage 1 in the last.
        zero_stage: 1 or 2.

    Returns:
        Seconds per optimizer step. Volume: (n-1)/n P (b_g + b_w), gradients times the micro batches
        in stage 2. The all-gather is not hidden: it stands between two steps.

    Accuracy: docs/accuracy.md.
    """
    lines = ring_all_gather(group.size, group.nodes, group.intra, group.inter)
    one = overlapped(schedule, times.backward_kernel_s, lines, scale=model_share)
    rounds = num_micro_batches if zero_stage == 2 else 1.0
    gather_s = all_gather_s(param_bytes, group.size, group.nodes, group.intra, group.inter)
    return Overlap(
        link_s=one.link_s * rounds + gather_s,
        exposed_s=one.exposed_s * rounds + gather_s,
        slowdown_s=one.slowdown_s * rounds,
    )


def fully_sharded(
    group: Group,
    times: StepTimes,
    *,
    param_bytes: Number,
    grad_bytes: Number,
    num_units: Number,
    num_micro_batches: Number,
) -> Overlap:
    """ZeRO 3, FSDP FULL_SHARD: gather for the forward and for the backward pass, scatter gradients.

    Args:
        group: Data-parallel ranks.
        times: Forward and backward of one micro batch.
        param_bytes: Bytes of the gathered parameters of this device's share of the model.
        grad_bytes: Bytes of its gradients on the wire.
        num_units: Wrapped units (layers).
        num_micro_batches: Every micro batch gathers and scatters anew.

    Returns:
        Seconds per optimizer step. Volume: (n-1)/n P (2 b_w + b_g) per micro batch.

    Accuracy: docs/accuracy.md.
    """
    units = np.maximum(num_units, 1.0)
    where = (group.size, group.nodes, group.intra, group.inter)
    gather_s = units * all_gather_s(param_bytes / units, *where)
    scatter_s = units * reduce_scatter_s(grad_bytes / units, *where)
    forward = pipelined(gather_s, times.forward_s, units)
    backward = pipelined(gather_s + scatter_s, times.backward_s, units)
    return Overlap(
        link_s=(forward.link_s + backward.link_s) * num_micro_batches,
        exposed_s=(forward.exposed_s + backward.exposed_s) * num_micro_batches,
        slowdown_s=(forward.slowdown_s + backward.slowdown_s) * num_micro_batches,
    )


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
    total = copies_s + spread_s
    return Overlap(link_s=total, exposed_s=total, slowdown_s=np.zeros_like(np.asarray(total)))


def data_axis(
    layout: Layout,
    cluster: Cluster,
    policy: PrecisionPolicy,
    params: float,
    schedule: GradientSchedule,
    times: StepTimes,
    sizes: TransformerTraffic,
    samples: Number,
) -> Overlap:
    """Gradients and parameters over the data-parallel (and context-parallel) ranks, by engine and stage."""
    ranks = layout.dp * layout.cp
    share = 1.0 / (layout.tp * layout.pp)
    group = group_of(ranks, layout.tp, cluster)
    held_bytes = params * share * policy.param.num_bytes
    sent_bytes = params * share * policy.reduce.num_bytes
    if ranks == 1 or layout.data_parallel_engine == "none":
        return NO_COMMUNICATION
    if layout.data_parallel_engine == "dataparallel":
        all_samples = samples * ranks
        once = data_parallel_module(
            group, param_bytes=held_bytes, grad_bytes=sent_bytes,
            scattered_bytes=sizes.input_bytes * all_samples,
            gathered_bytes=sizes.output_elems * policy.activation.num_bytes * all_samples,
        )  # fmt: skip
        return repeated(once, layout.num_micro_batches)
    if layout.data_parallel_engine == "parameter-server":
        network = group.inter if cluster.num_nodes > 1 else group.intra
        return overlapped(
            schedule,
            times.backward_kernel_s,
            parameter_server(ranks, cluster.num_nodes, network),
            scale=share,
        )
    if layout.zero_stage == 0:
        return gradient_all_reduce(group, schedule, times, model_share=share)
    if layout.zero_stage == 3:
        # Autocast is run under FSDP as its MixedPrecision: parameters are gathered in the narrow type.
        wire = policy.activation if policy.autocast else policy.param
        return fully_sharded(
            group, times, param_bytes=params * share * wire.num_bytes, grad_bytes=sent_bytes,
            num_units=sizes.num_layers / layout.pp, num_micro_batches=layout.num_micro_batches,
        )  # fmt: skip
    return sharded_gradients(
        group, schedule, times, model_share=share, param_bytes=held_bytes,
        num_micro_batches=layout.num_micro_batches, zero_stage=layout.zero_stage,
    )  # fmt: skip
