"""Frozen weights in four bits (QLoRA): what they weigh and the operator that unpacks them."""

from __future__ import annotations

from .graph import Node, OpClass

UNPACKING = "dequantize_4bit"
"""The operator that writes packed weights out for the product that follows, in the type it multiplies in."""
PACKED_BYTES = 0.5 + (8.0 / 64.0 + 32.0 / (64.0 * 256.0)) / 8.0
"""A weight in NF4 with doubly quantized scales [B] (Dettmers et al. 2023, QLoRA, section 3)."""
_PACKED_ELEMS = PACKED_BYTES / 2.0
"""The same in elements of the two-byte type it is unpacked to."""


def unpacking(weight: float, *, repeat: int, segment: int) -> Node:
    """`weight` elements written out for the product that follows, and again in the backward pass."""
    return Node(
        op=UNPACKING,
        op_class=OpClass.ELEMENTWISE,
        in_elems=weight * _PACKED_ELEMS,
        out_elems=weight,
        scales_with_batch=False,
        input_grad=True,
        repeat=repeat,
        segment=segment,
    )
