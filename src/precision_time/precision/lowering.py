"""Lowering: from a forward graph and a precision policy to the typed kernels of a training step.

This is where precision lives. Every operator gets the type it computes in and the types it reads
and writes; casts appear where autocast puts them (with the weight cache: one cast per parameter and
micro batch); the backward pass follows by rule from the forward one.

Reference: the CUDA autocast lists of PyTorch 2.13 (`ATen/autocast_mode.h`, data in
`precision/data/autocast.toml`); Transformer Engine documentation for the fp8 quantise passes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..identity_cache import cache_by_identity
from ..workload.graph import Node, OpClass, OpGraph
from .autocast import autocast_class
from .lowered import PHASES, LoweredStep
from .policy import DType, PrecisionPolicy

OP_CLASSES = tuple(OpClass)
DTYPES = tuple(DType)
_CLASS_INDEX = {op_class: index for index, op_class in enumerate(OP_CLASSES)}
_DTYPE_INDEX = {dtype: index for index, dtype in enumerate(DTYPES)}
_PHASE_INDEX = {phase: index for index, phase in enumerate(PHASES)}
_CONVS = frozenset({OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV})
_SOFTMAX_CASTS_INSIDE = frozenset({"_softmax", "_log_softmax"})
_EXPERT_PRODUCT = "_grouped_mm"
"""The product of all experts at once, as captures and model families write it."""
_QUANTIZED_ALIGNMENT = 16
"""fp8 and int8 GEMMs need both weight dimensions to be multiples of 16 (Transformer Engine docs)."""
_FREE_BACKWARD = frozenset({"add", "add_", "sub", "rsub", "neg", "sum", "mean"})
"""Operators whose gradient is the incoming one, passed on or broadcast inside the next kernel."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Row:
    """One kernel to be: the columns of `LoweredStep`, one value each."""

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


@dataclass(frozen=True, kw_only=True, slots=True)
class _Typed:
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


@cache_by_identity
def lower(graph: OpGraph, policy: PrecisionPolicy) -> LoweredStep:
    """Typed kernels of one micro batch of `graph` under `policy`; equal calls share one result.

    Args:
        graph: Forward graph, figures per sample.
        policy: Precision policy.

    Returns:
        Columns of length N, forward kernels first, then backward ones in reverse order.
    """
    typed: list[_Typed] = []
    for node in graph.nodes:
        typed.append(_types_of(node, graph.nodes, typed, policy))
    consumers = np.zeros(len(graph.nodes), dtype=int)
    for node in graph.nodes:
        for source in node.inputs:
            if source >= 0 and (node.input_grad or node.weight_grad):
                consumers[source] += 1
    rows: list[_Row] = []
    for node, types in zip(graph.nodes, typed, strict=True):
        rows.extend(_forward_rows(node, types, policy))
    for index in range(len(graph.nodes) - 1, -1, -1):
        rows.extend(_backward_rows(graph.nodes[index], typed[index], int(consumers[index]), policy))
    return _columns(rows)


def _types_of(node: Node, nodes: tuple[Node, ...], typed: list[_Typed], policy: PrecisionPolicy) -> _Typed:
    """What `node` computes in, reads and writes, given the types of its producers."""
    compute = _product_dtype(node, policy)
    if not policy.autocast:
        storage = policy.activation
        return _Typed(
            compute=compute if compute is not None else storage,
            out=storage,
            in_bytes=storage.num_bytes,
            cast_from_bytes=storage.num_bytes,
            cast_share=0.0,
            quantized=compute in (DType.FP8, DType.FP4, DType.INT8),
        )
    sizes = [(nodes[i].out_elems, typed[i].out) if i >= 0 else (1.0, DType.FP32) for i in node.inputs]
    total = sum(size for size, _ in sizes) or 1.0
    wide_share = sum(size for size, dtype in sizes if dtype is DType.FP32) / total if sizes else 1.0
    low = policy.activation
    mean_bytes = wide_share * 4.0 + (1.0 - wide_share) * low.num_bytes
    rule = autocast_class(node.op)
    if compute is not None:
        return _Typed(
            compute=compute,
            out=low,
            in_bytes=low.num_bytes,
            cast_from_bytes=4.0,
            cast_share=wide_share,
            quantized=compute in (DType.FP8, DType.FP4, DType.INT8),
        )
    if rule == "lower":
        return _Typed(
            compute=low, out=low, in_bytes=low.num_bytes, cast_from_bytes=4.0, cast_share=wide_share
        )
    if rule == "fp32":
        inside = node.op in _SOFTMAX_CASTS_INSIDE and low is DType.FP16
        return _Typed(
            compute=DType.FP32,
            out=DType.FP32,
            in_bytes=mean_bytes if inside else 4.0,
            cast_from_bytes=mean_bytes if inside else low.num_bytes,
            cast_share=0.0 if inside else 1.0 - wide_share,
        )
    out = DType.FP32 if wide_share > 0.0 else low
    return _Typed(compute=out, out=out, in_bytes=mean_bytes, cast_from_bytes=mean_bytes, cast_share=0.0)


def _product_dtype(node: Node, policy: PrecisionPolicy) -> DType | None:
    """The type a product multiplies in, None for operators that are no product."""
    if node.op_class in _CONVS:
        return policy.conv
    if node.op_class is OpClass.GEMM:
        if policy.matmul in (DType.FP8, DType.FP4, DType.INT8) and not _aligned(node):
            return policy.activation
        return policy.matmul
    if node.op_class is OpClass.RNN and policy.matmul is DType.TF32:
        # Recurrent kernels stay in fp32: deepspeech2 runs 2.4 times faster on an A100 than on a T4,
        # the ratio of their fp32 peaks, where TF32 would make it 19 (pollux and sia, fp32 settings).
        return DType.FP32
    if node.op_class in (OpClass.BMM, OpClass.ATTENTION, OpClass.RNN):
        return policy.activation if policy.matmul.num_bytes < policy.activation.num_bytes else policy.matmul
    return None


def _aligned(node: Node) -> bool:
    return node.n % _QUANTIZED_ALIGNMENT == 0 and node.k % _QUANTIZED_ALIGNMENT == 0


def _forward_rows(node: Node, types: _Typed, policy: PrecisionPolicy) -> list[_Row]:
    rows = _cast_rows(node, types, policy, phase="forward")
    activation_bytes = node.in_elems * types.in_bytes + node.out_elems * types.out.num_bytes
    # An embedding reads the rows it looks up, which are its in_elems, not its whole table.
    whole = 0.0 if node.op_class is OpClass.EMBEDDING else node.weight_elems
    weight_bytes = whole * _weight_num_bytes(types, policy)
    shape = (node.m, node.n, node.k)
    rows.append(_kernel(node, types, "forward", shape, _forward_flops(node), activation_bytes, weight_bytes))
    return rows


def _backward_rows(node: Node, types: _Typed, consumers: int, policy: PrecisionPolicy) -> list[_Row]:
    """Kernels of the gradient of `node`, in the order the autograd engine runs them."""
    rows: list[_Row] = []
    if not (node.input_grad or node.weight_grad):
        return rows
    if consumers > 1:
        added = 3.0 * node.out_elems * types.out.num_bytes * (consumers - 1)
        rows.append(_memory_row(node, types.out, "backward", added, 0.0, OpClass.ELEMENTWISE))
    if node.op_class in (OpClass.ATTENTION, OpClass.BMM):
        rows.append(_pair_gradient(node, types))
    elif node.op_class is OpClass.RNN or node.flops > 0.0:
        rows.extend(_product_gradients(node, types, policy))
    elif node.op not in _FREE_BACKWARD:
        rows.append(_memory_gradient(node, types, policy))
    elif node.param_elems:
        rows.append(_memory_row(node, types.out, "backward", node.out_elems * types.out.num_bytes, 0.0))
    if node.param_elems and rows:
        rows[-1] = replace(rows[-1], param_elems=node.param_elems)
    rows.extend(_cast_rows(node, types, policy, phase="backward"))
    return rows


def _product_gradients(node: Node, types: _Typed, policy: PrecisionPolicy) -> list[_Row]:
    """The two products of a layer's backward pass: by its input, by its weight."""
    in_bytes = node.in_elems * types.in_bytes
    out_bytes = node.out_elems * types.out.num_bytes
    weight_bytes = node.weight_elems * _weight_num_bytes(types, policy)
    flops = _forward_flops(node)
    rows = []
    if node.input_grad:
        shape = (node.m, node.k, node.n)
        rows.append(_kernel(node, types, "backward", shape, flops, in_bytes + out_bytes, weight_bytes))
    if node.weight_grad:
        row = _kernel(
            node,
            types,
            "backward",
            (node.k, node.n, node.m * node.sequential_steps),
            flops * node.sequential_steps,
            in_bytes + out_bytes,
            weight_bytes,
        )
        rows.append(
            replace(
                row,
                m_scales=False,
                k_scales=node.scales_with_batch and not node.batch_in_count,
                sequential_steps=1.0,
            )
        )
    return rows


def _pair_gradient(node: Node, types: _Typed) -> _Row:
    """Backward of a product of two activations: two products, and the recomputed one of attention."""
    factor = 2.5 if node.op_class is OpClass.ATTENTION else 2.0
    traffic = 2.0 * (node.in_elems * types.in_bytes + node.out_elems * types.out.num_bytes)
    shape = (node.m, node.n, node.k)
    return _kernel(node, types, "backward", shape, factor * _forward_flops(node), traffic, 0.0, launches=2.0)


def _memory_gradient(node: Node, types: _Typed, policy: PrecisionPolicy) -> _Row:
    """Backward of an operator that only moves memory: reads what was saved, writes the input's gradient."""
    out_bytes = node.out_elems * types.out.num_bytes
    in_bytes = node.in_elems * types.in_bytes
    fixed = 2.0 * node.param_elems * policy.grad.num_bytes
    if node.op_class is OpClass.NORM:
        return _memory_row(node, types.compute, "backward", 2.0 * (in_bytes + out_bytes), fixed, launches=2.0)
    if node.op_class is OpClass.EMBEDDING:
        return _memory_row(node, types.out, "backward", 3.0 * out_bytes, fixed, launches=2.0)
    saved = node.saved_elems * types.out.num_bytes
    return _memory_row(node, types.out, "backward", out_bytes + saved + in_bytes, fixed)


def _cast_rows(node: Node, types: _Typed, policy: PrecisionPolicy, *, phase: str) -> list[_Row]:
    """Conversions around `node`: activations each time, parameters once, fp8 operands with their scales."""
    rows = []
    low = policy.activation
    wide, narrow = max(types.cast_from_bytes, types.in_bytes), min(types.cast_from_bytes, types.in_bytes)
    if types.cast_share > 0.0 and wide != narrow and (phase == "forward" or node.input_grad):
        moved = node.in_elems * types.cast_share * (wide + narrow)
        rows.append(_cast(node, low, phase, moved, 0.0))
    parameters = node.weight_elems if phase == "forward" else node.weight_elems * node.weight_grad
    is_product = _product_dtype(node, policy) is not None
    if policy.autocast and is_product and parameters and policy.param.num_bytes > low.num_bytes:
        rows.append(_cast(node, low, phase, 0.0, parameters * (policy.param.num_bytes + low.num_bytes)))
    if types.quantized:
        quantized_bytes = low.num_bytes * 2.0 + types.compute.num_bytes
        operands = node.in_elems if phase == "forward" else node.out_elems
        weights = node.weight_elems if phase == "forward" else 0.0
        rows.append(_cast(node, types.compute, phase, operands * quantized_bytes, weights * quantized_bytes))
    return rows


def _cast(node: Node, dtype: DType, phase: str, moved: float, fixed: float) -> _Row:
    row = _memory_row(node, dtype, phase, moved, fixed, OpClass.ELEMENTWISE)
    return replace(row, is_cast=True)


def _forward_flops(node: Node) -> float:
    """FLOPs of one repeat and one time step; a fused causal kernel skips the masked half."""
    if node.flops == 0.0:
        return 0.0
    once = node.flops / (node.repeat * node.sequential_steps)
    return once * 0.5 if node.causal else once


def _weight_num_bytes(types: _Typed, policy: PrecisionPolicy) -> float:
    return min(types.compute.num_bytes, policy.param.num_bytes) if policy.autocast else policy.param.num_bytes


def _kernel(
    node: Node,
    types: _Typed,
    phase: str,
    shape: tuple[float, float, float],
    flops: float,
    activation_bytes: float,
    weight_bytes: float,
    *,
    launches: float = 1.0,
) -> _Row:
    scales = node.scales_with_batch
    return _Row(
        op_class=node.op_class,
        phase=phase,
        dtype=types.compute,
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
        expert=node.op == _EXPERT_PRODUCT,
    )


def _memory_row(
    node: Node,
    dtype: DType,
    phase: str,
    activation_bytes: float,
    fixed_bytes: float,
    op_class: OpClass | None = None,
    *,
    launches: float = 1.0,
) -> _Row:
    scales = node.scales_with_batch
    return _Row(
        op_class=op_class or node.op_class,
        phase=phase,
        dtype=dtype,
        bytes_per_sample=activation_bytes if scales else 0.0,
        bytes_fixed=fixed_bytes + (0.0 if scales else activation_bytes),
        launches=launches,
        repeat=node.repeat,
        segment=node.segment,
        expert=node.op == _EXPERT_PRODUCT,
    )


def _columns(rows: list[_Row]) -> LoweredStep:
    def floats(name: str) -> NDArray[np.float64]:
        return np.array([getattr(row, name) for row in rows], dtype=np.float64)

    def bools(name: str) -> NDArray[np.bool_]:
        return np.array([getattr(row, name) for row in rows], dtype=np.bool_)

    return LoweredStep(
        op_class=np.array([_CLASS_INDEX[row.op_class] for row in rows], dtype=np.int64),
        phase=np.array([_PHASE_INDEX[row.phase] for row in rows], dtype=np.int64),
        dtype=np.array([_DTYPE_INDEX[row.dtype] for row in rows], dtype=np.int64),
        is_cast=bools("is_cast"),
        m=floats("m"),
        n=floats("n"),
        k=floats("k"),
        count=floats("count"),
        m_scales=bools("m_scales"),
        k_scales=bools("k_scales"),
        count_scales=bools("count_scales"),
        flops=floats("flops"),
        bytes_per_sample=floats("bytes_per_sample"),
        bytes_fixed=floats("bytes_fixed"),
        launches=floats("launches"),
        sequential_steps=floats("sequential_steps"),
        repeat=floats("repeat"),
        kernel=floats("kernel"),
        stride=floats("stride"),
        param_elems=floats("param_elems"),
        segment=np.array([row.segment for row in rows], dtype=np.int64),
        expert=bools("expert"),
    )
