"""Lowering: from a forward graph and a precision policy to the typed kernels of a training step.

This is where precision lives. Every operator gets the type it computes in and the types it reads
and writes; casts appear where autocast puts them (with the weight cache: one cast per parameter and
micro batch); the backward pass follows by rule from the forward one. Narrow products (fp8, fp4, int8)
are apart: `quantization.py` decides which, `operands.py` what they move. All operators of a graph are
worked out together, as columns.

Reference: the CUDA autocast lists of PyTorch 2.13 (`ATen/autocast_mode.h`, data in
`precision/data/autocast.toml`).
"""

from __future__ import annotations

import numpy as np

from ..arrays import Bools, Floats, Ints
from ..cache import memo
from ..workload.graph import OpClass, OpGraph
from .lowered import LoweredStep
from .nodes import DTYPES, IS_PRODUCT, OP_CLASSES, NodeColumns
from .operands import NarrowProducts, Typed
from .policy import NARROW, DType, PrecisionPolicy
from .quantization import narrow_products, recipe_of, writes_copies
from .rows import ELEMENTWISE, Rows
from .rules import FOLLOWS, LOWER, WIDE, columns_under, in_low, numbered_names

__all__ = ["DTYPES", "IS_PRODUCT", "OP_CLASSES", "lower"]

_BYTES = np.array([dtype.num_bytes for dtype in DTYPES])
_FP32 = DTYPES.index(DType.FP32)


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
    return _lower(graph, policy, policy.narrow is not None and writes_copies(policy, arch))


@memo(512)
def _lower(graph: OpGraph, policy: PrecisionPolicy, copies: bool) -> LoweredStep:
    nodes = columns_under(graph, policy)
    quantized = narrow_products(nodes, policy) & ~nodes.wide
    types = _types_of(nodes, policy, quantized)
    rows = Rows(nodes)
    _add_casts(rows, "forward", nodes, types, policy)
    _add_forward(rows, nodes, types, policy)
    _add_backward(rows, nodes, types, policy)
    _add_casts(rows, "backward", nodes, types, policy)
    if quantized.any():
        products = NarrowProducts(
            nodes=nodes,
            types=types,
            policy=policy,
            recipe=recipe_of(policy),
            copies=copies,
            narrow=policy.narrow or policy.matmul,
        )
        products.add_forward(rows)
        products.add_backward(rows)
        for phase in ("forward", "backward"):
            products.add_history(rows, phase)
    return rows.step()


def _types_of(nodes: NodeColumns, policy: PrecisionPolicy, quantized: Bools) -> Typed:
    """What each operator computes in, reads and writes, given the types of its producers."""
    if policy.ruled:
        return _ruled_types(nodes, policy, quantized)
    low = DTYPES.index(policy.activation)
    product = _product_types(nodes, policy, quantized)
    if not policy.autocast or policy.activation is DType.FP32:
        out = np.full(len(nodes), low)
        stored = _BYTES[out]
        return Typed(
            compute=np.where(nodes.is_product, product, low),
            out=out,
            in_bytes=stored,
            out_bytes=stored,
            cast_from_bytes=stored,
            cast_share=np.zeros(len(nodes)),
            quantized=quantized,
        )
    low_bytes, fp32_bytes = policy.activation.num_bytes, DType.FP32.num_bytes
    share = nodes.fp32_share
    mean = share * fp32_bytes + (1.0 - share) * low_bytes
    stays = nodes.unpacking
    lowered = (nodes.is_product | (nodes.autocast == 1)) & ~stays
    widened = (nodes.autocast == 2) & ~lowered & ~stays  # noqa: PLR2004 - as in `NodeColumns.autocast`
    inside = nodes.casts_inside & (policy.activation is DType.FP16)
    out = np.where(~lowered & ~stays & (widened | (share > 0.0)), _FP32, low)
    cases = [stays, lowered, widened & inside, widened]
    return Typed(
        compute=np.where(nodes.is_product, product, out),
        out=out,
        in_bytes=np.select(cases, [low_bytes, low_bytes, mean, fp32_bytes], mean),
        out_bytes=_BYTES[out],
        cast_from_bytes=np.select(cases, [low_bytes, fp32_bytes, mean, low_bytes], mean),
        cast_share=np.select(cases, [0.0, share, 0.0, 1.0 - share], 0.0),
        quantized=quantized,
    )


def _ruled_types(nodes: NodeColumns, policy: PrecisionPolicy, quantized: Bools) -> Typed:
    """The same under a policy with rules of its own: casts stand wherever widths meet."""
    is_low, is_wide, codes = in_low(nodes, policy)
    wide_inputs = policy.autocast or policy.activation.num_bytes >= DType.FP32.num_bytes
    share = nodes.wide_share(is_low, is_wide, wide_inputs=wide_inputs)
    low = np.full(len(nodes), DTYPES.index(policy.activation))
    product = _product_types(nodes, policy, quantized)
    as_wide = (codes == WIDE) | ((codes == FOLLOWS) & (share > 0.0))
    product = np.where(as_wide & (_BYTES[product] < DType.FP32.num_bytes), _FP32, product)
    for index, rule in enumerate(policy.layers):
        here = (nodes.rule == index) & ~(as_wide & (rule.dtype.num_bytes < DType.FP32.num_bytes))
        product = np.where(
            here & (quantized == (rule.dtype in NARROW)), DTYPES.index(rule.multiplied), product
        )
        low = np.where(
            here & (_BYTES[low] != rule.dtype.num_bytes), DTYPES.index(_held(rule.dtype, policy)), low
        )
    low_bytes = np.minimum(_BYTES[low], _BYTES[_FP32])
    mean = share * DType.FP32.num_bytes + (1.0 - share) * low_bytes
    lowered, widened = codes == LOWER, (codes == WIDE) & ~is_low
    inside = widened & nodes.casts_inside & (policy.activation is DType.FP16)
    out = np.where(~is_low & (widened | (share > 0.0)), _FP32, low)
    cases: list[Bools] = [nodes.unpacking, lowered, inside, widened]
    return Typed(
        compute=np.where(nodes.is_product, product, out),
        out=out,
        in_bytes=np.select(
            cases, [low_bytes, low_bytes, mean, np.full_like(mean, DType.FP32.num_bytes)], mean
        ),
        out_bytes=_BYTES[out],
        cast_from_bytes=np.select(
            cases, [low_bytes, np.full_like(mean, DType.FP32.num_bytes), mean, low_bytes], mean
        ),
        cast_share=np.select(cases, [0.0, share, 0.0, 1.0 - share], 0.0),
        quantized=quantized,
    )


def _held(dtype: DType, policy: PrecisionPolicy) -> DType:
    """The type that outputs of a layer are held in: those of narrow products are of 16 bits."""
    if dtype in NARROW:
        return policy.activation if policy.activation.num_bytes < DType.FP32.num_bytes else DType.BF16
    return dtype


def operator_types(graph: OpGraph, policy: PrecisionPolicy) -> dict[str, DType]:
    """What each forward operator computes in, by its name (`rules.py`)."""
    nodes = columns_under(graph, policy)
    types = _types_of(nodes, policy, narrow_products(nodes, policy) & ~nodes.wide)
    return {
        name: DTYPES[dtype]
        for name, dtype in zip(numbered_names(nodes.nodes), types.compute.tolist(), strict=True)
    }


def main_product(graph: OpGraph, policy: PrecisionPolicy) -> DType:
    """The type that most FLOPs are multiplied in, the policy's own where it has no rules for operators."""
    if not policy.ruled:
        return policy.matmul
    step = lower(graph, policy)
    shares = np.bincount(
        step.dtype, weights=step.flops * step.repeat * step.sequential_steps, minlength=len(DTYPES)
    )
    return DTYPES[int(shares.argmax())] if shares.any() else policy.matmul


def _product_types(nodes: NodeColumns, policy: PrecisionPolicy, quantized: Bools) -> Ints:
    """The type each product multiplies in; of operators that are no product it says nothing."""
    activation, matmul = policy.activation, policy.matmul
    stored = activation if matmul in NARROW else matmul
    # Recurrent kernels stay in fp32: deepspeech2 runs 2.4 times faster on an A100 than on a T4,
    # the ratio of their fp32 peaks, where TF32 would make it 19 (pollux and sia, fp32 settings).
    recurrent = DType.FP32 if matmul is DType.TF32 else stored
    linear = np.where(
        quantized, DTYPES.index(matmul), DTYPES.index(activation if matmul in NARROW else matmul)
    )
    types = np.where(nodes.is_conv, DTYPES.index(policy.conv), DTYPES.index(stored))
    types = np.where(nodes.is_class(OpClass.GEMM), linear, types)
    return np.where(nodes.is_class(OpClass.RNN), DTYPES.index(recurrent), types)


def _add_forward(rows: Rows, nodes: NodeColumns, types: Typed, policy: PrecisionPolicy) -> None:
    """One kernel per operator; those of narrow products are not here."""
    # An embedding reads the rows it looks up, which are its in_elems, not its whole table.
    whole = np.where(nodes.is_class(OpClass.EMBEDDING), 0.0, nodes.weight_elems)
    rows.kernel(
        "forward", 4, ~types.quantized, (nodes.m, nodes.n, nodes.k), dtype=types.compute, flops=nodes.flops,
        moved=nodes.in_elems * types.in_bytes + nodes.out_elems * types.out_bytes,
        weight_bytes=whole * _weight_bytes(types, policy),
    )  # fmt: skip


def _add_backward(rows: Rows, nodes: NodeColumns, types: Typed, policy: PrecisionPolicy) -> None:
    """Kernels of the gradients, in the order the autograd engine runs them."""
    trained = nodes.input_grad | nodes.weight_grad
    in_bytes, out_bytes = nodes.in_elems * types.in_bytes, nodes.out_elems * types.out_bytes
    rows.memory(
        "backward", 0, trained & (nodes.summed_elems > 0.0), dtype=types.out, op_class=ELEMENTWISE,
        moved=3.0 * nodes.summed_elems * types.out_bytes, fixed=0.0,
    )  # fmt: skip
    pair = nodes.is_class(OpClass.ATTENTION, OpClass.BMM)
    # Of two activations: two products, and the recomputed one of attention.
    factor = np.where(nodes.is_class(OpClass.ATTENTION), 2.5, 2.0)
    rows.kernel(
        "backward", 2, trained & pair, (nodes.m, nodes.n, nodes.k), dtype=types.compute,
        flops=factor * nodes.flops, moved=2.0 * (in_bytes + out_bytes), weight_bytes=0.0, launches=2.0,
        param_elems=nodes.param_elems,
    )  # fmt: skip
    product = (nodes.is_class(OpClass.RNN) | (nodes.flops > 0.0)) & ~pair
    other = trained & ~pair & ~product & ~types.quantized
    # A layer has two products: by its input, by its weight.
    weight_bytes = nodes.weight_elems * _weight_bytes(types, policy)
    product &= ~types.quantized
    rows.kernel(
        "backward", 2, product & nodes.input_grad, (nodes.m, nodes.k, nodes.n), dtype=types.compute,
        flops=nodes.flops, moved=in_bytes + out_bytes, weight_bytes=weight_bytes,
        param_elems=nodes.param_elems * ~nodes.weight_grad,
    )  # fmt: skip
    steps = nodes.sequential_steps
    rows.kernel(
        "backward", 3, product & nodes.weight_grad, (nodes.k, nodes.n, nodes.m * steps), by_weight=True,
        dtype=types.compute, flops=nodes.flops * steps, moved=in_bytes + out_bytes,
        weight_bytes=weight_bytes, param_elems=nodes.param_elems,
    )  # fmt: skip
    _add_memory_gradients(rows, nodes, types, policy, other)


def _add_memory_gradients(
    rows: Rows, nodes: NodeColumns, types: Typed, policy: PrecisionPolicy, where: Bools
) -> None:
    """Operators that only move memory: they read what was saved and write the input's gradient."""
    in_bytes, out_bytes = nodes.in_elems * types.in_bytes, nodes.out_elems * types.out_bytes
    norm, lookup, free = nodes.is_class(OpClass.NORM), nodes.is_class(OpClass.EMBEDDING), nodes.free_backward
    moved: Floats = np.select(
        [free, norm, lookup],
        [out_bytes, 2.0 * (in_bytes + out_bytes), 3.0 * out_bytes],
        out_bytes + nodes.saved_elems * types.out_bytes + in_bytes,
    )
    rows.memory(
        "backward", 2, where & (~free | (nodes.param_elems > 0.0)),
        dtype=np.where(norm & ~free, types.compute, types.out), op_class=nodes.op_class, moved=moved,
        fixed=np.where(free, 0.0, 2.0 * nodes.param_elems * policy.grad.num_bytes),
        launches=np.where((norm | lookup) & ~free, 2.0, 1.0), param_elems=nodes.param_elems,
    )  # fmt: skip


def _add_casts(rows: Rows, phase: str, nodes: NodeColumns, types: Typed, policy: PrecisionPolicy) -> None:
    """Conversions that autocast inserts around operators: activations each time, parameters once."""
    if not (policy.autocast or policy.ruled):
        return
    forward, low = phase == "forward", DTYPES.index(policy.activation)
    first = 0 if forward else 4
    wide = np.maximum(types.cast_from_bytes, types.in_bytes)
    narrow = np.minimum(types.cast_from_bytes, types.in_bytes)
    rows.cast(
        phase, first, (types.cast_share > 0.0) & (wide != narrow) & (forward | nodes.input_grad), dtype=low,
        moved=nodes.in_elems * types.cast_share * (wide + narrow), fixed=0.0,
    )  # fmt: skip
    used = types.in_bytes if policy.ruled else np.full(len(nodes), policy.activation.num_bytes)
    cast = used < policy.param.num_bytes if _casts_weights(policy) else np.zeros(len(nodes), dtype=np.bool_)
    if not cast.any():
        return
    # Frozen weights are held as they are used; those of narrow products are made narrow straight from the
    # parameters.
    once = nodes.weight_grad & (~types.quantized | (not forward))
    rows.cast(
        phase, first + 1, cast & nodes.is_product & (nodes.weight_elems != 0.0) & once, dtype=low, moved=0.0,
        fixed=nodes.weight_elems * (policy.param.num_bytes + used),
    )  # fmt: skip


def _casts_weights(policy: PrecisionPolicy) -> bool:
    """Whether weights are cast where they are used: under autocast, and by rules in an fp32 model."""
    return policy.autocast or (policy.ruled and policy.activation.num_bytes >= DType.FP32.num_bytes)


def _weight_bytes(types: Typed, policy: PrecisionPolicy) -> Floats:
    """Bytes per weight that a kernel reads: under autocast as it was cast, which emulation widens inside."""
    held = policy.param.num_bytes
    if not _casts_weights(policy):
        return np.full(len(types.out), held)
    read: Floats = np.minimum(np.minimum(_BYTES[types.compute], types.out_bytes), held)
    return read
