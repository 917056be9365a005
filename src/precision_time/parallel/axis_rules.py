"""What each axis may be: layers over stages, heads over tensor ranks, tokens and experts over theirs."""

from __future__ import annotations

import math
from dataclasses import replace

from ..errors import LayoutError
from .degrees import nearest_divisor, nearest_multiple
from .layout import CpCommType, Layout, PipelineSchedule, layers_of_stages, stage_layers_in_words
from .schedules.interleaved import check_groups


def check_pipeline(layout: Layout, num_devices: int, num_layers: int | None) -> None:
    """Refuse a schedule that cannot run, and layers that do not divide into its chunks.

    Raises:
        LayoutError: With an uneven split, where that is the remedy.
    """
    pp, virtual, interleaved = layout.pp, layout.vpp, PipelineSchedule.INTERLEAVED
    if virtual > 1 and (layout.schedule is not interleaved or pp == 1):
        remedy = "pp=2 or more, or vpp=1" if pp == 1 else "schedule=interleaved, or vpp=1"
        raise LayoutError(
            f"vpp({virtual}) is for the interleaved schedule of a pipeline, got "
            f"schedule={layout.schedule.value} and pp={pp}. To fix: {remedy}."
        )
    if layout.schedule is interleaved and virtual == 1:
        raise LayoutError(
            "schedule=interleaved needs at least two model chunks per stage, got vpp=1. To fix: "
            "vpp=2, or schedule=1f1b."
        )
    if layout.schedule is interleaved:
        check_groups(pp, layout.num_microbatches)
    if layout.stage_layers:
        _check_stage_layers(layout, num_layers)
    elif num_layers is not None and num_layers % (pp * virtual):
        _refuse_uneven(layout, num_devices, num_layers)


def _check_stage_layers(layout: Layout, num_layers: int | None) -> None:
    given, stages = stage_layers_in_words(layout.stage_layers), len(layout.stage_layers)
    if stages != layout.pp:
        raise LayoutError(
            f"stage_layers={given} names {stages} stages, but pp={layout.pp}. To fix: one number per stage."
        )
    total = sum(layout.stage_layers)
    if min(layout.stage_layers) < 1 or (num_layers is not None and total != num_layers):
        wanted = num_layers if num_layers is not None else max(total, layout.pp)
        even = stage_layers_in_words(layers_of_stages(wanted, replace(layout, stage_layers=())))
        raise LayoutError(
            f"stage_layers={given} adds up to {total}; it must give every stage a layer and add up to "
            f"{wanted}. To fix: stage_layers={even}."
        )
    ends = (0, stages - 1)
    scarce = [layers + (stage in ends) < layout.vpp for stage, layers in enumerate(layout.stage_layers)]
    if any(scarce):
        stage = scarce.index(True)
        raise LayoutError(
            f"stage_layers={given} gives stage {stage} {layout.stage_layers[stage]} layers for vpp="
            f"{layout.vpp} chunks; only the first and the last stage may have one fewer, as they also "
            f"embed and compute the loss. To fix: vpp={max(min(layout.stage_layers), 1)} or less."
        )


def _refuse_uneven(layout: Layout, num_devices: int, num_layers: int) -> None:
    pp, virtual = layout.pp, layout.vpp
    chunks, rest = pp * virtual, num_devices // math.gcd(num_devices, layout.tp * layout.cp)
    fitting = nearest_divisor(rest, pp, lambda degree: num_layers % (degree * virtual) == 0)
    if num_layers < chunks:
        raise LayoutError(
            f"The model has fewer layers than the pipeline has parts: layers({num_layers}) < pp({pp}) * "
            f"vpp({virtual}) = {chunks}. To fix: pp={fitting}."
        )
    remedies: list[str] = []
    if num_layers % pp:
        uneven = stage_layers_in_words(layers_of_stages(num_layers, layout))
        remedies.append(f"an uneven split, stage_layers={uneven}")
    elif (per_stage := nearest_divisor(num_layers // pp, virtual)) > 1:
        remedies.append(f"vpp={per_stage}")
    if fitting > 1:
        remedies.append(f"pp={fitting}")
    by_chunks = f"(pp({pp}) * vpp({virtual}))" if virtual > 1 else f"pp({pp})"
    raise LayoutError(
        f"Layers do not divide into stages: layers({num_layers}) % {by_chunks} = {num_layers % chunks}. "
        f"To fix: {', or '.join(remedies) or 'schedule=1f1b with vpp=1'}."
    )


def check_tensor(layout: Layout, num_devices: int, heads: int | None, kv_heads: int | None) -> None:
    """Refuse a tensor degree that does not divide the heads.

    Raises:
        LayoutError: With the nearest degree that does.
    """
    tp, rest = layout.tp, num_devices // math.gcd(num_devices, layout.pp * layout.cp)
    if heads is not None and heads % tp:
        best = nearest_divisor(rest, tp, lambda degree: heads % degree == 0)
        raise LayoutError(
            f"Tensor parallelism cuts attention by heads: heads({heads}) % tp({tp}) = {heads % tp}. "
            f"To fix: tp={best}."
        )
    if kv_heads is not None and kv_heads % tp and tp % kv_heads:
        best = nearest_divisor(
            rest,
            tp,
            lambda degree: (heads or degree) % degree == 0 and 0 in (kv_heads % degree, degree % kv_heads),
        )
        raise LayoutError(
            f"Tensor parallelism cuts or repeats key-value heads: neither kv_heads({kv_heads}) % tp({tp}) = "
            f"{kv_heads % tp} nor tp % kv_heads = {tp % kv_heads} is 0. To fix: tp={best}."
        )


def check_context(layout: Layout, num_devices: int, heads: int | None, seq_len: int | None) -> None:
    """Refuse context and sequence parallelism that do not divide the tokens.

    Raises:
        LayoutError: With the nearest sequence length and degree.
    """
    cp, tp = layout.cp, layout.tp
    rest = num_devices // math.gcd(num_devices, layout.pp * tp)
    ulysses = layout.cp_comm_type is CpCommType.ULYSSES
    if cp > 1 and ulysses and heads is not None and heads % (cp * tp):
        best = nearest_divisor(rest, cp, lambda degree: heads % (degree * tp) == 0)
        raise LayoutError(
            f"Ulysses shares heads out over context ranks: heads({heads}) % (cp({cp}) * tp({tp})) = "
            f"{heads % (cp * tp)}. To fix: cp={best}, or cp_comm_type=ring."
        )
    chunks = cp if ulysses or cp == 1 else 2 * cp
    words = f"cp({cp})" if chunks == cp else f"2 * cp({cp})"
    if seq_len is not None and seq_len % chunks:
        best = nearest_divisor(rest, cp, lambda degree: seq_len % (chunks // cp * degree) == 0)
        raise LayoutError(
            f"Context parallelism cuts the sequence into equal parts: seq_len({seq_len}) % ({words}) = "
            f"{seq_len % chunks}. To fix: seq_len={nearest_multiple(chunks, seq_len)}, or cp={best}."
        )
    if seq_len is not None and layout.sequence_parallel and (seq_len // cp) % tp:
        raise LayoutError(
            f"Sequence parallelism cuts what a context rank holds: (seq_len({seq_len}) / cp({cp})) % "
            f"tp({tp}) = {(seq_len // cp) % tp}. To fix: seq_len={nearest_multiple(chunks * tp, seq_len)}, "
            "or sequence_parallel=False."
        )


def check_experts(layout: Layout, num_experts: int) -> None:
    """Refuse expert degrees that do not fit the devices or the experts; 0 experts for a model without.

    Raises:
        LayoutError: With the nearest degrees that do.
    """
    ep, etp = layout.ep, layout.tensor_degree_of_experts
    stated = {
        "ep": ep > 1,
        "etp": layout.etp is not None,
        "expert_capacity_factor": layout.expert_capacity_factor != 0,
        "expert_nodes": layout.expert_nodes != 0,
        "expert_overlap": layout.expert_overlap,
    }
    if num_experts == 0 and any(stated.values()):
        named = ", ".join(f"{name}={getattr(layout, name):g}" for name, given in stated.items() if given)
        raise LayoutError(f"{named} is about experts, but the model has none. To fix: leave it away.")
    if layout.expert_capacity_factor < 0:
        raise LayoutError(
            f"expert_capacity_factor={layout.expert_capacity_factor:g} must not be below 0. "
            "To fix: 0 drops no tokens, "
            "1.25 leaves a quarter more tokens than an even share."
        )
    if layout.expert_nodes < 0:
        raise LayoutError(
            f"expert_nodes={layout.expert_nodes} must not be below 0. To fix: expert_nodes=4 (DeepSeek-V3), "
            "or 0 to send a token once per expert."
        )
    if ep == 1 and layout.etp is None:
        return
    ranks = layout.tp * layout.cp * layout.dp
    if ranks % (ep * etp):
        tensor = etp if ranks % etp == 0 else nearest_divisor(ranks, etp)
        best = nearest_divisor(ranks // tensor, ep, lambda degree: not num_experts % degree)
        raise LayoutError(
            f"Experts share the devices of a pipeline stage: tp({layout.tp}) * cp({layout.cp}) * "
            f"dp({layout.dp}) = {ranks} does not divide by ep({ep}) * etp({etp}) = "
            f"{ep * etp}. To fix: ep={best}, etp={tensor}."
        )
    if num_experts and num_experts % ep:
        best = nearest_divisor(num_experts, ep, lambda degree: ranks % (degree * etp) == 0)
        raise LayoutError(
            f"Experts are distributed evenly: experts({num_experts}) % ep({ep}) = {num_experts % ep}. "
            f"To fix: ep={best}."
        )
