"""GEMM views of the operators that multiply matrices.

Conventions are those of `graph.Node`: a convolution is the implicit GEMM of output positions x output
channels per group x (input channels per group x kernel area), attention is query x key x head size.
FLOPs of a transposed convolution are those of the convolution it is the gradient of.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from ..records import dataclass
from ..workload.graph import OpClass
from .values import ValueTable


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """Shape of a product, and which operands it keeps: positions in the operator's arguments."""

    op_class: OpClass
    m: float
    n: float
    k: float
    count: float = 1.0
    batch_in_count: bool = False
    kernel: int = 1
    stride: int = 1
    causal: bool = False
    sequential_steps: int = 1
    op: str | None = None
    operands: tuple[Any, Any] | None = None
    """The two factors: each is kept when the gradient of the other is needed."""


def convolution(table: ValueTable, args: Sequence[Any], out: Any) -> Product:
    """aten::convolution(input, weight, bias, stride, padding, dilation, transposed, out_pad, groups)."""
    data, weight = args[0], args[1]
    transposed, groups = bool(args[6]), int(args[8])
    area = prod(weight.shape[2:])
    spatial = data.shape[2:] if transposed else out.shape[2:]
    positions = data.shape[0] * prod(spatial)
    if transposed:
        n, k = weight.shape[1] * area, weight.shape[0] // groups
    else:
        n, k = weight.shape[0] // groups, weight.shape[1] * area
    m, channels, per_sample = float(positions), data.shape[1], False
    if table.scales(data) and positions % table.batch == 0:
        m /= table.batch
    elif table.scales(data) and groups % table.batch == 0:  # each sample convolved with weights of its own
        groups, channels, per_sample = groups // table.batch, channels // table.batch, True
    if groups == 1:
        op_class = OpClass.CONV
    else:
        op_class = OpClass.DEPTHWISE_CONV if channels == groups else OpClass.GROUPED_CONV
    return Product(
        op_class=op_class,
        m=m,
        n=float(n),
        k=float(k),
        count=float(groups),
        batch_in_count=per_sample,
        kernel=area,
        stride=int(prod(args[3])) if len(args[3]) == len(spatial) else int(args[3][0]) ** len(spatial),
        op="convolution_transposed" if transposed else None,
        operands=(data, weight),
    )


def matrix_product(table: ValueTable, left: Any, right: Any) -> Product:
    """Products of 2-D or 3-D operands (mm, addmm, bmm, baddbmm), mv and dot as their one-column case."""
    left_shape = tuple(left.shape) if left.dim() > 1 else (1, left.shape[0])
    right_shape = tuple(right.shape) if right.dim() > 1 else (right.shape[0], 1)
    count = float(prod(left_shape[:-2]))
    m, k, n = float(left_shape[-2]), float(left_shape[-1]), float(right_shape[-1])
    left_scales, right_scales = table.scales(left), table.scales(right)
    if right_scales and not left_scales:
        m, n = n, m
    op_class = OpClass.BMM if left_scales and right_scales else OpClass.GEMM
    batch_in_count = False
    if table.grows(left) or table.grows(right):
        weight_first = op_class is OpClass.GEMM and m % table.batch == 0
        if weight_first:
            m /= table.batch
        else:
            m, n, k, count, batch_in_count = _without_batch(table.batch, m, n, k, count)
    return Product(
        op_class=op_class,
        m=m,
        n=n,
        k=k,
        count=count,
        batch_in_count=batch_in_count,
        operands=(left, right),
    )


def _without_batch(
    batch: int, m: float, n: float, k: float, count: float
) -> tuple[float, float, float, float, bool]:
    """Divides the batch out of whichever dimension holds it."""
    if count % batch == 0:
        return m, n, k, count / batch, True
    if m % batch == 0:
        return m / batch, n, k, count, False
    if k % batch == 0:
        return m, n, k / batch, count, True
    if n % batch == 0:
        return m, n / batch, k, count, True
    return m, n, k, count / batch, True


def attention(table: ValueTable, query: Any, key: Any, value: Any, *, causal: bool) -> Product:
    """softmax(q kᵀ) v; a value head of another size enters as the mean of the two sizes."""
    heads = prod(query.shape[:-2])
    scales = table.scales(query)
    return Product(
        op_class=OpClass.ATTENTION,
        m=float(query.shape[-2]),
        n=float(key.shape[-2]),
        k=(query.shape[-1] + value.shape[-1]) / 2,
        count=heads / table.batch if scales else heads,
        batch_in_count=scales,
        causal=causal,
        op="scaled_dot_product_attention",
    )


def recurrent(
    *, inputs: int, hidden: int, gates: int, steps: int, op: str, sequences: float = 1.0
) -> Product:
    """One layer and direction: each step multiplies [input, hidden] by the weights of all gates.

    `sequences` is how many a sample holds: 1, or the rows of an image that is read row by row.
    """
    return Product(
        op_class=OpClass.RNN, m=sequences, n=gates * hidden, k=inputs + hidden, sequential_steps=steps, op=op
    )


MATRIX_OPERANDS = {
    "mm": (0, 1),
    "addmm": (1, 2),
    "_addmm_activation": (1, 2),
    "bmm": (0, 1),
    "baddbmm": (1, 2),
    "mv": (0, 1),
    "addmv": (1, 2),
    "dot": (0, 1),
    "vdot": (0, 1),
    "_grouped_mm": (0, 1),
    "linear": (0, 1),
}
"""Positions of the two factors in the arguments; of `_grouped_mm` the first holds all tokens."""
