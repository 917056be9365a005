"""Lowering: from a forward graph and a precision policy to the typed kernels of a training step.

This is where precision lives. Every operator gets the type it computes in and the types it reads
and writes; casts appear where autocast puts them (with the weight cache: one cast per parameter and
micro batch); the backward pass follows by rule from the forward one. Narrow products (fp8, fp4, int8)
are apart: `quantization.py` decides which, `operands.py` what they move.

Reference: the CUDA autocast lists of PyTorch 2.13 (`ATen/autocast_mode.h`, data in
`precision/data/autocast.toml`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from ..workload.blocks import split_ends
from ..workload.graph import PRODUCT_CLASSES, Node, OpClass, OpGraph
from ..workload.packing import UNPACKING
from .autocast import autocast_class
from .lowered import LoweredStep
from .operands import (
    after_lone_norm,
    forward_product,
    gradient_operand_rows,
    gradient_products,
    operand_rows,
)
from .policy import NARROW, DType, PrecisionPolicy
from .quantization import Recipe, history_bytes, narrow_products, recipe_of, writes_copies
from .rows import (
    DTYPES,
    IS_PRODUCT,
    OP_CLASSES,
    Row,
    Typed,
    cast_row,
    columns,
    kernel_row,
    memory_row,
    weight_gradient_row,
)

__all__ = ["DTYPES", "IS_PRODUCT", "OP_CLASSES", "lower"]

_CONVS = frozenset({OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV})
_SOFTMAX_CASTS_INSIDE = frozenset({"_softmax", "_log_softmax"})
_FREE_BACKWARD = frozenset({"add", "add_", "sub", "rsub", "neg", "sum", "mean"})
"""Operators whose gradient is the incoming one, passed on or broadcast inside the next kernel."""
_HISTORY_KERNELS = 3.0
"""Maxima put together, histories moved on, scales computed: one kernel each for all tensors."""


def lower(graph: OpGraph, policy: PrecisionPolicy, arch: str | None = None) -> LoweredStep:
    """Typed kernels of one micro batch of `graph` under `policy`; equal calls share one result.

    Args:
        graph: Forward graph, figures per sample.
        policy: Precision policy.
        arch: Architecture of the device as the catalog spells it; it decides whether narrow operands
            are also written the other way round. None: as on Hopper.

    Returns:
        Columns of length N, forward kernels first, then backward ones in reverse order.

    Raises:
        UnknownNameError: If the policy names a recipe that is not in the data.
    """
    narrow = policy.matmul in NARROW or policy.conv in NARROW
    return _lower(graph, policy, narrow and writes_copies(policy, arch))


@lru_cache(maxsize=512)
def _lower(graph: OpGraph, policy: PrecisionPolicy, copies: bool) -> LoweredStep:
    nodes, wide = split_ends(graph.nodes, policy.wide_layers)
    chosen = narrow_products(nodes, policy)
    narrow = tuple(one and not kept for one, kept in zip(chosen, wide, strict=True))
    typed: list[Typed] = []
    for node, quantized in zip(nodes, narrow, strict=True):
        typed.append(_types_of(node, nodes, typed, policy, quantized))
    readers = _readers(nodes)
    rows: list[Row] = []
    operands = _Operands(policy, copies, nodes, narrow, readers)
    for index, (node, types) in enumerate(zip(nodes, typed, strict=True)):
        rows.extend(_forward_rows(node, types, policy, operands.before(index, types)))
    rows.extend(operands.history("forward"))
    for index in range(len(nodes) - 1, -1, -1):
        trained = [i for i in readers.get(index, ()) if nodes[i].input_grad or nodes[i].weight_grad]
        rows.extend(_backward_rows(nodes[index], typed[index], len(trained), policy, operands))
    rows.extend(operands.history("backward"))
    return columns(rows)


def _readers(nodes: Sequence[Node]) -> dict[int, list[int]]:
    """Which operators read each one."""
    readers: dict[int, list[int]] = {}
    for index, node in enumerate(nodes):
        for source in node.inputs:
            if source >= 0:
                readers.setdefault(source, []).append(index)
    return readers


class _Operands:
    """What is made narrow where: a tensor once for all products that read it."""

    def __init__(
        self,
        policy: PrecisionPolicy,
        copies: bool,
        nodes: tuple[Node, ...],
        narrow: tuple[bool, ...],
        readers: dict[int, list[int]],
    ) -> None:
        self.recipe: Recipe | None = recipe_of(policy) if any(narrow) else None
        self.copies = copies
        self._policy, self._nodes, self._narrow, self._readers = policy, nodes, narrow, readers
        self._made: set[tuple[int, int]] = set()

    def before(self, index: int, types: Typed) -> list[Row]:
        """Passes before the product at `index`; none before a wide one."""
        if self.recipe is None or not self._narrow[index]:
            return []
        node = self._nodes[index]
        source = (node.inputs[0] if node.inputs else -1, node.segment)
        first = source[0] < 0 or source not in self._made
        self._made.add(source)
        lone = after_lone_norm(node, self._nodes, self._narrow, self._readers)
        return operand_rows(
            node, types, self._policy, self.recipe, copies=self.copies, first=first, after_norm=lone
        )

    def history(self, phase: str) -> list[Row]:
        """Histories of maxima, moved on once per pass under delayed scaling."""
        if self.recipe is None or not self.recipe.amax_history:
            return []
        moved = history_bytes(self._nodes, self._narrow, self.recipe, phase)
        return [
            Row(
                op_class=OpClass.ELEMENTWISE, phase=phase, dtype=DType.FP32, is_cast=True,
                bytes_fixed=moved, launches=_HISTORY_KERNELS,
            )
        ]  # fmt: skip


def _types_of(
    node: Node, nodes: tuple[Node, ...], typed: list[Typed], policy: PrecisionPolicy, quantized: bool
) -> Typed:
    """What `node` computes in, reads and writes, given the types of its producers."""
    compute = _product_dtype(node, policy, quantized)
    if not policy.autocast or node.op == UNPACKING:
        storage = policy.activation
        return Typed(
            compute=compute if compute is not None else storage,
            out=storage,
            in_bytes=storage.num_bytes,
            cast_from_bytes=storage.num_bytes,
            cast_share=0.0,
            quantized=quantized,
        )
    sizes = [(nodes[i].out_elems, typed[i].out) if i >= 0 else (1.0, DType.FP32) for i in node.inputs]
    total = sum(size for size, _ in sizes) or 1.0
    wide_share = sum(size for size, dtype in sizes if dtype is DType.FP32) / total if sizes else 1.0
    low = policy.activation
    mean_bytes = wide_share * 4.0 + (1.0 - wide_share) * low.num_bytes
    rule = autocast_class(node.op)
    if compute is not None:
        return Typed(
            compute=compute,
            out=low,
            in_bytes=low.num_bytes,
            cast_from_bytes=4.0,
            cast_share=wide_share,
            quantized=quantized,
        )
    if rule == "lower":
        return Typed(compute=low, out=low, in_bytes=low.num_bytes, cast_from_bytes=4.0, cast_share=wide_share)
    if rule == "fp32":
        inside = node.op in _SOFTMAX_CASTS_INSIDE and low is DType.FP16
        return Typed(
            compute=DType.FP32,
            out=DType.FP32,
            in_bytes=mean_bytes if inside else 4.0,
            cast_from_bytes=mean_bytes if inside else low.num_bytes,
            cast_share=0.0 if inside else 1.0 - wide_share,
        )
    out = DType.FP32 if wide_share > 0.0 else low
    return Typed(compute=out, out=out, in_bytes=mean_bytes, cast_from_bytes=mean_bytes, cast_share=0.0)


def _product_dtype(node: Node, policy: PrecisionPolicy, quantized: bool) -> DType | None:
    """The type a product multiplies in, None for operators that are no product."""
    if node.op_class in _CONVS:
        return policy.conv
    if node.op_class is OpClass.GEMM:
        return policy.activation if policy.matmul in NARROW and not quantized else policy.matmul
    if node.op_class is OpClass.RNN and policy.matmul is DType.TF32:
        # Recurrent kernels stay in fp32: deepspeech2 runs 2.4 times faster on an A100 than on a T4,
        # the ratio of their fp32 peaks, where TF32 would make it 19 (pollux and sia, fp32 settings).
        return DType.FP32
    if node.op_class in (OpClass.BMM, OpClass.ATTENTION, OpClass.RNN):
        return policy.activation if policy.matmul in NARROW else policy.matmul
    return None


def _forward_rows(node: Node, types: Typed, policy: PrecisionPolicy, operands: list[Row]) -> list[Row]:
    rows = [*_cast_rows(node, types, policy, phase="forward"), *operands]
    if types.quantized:
        return [*rows, forward_product(node, types, recipe_of(policy), _forward_flops(node))]
    activation_bytes = node.in_elems * types.in_bytes + node.out_elems * types.out.num_bytes
    # An embedding reads the rows it looks up, which are its in_elems, not its whole table.
    whole = 0.0 if node.op_class is OpClass.EMBEDDING else node.weight_elems
    weight_bytes = whole * _weight_num_bytes(types, policy)
    shape, flops = (node.m, node.n, node.k), _forward_flops(node)
    rows.append(kernel_row(node, types.compute, "forward", shape, flops, activation_bytes, weight_bytes))
    return rows


def _backward_rows(
    node: Node, types: Typed, consumers: int, policy: PrecisionPolicy, operands: _Operands
) -> list[Row]:
    """Kernels of the gradient of `node`, in the order the autograd engine runs them."""
    rows: list[Row] = []
    if not (node.input_grad or node.weight_grad):
        return rows
    if consumers > 1:
        added = 3.0 * node.out_elems * types.out.num_bytes * (consumers - 1)
        rows.append(memory_row(node, types.out, "backward", added, 0.0, OpClass.ELEMENTWISE))
    if node.op_class in (OpClass.ATTENTION, OpClass.BMM):
        rows.append(_pair_gradient(node, types))
    elif types.quantized and operands.recipe is not None:
        flops = _forward_flops(node)
        rows.extend(gradient_operand_rows(node, types, operands.recipe, copies=operands.copies))
        rows.extend(gradient_products(node, types, policy, operands.recipe, flops))
    elif node.op_class is OpClass.RNN or node.flops > 0.0:
        rows.extend(_product_gradients(node, types, policy))
    elif node.op not in _FREE_BACKWARD:
        rows.append(_memory_gradient(node, types, policy))
    elif node.param_elems:
        rows.append(memory_row(node, types.out, "backward", node.out_elems * types.out.num_bytes, 0.0))
    if node.param_elems and rows:
        rows[-1] = replace(rows[-1], param_elems=node.param_elems)
    rows.extend(_cast_rows(node, types, policy, phase="backward"))
    return rows


def _product_gradients(node: Node, types: Typed, policy: PrecisionPolicy) -> list[Row]:
    """The two products of a layer's backward pass: by its input, by its weight."""
    moved = node.in_elems * types.in_bytes + node.out_elems * types.out.num_bytes
    weight_bytes = node.weight_elems * _weight_num_bytes(types, policy)
    flops = _forward_flops(node)
    rows = []
    if node.input_grad:
        shape = (node.m, node.k, node.n)
        rows.append(kernel_row(node, types.compute, "backward", shape, flops, moved, weight_bytes))
    if node.weight_grad:
        steps = node.sequential_steps
        shape = (node.k, node.n, node.m * steps)
        row = kernel_row(node, types.compute, "backward", shape, flops * steps, moved, weight_bytes)
        rows.append(weight_gradient_row(row, node))
    return rows


def _pair_gradient(node: Node, types: Typed) -> Row:
    """Backward of a product of two activations: two products, and the recomputed one of attention."""
    factor = 2.5 if node.op_class is OpClass.ATTENTION else 2.0
    traffic = 2.0 * (node.in_elems * types.in_bytes + node.out_elems * types.out.num_bytes)
    shape, flops = (node.m, node.n, node.k), factor * _forward_flops(node)
    return kernel_row(node, types.compute, "backward", shape, flops, traffic, 0.0, launches=2.0)


def _memory_gradient(node: Node, types: Typed, policy: PrecisionPolicy) -> Row:
    """Backward of an operator that only moves memory: reads what was saved, writes the input's gradient."""
    out_bytes = node.out_elems * types.out.num_bytes
    in_bytes = node.in_elems * types.in_bytes
    fixed = 2.0 * node.param_elems * policy.grad.num_bytes
    if node.op_class is OpClass.NORM:
        return memory_row(node, types.compute, "backward", 2.0 * (in_bytes + out_bytes), fixed, launches=2.0)
    if node.op_class is OpClass.EMBEDDING:
        return memory_row(node, types.out, "backward", 3.0 * out_bytes, fixed, launches=2.0)
    saved = node.saved_elems * types.out.num_bytes
    return memory_row(node, types.out, "backward", out_bytes + saved + in_bytes, fixed)


def _cast_rows(node: Node, types: Typed, policy: PrecisionPolicy, *, phase: str) -> list[Row]:
    """Conversions that autocast inserts around `node`: activations each time, parameters once."""
    rows = []
    low = policy.activation
    wide, narrow = max(types.cast_from_bytes, types.in_bytes), min(types.cast_from_bytes, types.in_bytes)
    if types.cast_share > 0.0 and wide != narrow and (phase == "forward" or node.input_grad):
        moved = node.in_elems * types.cast_share * (wide + narrow)
        rows.append(cast_row(node, low, phase, moved, 0.0))
    parameters = node.weight_elems if phase == "forward" else node.weight_elems * node.weight_grad
    if types.quantized and phase == "forward":
        parameters = 0.0  # made narrow straight from the parameters
    is_product = node.op_class in PRODUCT_CLASSES
    if policy.autocast and is_product and parameters and policy.param.num_bytes > low.num_bytes:
        rows.append(cast_row(node, low, phase, 0.0, parameters * (policy.param.num_bytes + low.num_bytes)))
    return rows


def _forward_flops(node: Node) -> float:
    """FLOPs of one repeat and one time step; a fused causal kernel skips the masked half."""
    if node.flops == 0.0:
        return 0.0
    once = node.flops / (node.repeat * node.sequential_steps)
    return once * 0.5 if node.causal else once


def _weight_num_bytes(types: Typed, policy: PrecisionPolicy) -> float:
    """Bytes per weight that a kernel reads: under autocast as it was cast, which emulation widens inside."""
    if not policy.autocast:
        return policy.param.num_bytes
    return min(types.compute.num_bytes, types.out.num_bytes, policy.param.num_bytes)
