"""Communication of a training step by parallel axis: link seconds, and what of them the step feels.

Devices are placed with the tensor axis innermost, then context, then data, pipeline stages outermost
(Megatron's order). One function per axis; all numbers may be arrays over configurations.

References: Rajbhandari et al., ZeRO, SC 2020 (volumes); Shoeybi et al., Megatron-LM, 2019, and
Korthikanti et al., MLSys 2023 (tensor and sequence parallelism); Narayanan et al., SC 2021 (bubble);
Liu et al., Ring Attention, 2023; Lepikhin et al., GShard, ICLR 2021 (expert all-to-all).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..hardware.device import Cluster
from ..parallel.layout import Checkpointing, Layout
from ..precision.policy import PrecisionPolicy
from .collectives import (
    LinkParams,
    Number,
    all_gather_s,
    all_reduce_lines,
    all_reduce_s,
    all_to_all_s,
    link_params,
    point_to_point_s,
    reduce_scatter_s,
)
from .collectives.gather_scatter import parameter_server, root_reduce, root_scatter
from .collectives.line import fastest_s
from .collectives.ring import ring_all_gather
from .overlap import GradientSchedule, Overlap, overlapped, pipelined
from .traffic import TransformerTraffic

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Ranks of one parallel axis and the links between them."""

    size: Number
    nodes: Number
    """Nodes that the group is spread over; a fraction where it does not fill them equally."""
    intra: LinkParams
    inter: LinkParams

    @property
    def crosses_nodes(self) -> Floats:
        """1 where the group is on more than one node, else 0."""
        return np.asarray(np.asarray(self.nodes) > 1, dtype=np.float64)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTimes:
    """Computation of one micro batch on one device."""

    forward_s: Number
    backward_s: Number
    backward_kernel_s: Floats
    """Of every backward kernel, (N,) or (C, N)."""


def group_of(
    size: Number, stride: Number, cluster: Cluster, *, devices_per_node: Number | None = None
) -> Group:
    """The group of an axis with `stride` devices between neighbouring ranks.

    Args:
        size: Ranks of the axis.
        stride: Product of the sizes of the axes further in.
        cluster: Links and devices per node.
        devices_per_node: Instead of the cluster's, for arrays of configurations.

    Returns:
        The group, with the part of the node's fabric that its ranks reach.
    """
    per_node = cluster.devices_per_node if devices_per_node is None else devices_per_node
    local = np.clip(np.asarray(per_node, dtype=np.float64) / stride, 1.0, size)
    return Group(
        size=size,
        nodes=np.asarray(size / local),
        intra=link_params(cluster.intra_node, local),
        inter=link_params(cluster.inter_node),
    )


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


def tensor_parallel(
    group: Group,
    traffic: TransformerTraffic,
    *,
    samples: Number,
    bytes_per_elem: float,
    layers: Number,
    recomputed: bool,
    sequence_parallel: bool,
) -> Overlap:
    """Four all-reduces of the layer boundary per layer and micro batch, two more when recomputing.

    Args:
        group: Tensor-parallel ranks.
        traffic: Sizes of the model.
        samples: Samples of a micro batch.
        bytes_per_elem: Of activations.
        layers: Layers on this device.
        recomputed: Full checkpointing repeats the forward pass.
        sequence_parallel: Reduce-scatter and all-gather instead of all-reduce: the same volume.

    Returns:
        Seconds per micro batch, all exposed. Volume: 8 (t-1)/t of the boundary per layer.

    Accuracy: docs/accuracy.md.
    """
    size = traffic.boundary_elems * samples * bytes_per_elem
    where = (group.size, group.nodes, group.intra, group.inter)
    if sequence_parallel:
        once = reduce_scatter_s(size, *where) + all_gather_s(size, *where)
    else:
        once = all_reduce_s(size, *where)
    total = once * layers * (6 if recomputed else 4)
    return Overlap(link_s=total, exposed_s=total, slowdown_s=np.zeros_like(np.asarray(total)))


def pipeline_messages(
    group: Group,
    traffic: TransformerTraffic,
    *,
    samples: Number,
    bytes_per_elem: float,
    virtual_pp: Number,
    num_micro_batches: Number,
) -> Overlap:
    """Boundary activations forward and their gradients backward, per stage.

    Args:
        group: Stages.
        traffic: Sizes of the model.
        samples: Samples of a micro batch.
        bytes_per_elem: Of activations.
        virtual_pp: Model chunks per stage: as many times the messages.
        num_micro_batches: Micro batches per step.

    Returns:
        Seconds per optimizer step. Plain 1F1B sends are exposed; interleaved ones hide in the steady
        state and show while the pipeline fills and drains.

    Accuracy: docs/accuracy.md.
    """
    size = traffic.boundary_elems * samples * bytes_per_elem
    once = point_to_point_s(size, group.crosses_nodes, group.intra, group.inter)
    sends = np.where(np.asarray(group.size) > 1, 2.0 * virtual_pp * num_micro_batches, 0.0)
    shown = np.where(np.asarray(virtual_pp) > 1, np.minimum(sends, 2.0 * (group.size - 1)), sends)
    return Overlap(link_s=once * sends, exposed_s=once * shown, slowdown_s=np.zeros_like(once * sends))


def pipeline_bubble_s(pp: Number, virtual_pp: Number, micro_batch_s: Number) -> Number:
    r"""Idle seconds of a stage per step: $(p-1)/v$ micro batches.

    As a share of the busy time of m micro batches that is (p-1)/(v m) (Narayanan et al., SC 2021).
    """
    return (np.asarray(pp, dtype=np.float64) - 1) / virtual_pp * micro_batch_s


def context_ring(
    group: Group,
    traffic: TransformerTraffic,
    *,
    samples: Number,
    bytes_per_elem: float,
    layers: Number,
    times: StepTimes,
) -> Overlap:
    """Keys and values once around the ring forward, they and their gradients backward.

    Args:
        group: Context-parallel ranks.
        traffic: Sizes of the model.
        samples: Samples of a micro batch.
        bytes_per_elem: Of activations.
        layers: Layers on this device.
        times: The computation that the ring runs beside.

    Returns:
        Seconds per micro batch. Volume: 3 (c-1)/c of one layer's keys and values per layer.

    Assumes: blocks hide behind the computation of the layer, one block ahead.
    Accuracy: docs/accuracy.md.
    """
    block = traffic.kv_elems * samples * bytes_per_elem / group.size
    hop_s = point_to_point_s(block, group.crosses_nodes, group.intra, group.inter)
    link = 3.0 * (np.asarray(group.size, dtype=np.float64) - 1) * hop_s * layers
    found = pipelined(link, times.forward_s + times.backward_s, layers * group.size)
    alone = np.asarray(group.size) <= 1
    return Overlap(
        link_s=link,
        exposed_s=np.where(alone, 0.0, np.minimum(found.exposed_s, link)),
        slowdown_s=np.where(alone, 0.0, np.maximum(found.slowdown_s, 0.0)),
    )


def expert_exchange(
    group: Group, traffic: TransformerTraffic, *, samples: Number, bytes_per_elem: float, layers: Number
) -> Overlap:
    """Dispatch and combine, forward and backward: four all-to-alls per expert layer and micro batch.

    Args:
        group: Expert-parallel ranks.
        traffic: Sizes of the model.
        samples: Samples of a micro batch.
        bytes_per_elem: Of activations.
        layers: Expert layers on this device.

    Returns:
        Seconds per micro batch, all exposed. Volume: 4 (e-1)/e of the routed activations per layer.

    Assumes: balanced experts.
    Accuracy: docs/accuracy.md.
    """
    size = traffic.routed_elems * samples * bytes_per_elem
    total = 4.0 * layers * all_to_all_s(size, group.size, group.nodes, group.intra, group.inter)
    return Overlap(link_s=total, exposed_s=total, slowdown_s=np.zeros_like(np.asarray(total)))


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
    rounds = layout.num_micro_batches
    samples = layout.micro_batch_size if micro_batch_size is None else micro_batch_size
    times = _with_recomputation(times, layout.checkpointing)
    width = policy.activation.num_bytes
    layers = sizes.num_layers / layout.pp
    # Tensor ranks exchange whole boundaries of the context share; stages send the tensor share of it.
    local = samples / layout.cp
    sent = local / layout.tp if layout.sequence_parallel else local
    axes = {
        "data": _data_axis(layout, cluster, policy, params, schedule, times, sizes, samples),
        "tensor": _times(
            tensor_parallel(
                group_of(layout.tp, 1, cluster), sizes, samples=local, bytes_per_elem=width, layers=layers,
                recomputed=layout.checkpointing is Checkpointing.FULL,
                sequence_parallel=layout.sequence_parallel,
            ),
            rounds,
        ),
        "context": _times(
            context_ring(
                group_of(layout.cp, layout.tp, cluster), sizes, samples=samples / layout.tp,
                bytes_per_elem=width, layers=layers, times=times,
            ),
            rounds,
        ),
        "expert": _times(
            expert_exchange(
                group_of(layout.ep, layout.tp, cluster), sizes, samples=sent, bytes_per_elem=width,
                layers=sizes.moe_layers / layout.pp,
            ),
            rounds,
        ),
        "pipeline": pipeline_messages(
            group_of(layout.pp, layout.tp * layout.cp * layout.dp, cluster), sizes, samples=sent,
            bytes_per_elem=width, virtual_pp=layout.virtual_pp, num_micro_batches=rounds,
        ),
    }  # fmt: skip
    terms: dict[str, Number] = {}
    for name, axis in axes.items():
        terms[f"{name}_link_s"] = axis.link_s
        terms[f"{name}_exposed_s"] = axis.exposed_s
    micro_batch_s = times.forward_s + times.backward_s
    terms["pipeline_bubble_s"] = pipeline_bubble_s(layout.pp, layout.virtual_pp, micro_batch_s)
    terms["contention_s"] = sum((np.asarray(axis.slowdown_s) for axis in axes.values()), np.zeros(()))
    return terms


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


def _data_axis(
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
        return Overlap(link_s=0.0, exposed_s=0.0, slowdown_s=0.0)
    if layout.data_parallel_engine == "dataparallel":
        all_samples = samples * ranks
        once = data_parallel_module(
            group, param_bytes=held_bytes, grad_bytes=sent_bytes,
            scattered_bytes=sizes.input_bytes * all_samples,
            gathered_bytes=sizes.output_elems * policy.activation.num_bytes * all_samples,
        )  # fmt: skip
        return _times(once, layout.num_micro_batches)
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


def _times(once: Overlap, rounds: Number) -> Overlap:
    """The same communication in every micro batch."""
    return Overlap(
        link_s=once.link_s * rounds, exposed_s=once.exposed_s * rounds, slowdown_s=once.slowdown_s * rounds
    )
