"""Which layouts can be: every refusal fills in its equation and names the way out.

The rules are those of the frameworks: Megatron-LM (tensor, pipeline, interleaving, expert degrees),
DeepSpeed (sharding, offload), Llama 3's context parallelism (two chunks of the sequence per rank, so
that a causal mask leaves all ranks alike).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby

from ..errors import LayoutError
from .degrees import nearest_degrees, nearest_divisor, nearest_multiple
from .layout import ContextMethod, Layout, Offload, PipelineSchedule
from .schedules.interleaved import check_groups
from .shape import ModelShape
from .stages import layers_of_stages

_FULL_SHARDING = 3


def check_layout(
    layout: Layout,
    *,
    num_devices: int,
    num_layers: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    seq_len: int | None = None,
    num_experts: int | None = None,
    global_batch_size: float | None = None,
) -> None:
    """Refuse a layout that cannot be; counts that are None are not looked at.

    Args:
        layout: Degrees, schedule, sharding.
        num_devices: World size.
        num_layers: Repeated layers of the model.
        heads: Attention heads.
        kv_heads: Heads of keys and values.
        seq_len: Tokens per sample.
        num_experts: Experts of a layer; 0 for a model that has none.
        global_batch_size: Samples per optimizer step, where it was stated.

    Raises:
        LayoutError: With the equation filled in and the nearest degrees that do.
    """
    shape = ModelShape(num_layers=num_layers, heads=heads, seq_len=seq_len)
    _check_world(layout, num_devices, shape)
    _check_pipeline(layout, num_devices, num_layers)
    _check_tensor(layout, num_devices, heads, kv_heads)
    _check_context(layout, num_devices, heads, seq_len)
    _check_experts(layout, num_experts)
    _check_sharding(layout)
    _check_batch(layout, global_batch_size)


def check_model_layout(
    layout: Layout, shape: ModelShape, *, num_devices: int, global_batch_size: float | None = None
) -> None:
    """`check_layout` with the counts of a model.

    Raises:
        LayoutError: As `check_layout`, and if a model without tokens is cut along them.
    """
    if layout.cp > 1 and shape.heads is None and shape.seq_len is None:
        raise LayoutError(
            f"cp({layout.cp}) cuts sequences, but the model takes none. To fix: cp=1; data "
            "parallelism shares out samples."
        )
    check_layout(
        layout,
        num_devices=num_devices,
        num_layers=shape.num_layers,
        heads=shape.heads,
        kv_heads=shape.kv_heads,
        seq_len=shape.seq_len,
        num_experts=shape.num_experts,
        global_batch_size=global_batch_size,
    )


def layout_warnings(layout: Layout, shape: ModelShape) -> tuple[str, ...]:
    """What a layout can do but is seldom wanted, in words."""
    warnings: list[str] = []
    if layout.pp > 1 and layout.zero_stage > 1:
        gathered = "parameters gathered and " if layout.zero_stage == _FULL_SHARDING else ""
        warnings.append(
            f"ZeRO {layout.zero_stage} under a pipeline: {gathered}gradients reduced for every micro batch. "
            "DeepSpeed refuses it, torchtitan (FSDP2) runs it; zero=1 is usual."
        )
    if layout.num_micro_batches < layout.pp:
        idle = (layout.pp - 1) / (layout.pp - 1 + layout.num_micro_batches)
        warnings.append(
            f"Fewer micro batches than stages: {layout.num_micro_batches} over pp={layout.pp} leave a stage "
            f"idle for about {idle:.0%} of the step. More of them (grad_accum) fill it."
        )
    if shape.kv_heads is not None and layout.tp > shape.kv_heads:
        warnings.append(
            f"tp={layout.tp} is more than the {shape.kv_heads} key-value heads: each is held "
            f"{layout.tp // shape.kv_heads} times."
        )
    return tuple(warnings)


def stage_layers_in_words(layers: Sequence[int]) -> str:
    """Layers of the stages as the options take them.

    >>> stage_layers_in_words((7, 8, 8, 8, 7))
    '7,8x3,7'
    """
    runs = [(value, len(list(run))) for value, run in groupby(layers)]
    return ",".join(f"{value}x{length}" if length > 1 else f"{value}" for value, length in runs)


def degrees_in_words(num_devices: int, degrees: Mapping[str, int], shape: ModelShape) -> str:
    """The degrees nearest to those given that the devices and the model can have: "tp=4, pp=2".

    Args:
        num_devices: World size.
        degrees: Wanted tp, pp and cp, or some of them.
        shape: Heads, layers and tokens must divide where they are known.
    """

    def divides(count: int | None, parts: int = 1) -> Callable[[int], bool]:
        return lambda degree: count is None or count % (parts * degree) == 0

    accept = {"tp": divides(shape.heads), "pp": divides(shape.num_layers), "cp": divides(shape.seq_len, 2)}
    best = nearest_degrees(num_devices, degrees, accept)
    return ", ".join(f"{axis}={degree}" for axis, degree in best.items())


def _check_world(layout: Layout, num_devices: int, shape: ModelShape) -> None:
    if layout.world_size == num_devices:
        return
    asked = {"tp": layout.tp, "pp": layout.pp, "cp": layout.cp}
    raise LayoutError(
        f"Invalid layout: dp({layout.dp}) * tp({layout.tp}) * pp({layout.pp}) * cp({layout.cp}) = "
        f"{layout.world_size}, but there are {num_devices} devices. To fix: "
        f"{degrees_in_words(num_devices, asked, shape)} with dp the rest, or {layout.world_size} devices."
    )


def _check_pipeline(layout: Layout, num_devices: int, num_layers: int | None) -> None:
    pp, virtual, interleaved = layout.pp, layout.virtual_pp, PipelineSchedule.INTERLEAVED
    if virtual > 1 and (layout.schedule is not interleaved or pp == 1):
        way_out = "pp=2 or more, or virtual_pp=1" if pp == 1 else "schedule=interleaved, or virtual_pp=1"
        raise LayoutError(
            f"virtual_pp({virtual}) is for the interleaved schedule of a pipeline, got "
            f"schedule={layout.schedule.value} and pp={pp}. To fix: {way_out}."
        )
    if layout.schedule is interleaved and virtual == 1:
        raise LayoutError(
            "schedule=interleaved needs at least two model chunks per stage, got virtual_pp=1. To fix: "
            "virtual_pp=2, or schedule=1f1b."
        )
    if layout.schedule is interleaved:
        check_groups(pp, layout.num_micro_batches)
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


def _refuse_uneven(layout: Layout, num_devices: int, num_layers: int) -> None:
    pp, virtual = layout.pp, layout.virtual_pp
    chunks, rest = pp * virtual, num_devices // math.gcd(num_devices, layout.tp * layout.cp)
    fitting = nearest_divisor(rest, pp, lambda degree: num_layers % (degree * virtual) == 0)
    if num_layers < chunks:
        raise LayoutError(
            f"The model has fewer layers than the pipeline has parts: layers({num_layers}) < pp({pp}) * "
            f"virtual_pp({virtual}) = {chunks}. To fix: pp={fitting}."
        )
    ways_out: list[str] = []
    if num_layers % pp:
        uneven = stage_layers_in_words(layers_of_stages(num_layers, layout))
        ways_out.append(f"an uneven split, stage_layers={uneven}")
    elif (per_stage := nearest_divisor(num_layers // pp, virtual)) > 1:
        ways_out.append(f"virtual_pp={per_stage}")
    if fitting > 1:
        ways_out.append(f"pp={fitting}")
    by_chunks = f"(pp({pp}) * virtual_pp({virtual}))" if virtual > 1 else f"pp({pp})"
    raise LayoutError(
        f"Layers do not divide into stages: layers({num_layers}) % {by_chunks} = {num_layers % chunks}. "
        f"To fix: {', or '.join(ways_out) or 'schedule=1f1b with virtual_pp=1'}."
    )


def _check_tensor(layout: Layout, num_devices: int, heads: int | None, kv_heads: int | None) -> None:
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


def _check_context(layout: Layout, num_devices: int, heads: int | None, seq_len: int | None) -> None:
    cp, tp = layout.cp, layout.tp
    rest = num_devices // math.gcd(num_devices, layout.pp * tp)
    ulysses = layout.context_method is ContextMethod.ULYSSES
    if cp > 1 and ulysses and heads is not None and heads % (cp * tp):
        best = nearest_divisor(rest, cp, lambda degree: heads % (degree * tp) == 0)
        raise LayoutError(
            f"Ulysses shares heads out over context ranks: heads({heads}) % (cp({cp}) * tp({tp})) = "
            f"{heads % (cp * tp)}. To fix: cp={best}, or context_method=ring."
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


def _check_experts(layout: Layout, num_experts: int | None) -> None:
    ep, expert_tp = layout.ep, layout.tensor_degree_of_experts
    said = {
        "ep": ep > 1,
        "expert_tp": layout.expert_tp is not None,
        "expert_capacity": layout.expert_capacity != 0,
    }
    if num_experts == 0 and any(said.values()):
        named = ", ".join(f"{name}={getattr(layout, name):g}" for name, given in said.items() if given)
        raise LayoutError(f"{named} is about experts, but the model has none. To fix: leave it away.")
    if layout.expert_capacity < 0:
        raise LayoutError(
            f"expert_capacity={layout.expert_capacity:g} must not be below 0. To fix: 0 drops no tokens, "
            "1.25 leaves a quarter more room than an even share."
        )
    if ep == 1 and layout.expert_tp is None:
        return
    ranks = layout.tp * layout.cp * layout.dp
    if ranks % (ep * expert_tp):
        tensor = expert_tp if ranks % expert_tp == 0 else nearest_divisor(ranks, expert_tp)
        best = nearest_divisor(ranks // tensor, ep, lambda degree: not (num_experts or 0) % degree)
        raise LayoutError(
            f"Experts share the devices of a pipeline stage: tp({layout.tp}) * cp({layout.cp}) * "
            f"dp({layout.dp}) = {ranks} does not divide by ep({ep}) * expert_tp({expert_tp}) = "
            f"{ep * expert_tp}. To fix: ep={best}, expert_tp={tensor}."
        )
    if num_experts and num_experts % ep:
        best = nearest_divisor(num_experts, ep, lambda degree: ranks % (degree * expert_tp) == 0)
        raise LayoutError(
            f"Experts are dealt out evenly: experts({num_experts}) % ep({ep}) = {num_experts % ep}. "
            f"To fix: ep={best}."
        )


def _check_sharding(layout: Layout) -> None:
    stage, ranks, size = layout.zero_stage, layout.data_ranks, layout.shard_size
    if size and stage == 0:
        raise LayoutError(
            f"shard_size({size}) shards nothing at zero_stage=0. To fix: zero=3 (HSDP), or shard_size=0."
        )
    if size < 0 or (size and ranks % size):
        raise LayoutError(
            f"Sharding groups must fill the data ranks: dp({layout.dp}) * cp({layout.cp}) = {ranks} does not "
            f"divide by shard_size({size}). To fix: shard_size={nearest_divisor(ranks, max(size, 1))}."
        )
    if not layout.reshard_after_forward and stage != _FULL_SHARDING:
        raise LayoutError(
            f"reshard_after_forward=False keeps parameters that ZeRO 3 gathers, got zero_stage={stage}. "
            "To fix: zero=3, or leave it away."
        )
    least = {Offload.NONE: 0, Offload.OPTIMIZER: 1, Offload.PARAMETERS: _FULL_SHARDING}[layout.offload]
    if stage < least:
        raise LayoutError(
            f"offload={layout.offload.value} moves what ZeRO shards: zero_stage({stage}) must be at least "
            f"{least}. To fix: zero={least}, or offload=none."
        )


def _check_batch(layout: Layout, global_batch_size: float | None) -> None:
    shares = layout.dp * layout.num_micro_batches
    if global_batch_size is not None and global_batch_size % shares:
        raise LayoutError(
            f"global_batch_size={global_batch_size:g} does not divide by dp({layout.dp}) * "
            f"num_micro_batches({layout.num_micro_batches}) = {shares}. To fix: use "
            f"{nearest_multiple(shares, int(global_batch_size))}."
        )
