"""The passes that make operands narrow, and the products that read them.

Bytes of one pass over a tensor of E elements, b bytes wide and q narrow (scales included): read b, once
more for its maximum, once more where the copy for the weight gradient is rotated; write q per copy.

References: `data/recipes.toml`.
"""

from __future__ import annotations

from dataclasses import replace

from ..workload.graph import Node, OpClass
from .policy import DType, PrecisionPolicy
from .quantization import Recipe
from .rows import Row, Typed, cast_row, kernel_row, weight_gradient_row


def operand_rows(
    node: Node, types: Typed, policy: PrecisionPolicy, recipe: Recipe, *, copies: bool, first: bool,
    after_norm: bool,
) -> list[Row]:  # fmt: skip
    """What runs before a narrow product of the forward pass: its input and its weight are made narrow.

    Args:
        node: The product.
        types: Its types; `in_bytes` is what the passes read.
        policy: Whose `gather` says whether weights arrive narrow.
        recipe: How operands are scaled.
        copies: Operands for the backward pass are written too.
        first: No other product made this input narrow before.
        after_norm: A norm writes the input, and nothing else reads it wide.
    """
    rows = []
    narrow = types.compute
    if first:
        copied = copies and node.weight_grad and not recipe.wide_weight_gradient
        written = recipe.activation_bytes(narrow) * (1 + copied)
        fused = recipe.fused_into_norm and after_norm
        moved = (
            max(written - types.in_bytes, 0.0) if fused else written + _read(types.in_bytes, recipe, copied)
        )
        if moved:
            launches = float(recipe.amax_pass + 1 + (recipe.hadamard and copied))
            rows.append(cast_row(node, narrow, "forward", node.in_elems * moved, 0.0, launches=launches))
    copied = copies and node.input_grad
    written = recipe.weight_bytes(narrow) * (1 + copied)
    moved = 2.0 * recipe.weight_bytes(narrow) * copied  # gathered narrow: only turned round
    if policy.gather is None:
        moved = written + policy.param.num_bytes * (1 + recipe.amax_pass)
    if moved and node.weight_elems:
        row = cast_row(
            node, narrow, "forward", 0.0, node.weight_elems * moved, launches=1.0 + recipe.amax_pass
        )
        rows.append(replace(row, once_per_step=True))
    return rows


def gradient_operand_rows(node: Node, types: Typed, recipe: Recipe, *, copies: bool) -> list[Row]:
    """The gradient of the output made narrow, for the products of the backward pass."""
    by_weight = node.weight_grad and not recipe.wide_weight_gradient
    readers = int(node.input_grad) + int(by_weight)
    if not readers:
        return []
    written = recipe.activation_bytes(types.compute) * (readers if copies else 1)
    moved = written + _read(types.out.num_bytes, recipe, copies and by_weight)
    launches = float(recipe.amax_pass + 1 + (recipe.hadamard and copies and by_weight))
    return [cast_row(node, types.compute, "backward", node.out_elems * moved, 0.0, launches=launches)]


def forward_product(node: Node, types: Typed, recipe: Recipe, flops: float) -> Row:
    """The product by narrow operands; its output is wide."""
    moved = node.in_elems * recipe.activation_bytes(types.compute) + node.out_elems * types.out.num_bytes
    weight = node.weight_elems * recipe.weight_bytes(types.compute)
    return kernel_row(node, types.compute, "forward", (node.m, node.n, node.k), flops, moved, weight)


def gradient_products(
    node: Node, types: Typed, policy: PrecisionPolicy, recipe: Recipe, flops: float
) -> list[Row]:
    """The products by the input and by the weight; what they write is wide."""
    q = recipe.activation_bytes(types.compute)
    rows = []
    if node.input_grad:
        moved = node.out_elems * q + node.in_elems * types.in_bytes
        weight = node.weight_elems * recipe.weight_bytes(types.compute)
        shape = (node.m, node.k, node.n)
        rows.append(kernel_row(node, types.compute, "backward", shape, flops, moved, weight))
    if node.weight_grad:
        dtype: DType = policy.activation if recipe.wide_weight_gradient else types.compute
        read = node.in_elems * types.in_bytes + node.out_elems * types.out.num_bytes
        moved = read if recipe.wide_weight_gradient else (node.in_elems + node.out_elems) * q
        wide = min(policy.activation.num_bytes, policy.param.num_bytes)
        shape = (node.k, node.n, node.m)
        row = kernel_row(node, dtype, "backward", shape, flops, moved, node.weight_elems * wide)
        rows.append(weight_gradient_row(row, node))
    return rows


def after_lone_norm(
    node: Node, nodes: tuple[Node, ...], narrow: tuple[bool, ...], readers: dict[int, list[int]]
) -> bool:
    """Whether a norm writes the input of `node` and only narrow products read it."""
    source = node.inputs[0] if node.inputs else -1
    if source < 0 or nodes[source].op_class is not OpClass.NORM:
        return False
    return all(narrow[reader] for reader in readers.get(source, ()))


def _read(wide_bytes: float, recipe: Recipe, rotated: bool) -> float:
    return wide_bytes * (1 + recipe.amax_pass + (recipe.hadamard and rotated))
