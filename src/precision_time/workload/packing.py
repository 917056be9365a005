"""Frozen weights in four or eight bits (QLoRA, LLM.int8): what they weigh, the operator that unpacks."""

from __future__ import annotations

from .graph import Node, OpClass

UNPACKING = "dequantize_4bit"
"""The operator that writes packed weights out for the product that follows, in the type it multiplies in."""
PACKED_BYTES = 0.5 + (8.0 / 64.0 + 32.0 / (64.0 * 256.0)) / 8.0
"""A weight in NF4 with doubly quantized scales [B] (Dettmers et al. 2023, QLoRA, section 3)."""
EIGHT_BIT_BYTES = 1.0 + 4.0 / 4096.0
"""A weight in eight bits with a scale per row [B] (Dettmers et al. 2022, LLM.int8, section 3; of 4,096)."""
_UNPACKED_BYTES = 2.0
"""Of the type that a weight is unpacked to."""


def packed_share(node: Node) -> float:
    """Of the weights of an unpacking, those that are four-bit ones where the others are not packed at all.

    All in eight bits weigh as much as so many in four and the rest in sixteen.
    """
    held = node.in_elems / node.out_elems * _UNPACKED_BYTES
    return (_UNPACKED_BYTES - held) / (_UNPACKED_BYTES - PACKED_BYTES)


def unpacking(weight: float, *, repeat: int, segment: int, packed_bytes: float = PACKED_BYTES) -> Node:
    """`weight` elements written out for the product that follows, and again in the backward pass.

    bitsandbytes multiplies int8 weights as such in the forward pass and sets outliers apart; what that takes
    is priced as the writing out that its backward pass does (Linear8bitLt).
    """
    return Node(
        op=UNPACKING,
        op_class=OpClass.ELEMENTWISE,
        in_elems=weight * packed_bytes / _UNPACKED_BYTES,
        out_elems=weight,
        scales_with_batch=False,
        input_grad=True,
        repeat=repeat,
        segment=segment,
    )
