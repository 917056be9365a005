"""Rows of a lowered step while it is being built, and how they become columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from ..workload.graph import EXPERT_PRODUCT, PRODUCT_CLASSES, Node, OpClass
from .lowered import PHASES, LoweredStep
from .policy import DType

OP_CLASSES = tuple(OpClass)
DTYPES = tuple(DType)
IS_PRODUCT = np.array([op_class in PRODUCT_CLASSES for op_class in OP_CLASSES])
"""By position of the class in OP_CLASSES."""
_INDICES: Mapping[str, Mapping[Any, int]] = {
    name: {value: index for index, value in enumerate(values)}
    for name, values in (("op_class", OP_CLASSES), ("dtype", DTYPES), ("phase", PHASES))
}
_NUMPY_TYPES = {"Floats": np.float64, "Bools": np.bool_, "Ints": np.int64}
_HEAD = "head"
"""The layer name of the vocabulary projection in the parametric families."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One kernel: the columns of `LoweredStep`, one value each."""

    op_class: OpClass
    phase: str
    dtype: DType
    is_cast: bool = False
    m: float = 0.0
    n: float = 0.0
    k: float = 0.0
    count: float = 0.0
    m_scales: bool = False
    k_scales: bool = False
    count_scales: bool = False
    flops: float = 0.0
    bytes_per_sample: float = 0.0
    bytes_fixed: float = 0.0
    launches: float = 1.0
    sequential_steps: float = 1.0
    repeat: float = 1.0
    kernel: float = 1.0
    stride: float = 1.0
    param_elems: float = 0.0
    segment: int = 0
    expert: bool = False
    vocabulary: bool = False
    once_per_step: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Typed:
    """Types of one forward operator under the policy."""

    compute: DType
    out: DType
    in_bytes: float
    """Bytes per element that the kernel itself reads."""
    cast_from_bytes: float
    """Bytes per element before the casts that autocast inserts; equal to `in_bytes` without."""
    cast_share: float
    """Share of the input elements that are cast."""
    quantized: bool = False


def is_vocabulary(node: Node) -> bool:
    """Whether `node` looks up a table or projects onto the vocabulary: first and last pipeline stage."""
    return node.op_class is OpClass.EMBEDDING or node.layer == _HEAD


def is_expert(node: Node) -> bool:
    """Whether `node` multiplies with the weights of routed experts."""
    return node.op == EXPERT_PRODUCT


def kernel_row(
    node: Node,
    dtype: DType,
    phase: str,
    shape: tuple[float, float, float],
    flops: float,
    activation_bytes: float,
    weight_bytes: float,
    *,
    launches: float = 1.0,
) -> Row:
    """A kernel of `node` that computes in `dtype`, whose `activation_bytes` grow with the batch."""
    scales = node.scales_with_batch
    return Row(
        op_class=node.op_class,
        phase=phase,
        dtype=dtype,
        m=shape[0],
        n=shape[1],
        k=shape[2],
        count=node.count,
        m_scales=scales and not node.batch_in_count,
        count_scales=scales and node.batch_in_count,
        flops=flops,
        bytes_per_sample=activation_bytes if scales else 0.0,
        bytes_fixed=weight_bytes + (0.0 if scales else activation_bytes),
        launches=launches,
        sequential_steps=node.sequential_steps,
        repeat=node.repeat,
        kernel=node.kernel,
        stride=node.stride,
        segment=node.segment,
        expert=is_expert(node),
        vocabulary=is_vocabulary(node),
    )


def weight_gradient_row(row: Row, node: Node) -> Row:
    """`row` as the product by the weight: the batch is its inner length, all time steps at once."""
    return replace(
        row,
        m_scales=False,
        k_scales=node.scales_with_batch and not node.batch_in_count,
        sequential_steps=1.0,
    )


def memory_row(
    node: Node,
    dtype: DType,
    phase: str,
    activation_bytes: float,
    fixed_bytes: float,
    op_class: OpClass | None = None,
    *,
    launches: float = 1.0,
) -> Row:
    """A kernel around `node` that only moves bytes."""
    scales = node.scales_with_batch
    return Row(
        op_class=op_class or node.op_class,
        phase=phase,
        dtype=dtype,
        bytes_per_sample=activation_bytes if scales else 0.0,
        bytes_fixed=fixed_bytes + (0.0 if scales else activation_bytes),
        launches=launches,
        repeat=node.repeat,
        segment=node.segment,
        expert=is_expert(node),
        vocabulary=is_vocabulary(node),
    )


def cast_row(
    node: Node, dtype: DType, phase: str, moved: float, fixed: float, *, launches: float = 1.0
) -> Row:
    """A conversion that only the policy asks for."""
    row = memory_row(node, dtype, phase, moved, fixed, OpClass.ELEMENTWISE, launches=launches)
    return replace(row, is_cast=True)


def columns(rows: Sequence[Row]) -> LoweredStep:
    """The rows as columns."""
    found: dict[str, Any] = {}
    for item in fields(LoweredStep):
        values = [getattr(row, item.name) for row in rows]
        index = _INDICES.get(item.name)
        found[item.name] = np.array(
            [index[value] for value in values] if index else values, dtype=_NUMPY_TYPES[str(item.type)]
        )
    return LoweredStep(**found)
