"""Kernels of a lowered step while they are collected, slot by slot, and how they get their order."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from ..arrays import Bools, Floats, Ints, Number
from ..workload.graph import OpClass
from .lowered import PHASES, LoweredStep
from .nodes import OP_CLASSES, NodeColumns

_NUMPY_TYPES = {"Floats": np.float64, "Bools": np.bool_, "Ints": np.int64}
_COLUMNS = {item.name: _NUMPY_TYPES[str(item.type)] for item in fields(LoweredStep)}
_ONES = frozenset({"launches", "sequential_steps", "repeat", "kernel", "stride"})
"""Columns that are 1 where nothing else is said; all others are 0."""
_OF_NODE = ("repeat", "segment", "expert", "vocabulary")
_SLOTS = 8
"""At most as many kernels of one operator in one pass, at places 0 to 7."""
ELEMENTWISE = OP_CLASSES.index(OpClass.ELEMENTWISE)


class Rows:
    """Kernels around the operators of a graph. Every figure is a number or an array over the operators."""

    def __init__(self, nodes: NodeColumns) -> None:
        self._nodes = nodes
        self._keys: list[Ints] = []
        self._found: list[dict[str, Any]] = []

    def kernel(
        self, phase: str, place: int, where: Bools, shape: tuple[Floats, Floats, Floats], *,
        dtype: Ints, flops: Floats, moved: Floats, weight_bytes: Number, by_weight: bool = False,
        launches: float = 1.0, param_elems: Number = 0.0,
    ) -> None:  # fmt: skip
        """Products of operators.

        Args:
            phase: Pass.
            place: Order among the kernels of one operator in the pass.
            where: Operators that have this kernel.
            shape: m, n, k.
            dtype: Type that it computes in.
            flops: Of one repeat.
            moved: Bytes of activations, which grow with the batch.
            weight_bytes: Bytes that do not.
            by_weight: The product by the weight: the batch is its inner length, all time steps at once.
            launches: Kernels started.
            param_elems: Elements whose gradient is ready afterwards.
        """
        nodes, scales = self._nodes, self._nodes.scales_with_batch
        with_rows = scales & ~nodes.batch_in_count
        self.memory(
            phase, place, where, dtype=dtype, op_class=nodes.op_class, moved=moved, fixed=weight_bytes,
            launches=launches, param_elems=param_elems, m=shape[0], n=shape[1], k=shape[2],
            count=nodes.count, flops=flops, kernel=nodes.kernel, stride=nodes.stride,
            count_scales=scales & nodes.batch_in_count, m_scales=with_rows & (not by_weight),
            k_scales=with_rows & by_weight, sequential_steps=1.0 if by_weight else nodes.sequential_steps,
        )  # fmt: skip

    def cast(
        self, phase: str, place: int, where: Bools, *, dtype: int | Ints, moved: Number, fixed: Number,
        **more: Any,
    ) -> None:  # fmt: skip
        """Conversions that only the policy asks for."""
        self.memory(
            phase, place, where, dtype=dtype, op_class=ELEMENTWISE, moved=moved, fixed=fixed, is_cast=True,
            **more,
        )  # fmt: skip

    def memory(
        self, phase: str, place: int, where: Bools, *, dtype: int | Ints, op_class: int | Ints, moved: Number,
        fixed: Number, **more: Any,
    ) -> None:  # fmt: skip
        """Kernels that move `moved` bytes, which grow with the batch, and `fixed` ones; `more` columns."""
        nodes = np.flatnonzero(where)
        if not len(nodes):
            return
        scales = self._nodes.scales_with_batch
        columns: dict[str, Any] = {
            "phase": PHASES.index(phase),
            "dtype": dtype,
            "op_class": op_class,
            "bytes_per_sample": np.where(scales, moved, 0.0),
            "bytes_fixed": fixed + np.where(scales, 0.0, moved),
            **{name: getattr(self._nodes, name) for name in _OF_NODE},
            **more,
        }
        backward = phase == "backward"
        order = len(self._nodes) - 1 - nodes if backward else nodes
        self._add(phase, order * _SLOTS + place, {
            name: value[nodes] if isinstance(value, np.ndarray) else value for name, value in columns.items()
        })  # fmt: skip

    def last(self, phase: str, **columns: Any) -> None:
        """One kernel at the end of a pass, which belongs to no operator."""
        key = np.array([len(self._nodes) * _SLOTS])
        self._add(phase, key, {"phase": PHASES.index(phase), "op_class": ELEMENTWISE, **columns})

    def _add(self, phase: str, keys: Ints, columns: dict[str, Any]) -> None:
        self._keys.append(keys + PHASES.index(phase) * (len(self._nodes) + 1) * _SLOTS)
        self._found.append(columns)

    def step(self) -> LoweredStep:
        """All of them in the order in which they run."""
        keys = np.concatenate([*self._keys, np.zeros(0, dtype=np.int64)])
        place = np.empty(len(keys), dtype=np.intp)
        place[np.argsort(keys)] = np.arange(len(keys))
        columns: dict[str, Any] = {
            name: np.full(len(keys), name in _ONES, dtype=kind) for name, kind in _COLUMNS.items()
        }
        start = 0
        for own, found in zip(self._keys, self._found, strict=True):
            rows = place[start : start + len(own)]
            start += len(own)
            for name, value in found.items():
                columns[name][rows] = value
        return LoweredStep(**columns)
