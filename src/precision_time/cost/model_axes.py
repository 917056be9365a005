"""Traffic of a model cut over devices: tensor, context, expert and pipeline parallelism.

References: Shoeybi et al., Megatron-LM, 2019, and Korthikanti et al., MLSys 2023 (tensor and sequence
parallelism); Narayanan et al., SC 2021 (scattered pipeline messages); Liu et al., Ring Attention, 2023;
Lepikhin et al., GShard, ICLR 2021 (expert all-to-all).
"""

from __future__ import annotations

import numpy as np

from .axes import Group, StepTimes, lines_of, sends_of
from .collectives import Number, all_gather_lines, all_reduce_lines, all_to_all_lines, fastest_s
from .overlap import CONTENTION, Overlap, pipelined
from .traffic import TransformerTraffic

_SHOWN_OF_CUT_MESSAGES = 0.4
"""Of tensor-parallel messages cut into pieces beside the products. Assumed: the first and the last piece of
four have nothing to hide behind, and products of a quarter of the rows run slower."""


def tensor_parallel(
    group: Group,
    traffic: TransformerTraffic,
    *,
    samples: Number,
    bytes_per_elem: float,
    layers: Number,
    recomputed: float,
    sequence_parallel: bool,
    hidden: bool = False,
) -> Overlap:
    """Four all-reduces of the layer boundary per layer and micro batch, two more when recomputing.

    Args:
        group: Tensor-parallel ranks.
        traffic: Sizes of the model.
        samples: Samples of a micro batch.
        bytes_per_elem: Of activations.
        layers: Layers on this device.
        recomputed: Share of the layers whose forward pass full checkpointing repeats.
        sequence_parallel: Reduce-scatter and all-gather instead of all-reduce: the same volume.
        hidden: Messages are cut up and run beside the products before and after them.

    Returns:
        Seconds per micro batch, all exposed unless `hidden`. Volume: 8 (t-1)/t of the boundary per layer.

    Accuracy: docs/reference/accuracy.md.
    """
    size = traffic.boundary_elems * samples * bytes_per_elem
    if sequence_parallel:
        once = 2.0 * fastest_s(lines_of(group, all_gather_lines), size)
    else:
        once = fastest_s(lines_of(group, all_reduce_lines), size)
    total = once * layers * (4 + 2 * recomputed)
    shown = total * (_SHOWN_OF_CUT_MESSAGES if hidden else 1.0)
    return Overlap(link_s=total, exposed_s=shown, slowdown_s=(total - shown) * CONTENTION)


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

    Accuracy: docs/reference/accuracy.md.
    """
    size = traffic.boundary_elems * samples * bytes_per_elem
    once = fastest_s(sends_of(group), size)
    sends = np.where(np.asarray(group.size) > 1, 2.0 * virtual_pp * num_micro_batches, 0.0)
    shown = np.where(np.asarray(virtual_pp) > 1, np.minimum(sends, 2.0 * (group.size - 1)), sends)
    return Overlap(link_s=once * sends, exposed_s=once * shown, slowdown_s=np.zeros_like(once * sends))


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
    Accuracy: docs/reference/accuracy.md.
    """
    block = traffic.kv_elems * samples * bytes_per_elem / group.size
    hop_s = fastest_s(sends_of(group), block)
    link = 3.0 * (np.asarray(group.size, dtype=np.float64) - 1) * hop_s * layers
    found = pipelined(link, times.forward_s + times.backward_s, layers * group.size)
    alone = np.asarray(group.size) <= 1
    return Overlap(
        link_s=link,
        exposed_s=np.where(alone, 0.0, np.minimum(found.exposed_s, link)),
        slowdown_s=np.where(alone, 0.0, np.maximum(found.slowdown_s, 0.0)),
    )


def context_gather(
    group: Group, traffic: TransformerTraffic, *, samples: Number, bytes_per_elem: float, layers: Number
) -> Overlap:
    """Keys and values gathered before attention, and their gradients scattered (Llama 3, section 3.3.2).

    Args:
        group: Context-parallel ranks.
        traffic: Sizes of the model.
        samples: Samples of a micro batch.
        bytes_per_elem: Of activations.
        layers: Layers on this device.

    Returns:
        Seconds per micro batch, all exposed. Volume: 3 (c-1)/c of one layer's keys and values per layer.
    """
    size = traffic.kv_elems * samples * bytes_per_elem
    total = layers * 3.0 * fastest_s(lines_of(group, all_gather_lines), size)
    return Overlap(link_s=total, exposed_s=total, slowdown_s=np.zeros_like(np.asarray(total)))


def context_all_to_all(
    group: Group, traffic: TransformerTraffic, *, samples: Number, bytes_per_elem: float, layers: Number
) -> Overlap:
    """Sequence for heads and back, by all-to-all (Jacobs et al., DeepSpeed Ulysses, 2023).

    Args:
        group: Context-parallel ranks.
        traffic: Sizes of the model.
        samples: Samples of a micro batch.
        bytes_per_elem: Of activations.
        layers: Layers on this device.

    Returns:
        Seconds per micro batch, all exposed: queries, keys, values and the output, forward and backward.
    """
    lines = lines_of(group, all_to_all_lines)
    local = samples * bytes_per_elem / group.size
    queries = fastest_s(lines, traffic.boundary_elems * local)
    keys = fastest_s(lines, traffic.kv_elems * local)
    total = layers * 2.0 * (2.0 * queries + keys)
    return Overlap(link_s=total, exposed_s=total, slowdown_s=np.zeros_like(np.asarray(total)))


def expert_exchange(
    group: Group,
    traffic: TransformerTraffic,
    *,
    samples: Number,
    bytes_per_elem: float,
    layers: Number,
    recomputed: float = 0.0,
) -> Overlap:
    """Dispatch and combine, forward and backward: four all-to-alls per expert layer and micro batch.

    Args:
        group: Expert-parallel ranks.
        traffic: Sizes of the model.
        samples: Samples of a micro batch.
        bytes_per_elem: Of activations.
        layers: Expert layers on this device.
        recomputed: Share of the layers whose forward pass is repeated, which sends again.

    Returns:
        Seconds per micro batch, all exposed. Volume: 4 (e-1)/e of the routed activations per layer.

    Assumes: balanced experts.
    Accuracy: docs/reference/accuracy.md.
    """
    size = traffic.routed_elems * samples * bytes_per_elem
    once = fastest_s(lines_of(group, all_to_all_lines), size)
    total = (4.0 + 2.0 * recomputed) * layers * once
    return Overlap(link_s=total, exposed_s=total, slowdown_s=np.zeros_like(np.asarray(total)))
