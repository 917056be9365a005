"""Which layouts are valid: every error fills in its equation and names the remedy.

The rules are those of the frameworks: Megatron-LM (tensor, pipeline, interleaving, expert degrees),
DeepSpeed (sharding, offload), Llama 3's context parallelism (two chunks of the sequence per rank, so
that a causal mask gives all ranks equal work).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..errors import LayoutError
from .axis_rules import check_context, check_experts, check_pipeline, check_tensor
from .degrees import nearest_degrees, nearest_divisor
from .layout import Layout, Offload
from .shape import ModelShape

_FULL_SHARDING = 3


def check_model_layout(layout: Layout, shape: ModelShape, *, num_devices: int) -> None:
    """Refuse a layout that is invalid for a model; counts of the model that are None are not looked at.

    Raises:
        LayoutError: With the equation filled in and the nearest degrees that fulfill it.
    """
    if layout.cp > 1 and shape.heads is None and shape.seq_len is None:
        raise LayoutError(
            f"cp({layout.cp}) cuts sequences, but the model takes none. To fix: cp=1; data "
            "parallelism shares out samples."
        )
    _check_world(layout, num_devices, shape)
    check_pipeline(layout, num_devices, shape.num_layers)
    check_tensor(layout, num_devices, shape.heads, shape.kv_heads)
    check_context(layout, num_devices, shape.heads, shape.seq_len)
    check_experts(layout, shape.num_experts)
    _check_sharding(layout)


def layout_warnings(layout: Layout, shape: ModelShape) -> tuple[str, ...]:
    """What a layout can do but is seldom wanted, in words."""
    warnings: list[str] = []
    if layout.pp > 1 and layout.zero_stage > 1:
        gathered = "parameters gathered and " if layout.zero_stage == _FULL_SHARDING else ""
        warnings.append(
            f"ZeRO {layout.zero_stage} under a pipeline: {gathered}gradients reduced for every micro batch. "
            "DeepSpeed refuses it, torchtitan (FSDP2) runs it; zero_stage=1 is usual."
        )
    if layout.num_microbatches < layout.pp:
        idle = (layout.pp - 1) / (layout.pp - 1 + layout.num_microbatches)
        warnings.append(
            f"Fewer micro batches than stages: {layout.num_microbatches} over pp={layout.pp} leave a stage "
            f"idle for about {idle:.0%} of the step. More of them (num_microbatches) fill it."
        )
    if shape.kv_heads is not None and layout.tp > shape.kv_heads:
        warnings.append(
            f"tp={layout.tp} is more than the {shape.kv_heads} key-value heads: each is held "
            f"{layout.tp // shape.kv_heads} times."
        )
    return tuple(warnings)


def degrees_in_words(num_devices: int, degrees: Mapping[str, int], shape: ModelShape) -> str:
    """The degrees nearest to those given that the devices and the model can have: "tp=4, pp=2"."""

    def divides(count: int | None, parts: int = 1) -> Callable[[int], bool]:
        return lambda degree: count is None or count % (parts * degree) == 0

    accept = {"tp": divides(shape.heads), "pp": divides(shape.num_layers), "cp": divides(shape.seq_len, 2)}
    best = nearest_degrees(num_devices, degrees, accept)
    return ", ".join(f"{axis}={degree}" for axis, degree in best.items())


def _check_world(layout: Layout, num_devices: int, shape: ModelShape) -> None:
    if layout.world_size == num_devices:
        return
    wanted = {"tp": layout.tp, "pp": layout.pp, "cp": layout.cp}
    raise LayoutError(
        f"Invalid layout: dp({layout.dp}) * tp({layout.tp}) * pp({layout.pp}) * cp({layout.cp}) = "
        f"{layout.world_size}, but there are {num_devices} devices. To fix: "
        f"{degrees_in_words(num_devices, wanted, shape)} with dp the rest, or {layout.world_size} devices."
    )


def _check_sharding(layout: Layout) -> None:
    stage, ranks, size = layout.zero_stage, layout.data_ranks, layout.dp_shard
    if size and stage == 0:
        raise LayoutError(
            f"dp_shard({size}) shards nothing at zero_stage=0. To fix: zero_stage=3 (HSDP), or dp_shard=0."
        )
    if size < 0 or (size and ranks % size):
        raise LayoutError(
            f"Sharding groups must fill the data ranks: dp({layout.dp}) * cp({layout.cp}) = {ranks} does not "
            f"divide by dp_shard({size}). To fix: dp_shard={nearest_divisor(ranks, max(size, 1))}."
        )
    if not layout.reshard_after_forward and stage != _FULL_SHARDING:
        raise LayoutError(
            f"reshard_after_forward=False keeps parameters that ZeRO 3 gathers, got zero_stage={stage}. "
            "To fix: zero_stage=3, or leave it away."
        )
    if layout.prefetch < 0:
        raise LayoutError(f"prefetch={layout.prefetch} is below 0. To fix: prefetch=1, or 0 for none.")
    least = {Offload.NONE: 0, Offload.OPTIMIZER: 1, Offload.PARAMETERS: _FULL_SHARDING}[layout.offload]
    if stage < least:
        raise LayoutError(
            f"offload={layout.offload.value} moves what ZeRO shards: zero_stage({stage}) must be at least "
            f"{least}. To fix: zero_stage={least}, or offload=none."
        )
