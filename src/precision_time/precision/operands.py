"""The passes that make operands narrow, and the products that read them.

Bytes of one pass over a tensor of E elements, b bytes wide and q narrow (scales included): read b, once
more for its maximum, once more where the copy for the weight gradient is rotated; write q per copy.

References: `data/recipes.toml`.
"""

from __future__ import annotations

import numpy as np

from ..arrays import Bools, Floats, Ints
from ..records import dataclass
from ..workload.graph import OpClass
from .nodes import DTYPES, NodeColumns
from .policy import DType, PrecisionPolicy
from .quantization import Recipe, history_bytes
from .rows import Rows

_HISTORY_KERNELS = 3.0
"""Maxima put together, histories moved on, scales computed: one kernel each for all tensors."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Typed:
    """Types of N forward operators under a policy; shape (N,) each."""

    compute: Ints
    """Index into DTYPES, as `out`."""
    out: Ints
    in_bytes: Floats
    """Bytes per element that the kernel itself reads."""
    out_bytes: Floats
    cast_from_bytes: Floats
    """Bytes per element before the casts that autocast inserts; equal to `in_bytes` without."""
    cast_share: Floats
    """Share of the input elements that are cast."""
    quantized: Bools


@dataclass(frozen=True, kw_only=True, slots=True)
class NarrowProducts:
    """Products of narrow operands: what is made narrow where, a tensor once for all that read it."""

    nodes: NodeColumns
    types: Typed
    """`in_bytes` is what the passes read."""
    policy: PrecisionPolicy
    """Its `gather` says whether weights arrive narrow."""
    recipe: Recipe
    copies: bool
    """Operands for the backward pass are written too."""
    narrow: DType

    def add_forward(self, rows: Rows) -> None:
        """Inputs and weights made narrow, then the products; their output is wide."""
        nodes, types, recipe, where = self.nodes, self.types, self.recipe, self.types.quantized
        index, written = DTYPES.index(self.narrow), recipe.activation_bytes(self.narrow)
        copied = self.copies & nodes.weight_grad & (not recipe.wide_weight_gradient)
        fused = recipe.fused_into_norm & self._after_lone_norm()
        each = written * (1 + copied)
        read = types.in_bytes * (1 + recipe.amax_pass + (recipe.hadamard & copied))
        read = read + recipe.extra_bytes
        moved = np.where(fused, np.maximum(each - types.in_bytes, 0.0), each + read)
        rows.cast(
            "forward", 2, where & self._first_reader() & (moved != 0.0), dtype=index,
            moved=nodes.in_elems * moved, fixed=0.0,
            launches=recipe.amax_pass + 1.0 + recipe.extra_launches + (recipe.hadamard & copied),
        )  # fmt: skip
        copied = self.copies & nodes.input_grad
        moved = 2.0 * recipe.weight_bytes(self.narrow) * copied  # gathered narrow: only turned round
        if self.policy.gather is None:
            moved = recipe.weight_bytes(self.narrow) * (1 + copied)
            # Frozen weights are held in the type of activations.
            param = self.policy.param.num_bytes
            held = np.where(nodes.weight_grad, param, min(param, self.policy.activation.num_bytes))
            moved = moved + held * (1 + recipe.amax_pass) + recipe.extra_bytes
        rows.cast(
            "forward", 3, where & (moved != 0.0) & (nodes.weight_elems != 0.0), dtype=index, moved=0.0,
            fixed=nodes.weight_elems * moved, launches=1.0 + recipe.amax_pass + recipe.extra_launches,
            once_per_step=not recipe.weights_again,
        )  # fmt: skip
        rows.kernel(
            "forward", 4, where, (nodes.m, nodes.n, nodes.k), dtype=types.compute, flops=nodes.flops,
            moved=nodes.in_elems * written + nodes.out_elems * types.out_bytes,
            weight_bytes=nodes.weight_elems * recipe.weight_bytes(self.narrow),
        )  # fmt: skip

    def add_backward(self, rows: Rows) -> None:
        """Gradients of the outputs made narrow, then the products by input and by weight, written wide."""
        nodes, types, recipe, where = self.nodes, self.types, self.recipe, self.types.quantized
        q = recipe.activation_bytes(self.narrow)
        by_weight = nodes.weight_grad & (not recipe.wide_weight_gradient)
        readers = nodes.input_grad.astype(np.float64) + by_weight
        rotated = recipe.hadamard & self.copies & by_weight
        moved = q * (readers if self.copies else 1) + types.out_bytes * (1 + recipe.amax_pass + rotated)
        moved = moved + recipe.extra_bytes
        rows.cast(
            "backward", 1, where & (readers > 0.0), dtype=DTYPES.index(self.narrow),
            moved=nodes.out_elems * moved, fixed=0.0,
            launches=recipe.amax_pass + 1.0 + recipe.extra_launches + rotated,
        )  # fmt: skip
        if recipe.weights_again:
            again = recipe.weight_bytes(self.narrow) + types.out_bytes * (1 + recipe.amax_pass)
            rows.cast(
                "backward", 6, where & nodes.input_grad & (nodes.weight_elems != 0.0),
                dtype=DTYPES.index(self.narrow), moved=0.0,
                fixed=nodes.weight_elems * (again + recipe.extra_bytes),
                launches=1.0 + recipe.amax_pass + recipe.extra_launches,
            )  # fmt: skip
        rows.kernel(
            "backward", 2, where & nodes.input_grad, (nodes.m, nodes.k, nodes.n), dtype=types.compute,
            flops=nodes.flops, moved=nodes.out_elems * q + nodes.in_elems * types.in_bytes,
            weight_bytes=nodes.weight_elems * recipe.weight_bytes(self.narrow),
            param_elems=nodes.param_elems * ~nodes.weight_grad,
        )  # fmt: skip
        wide = DTYPES.index(self.policy.activation)
        in_wide = recipe.wide_weight_gradient
        read = nodes.in_elems * types.in_bytes + nodes.out_elems * types.out_bytes
        rows.kernel(
            "backward", 3, where & nodes.weight_grad, (nodes.k, nodes.n, nodes.m), by_weight=True,
            dtype=np.full_like(types.compute, wide) if in_wide else types.compute, flops=nodes.flops,
            moved=read if in_wide else (nodes.in_elems + nodes.out_elems) * q,
            weight_bytes=nodes.weight_elems
            * min(self.policy.activation.num_bytes, self.policy.param.num_bytes),
            param_elems=nodes.param_elems,
        )  # fmt: skip

    def add_history(self, rows: Rows, phase: str) -> None:
        """Histories of maxima, moved on once per pass under delayed scaling."""
        if self.recipe.amax_history:
            moved = history_bytes(self.nodes, self.types.quantized, self.recipe, phase)
            dtype = DTYPES.index(DType.FP32)
            rows.last(phase, dtype=dtype, is_cast=True, bytes_fixed=moved, launches=_HISTORY_KERNELS)

    def _first_reader(self) -> Bools:
        """Products whose input no other product of their block made narrow before."""
        first, made = np.zeros(len(self.nodes), dtype=np.bool_), set()
        for index in np.flatnonzero(self.types.quantized).tolist():
            node = self.nodes.nodes[index]
            source = (node.inputs[0] if node.inputs else -1, node.segment)
            first[index] = source[0] < 0 or source not in made
            made.add(source)
        return first

    def _after_lone_norm(self) -> Bools:
        """Products whose input a norm writes and only narrow products read."""
        lone, narrow = np.zeros(len(self.nodes), dtype=np.bool_), self.types.quantized
        for index in np.flatnonzero(narrow).tolist():
            inputs = self.nodes.nodes[index].inputs
            source = inputs[0] if inputs else -1
            if source >= 0 and self.nodes.nodes[source].op_class is OpClass.NORM:
                lone[index] = all(narrow[reader] for reader in self.nodes.readers[source])
        return lone
