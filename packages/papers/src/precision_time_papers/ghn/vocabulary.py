"""What the nodes of an operator graph are called in an architecture graph.

The first fifteen primitives are those of GHN-2 (Knyazev et al., NeurIPS 2021); the table, the rules and the
shape vocabularies are data (`data/vocabulary.toml`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.cache import data
from precision_time.io import packaged_toml
from precision_time.workload.graph import Node, OpClass

Ints = NDArray[np.int64]
INPUT = "input"
BIAS = "bias"


class Role(StrEnum):
    """What becomes of an operator."""

    PRIMITIVE = "primitive"  # a node of its own
    MERGE = "merge"  # a node where two or more activations meet, joined through otherwise
    PRODUCT = "product"  # squeeze-excite, gate, scale, or joined through
    JOINED = "joined"  # known and left out: predecessors are joined to successors
    UNKNOWN = "unknown"  # joined likewise, counted and reported


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The role of an operator, and the primitive where it has one."""

    role: Role
    primitive: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Vocabulary:
    """Primitives, rules and shape vocabularies."""

    primitives: tuple[str, ...]
    """Names in the order of the rows of the operator table."""
    index: Mapping[str, int]
    by_class: Mapping[OpClass, Reading]
    by_op: Mapping[str, Reading]
    channels: Ints
    """Known widths, ascending, shape (C,). Index 0 of the tables means "no such size"; width i is i + 1."""
    sides: Ints
    """Known window sides, ascending, shape (S,); likewise."""

    def reading(self, node: Node) -> Reading:
        """What becomes of `node`: by the operator's name first, by its class otherwise."""
        found = self.by_op.get(node.op)
        if found is None:
            found = self.by_class.get(node.op_class, Reading(role=Role.UNKNOWN))
        return found

    def channel_index(self, width: float) -> int:
        """Row of the channel table for a width; 0 where there is none."""
        return _nearest(self.channels, width)

    def side_index(self, side: float) -> int:
        """Row of the spatial table for a window side; 0 where there is none."""
        return _nearest(self.sides, side)


def _nearest(known: Ints, value: float) -> int:
    """One plus the position of the known value nearest to `value`, the smaller of two; 0 without a value."""
    if not value > 0:
        return 0
    above = int(np.searchsorted(known, value))
    if above == 0:
        return 1
    if above == len(known):
        return len(known)
    return above + int(known[above] - value < value - known[above - 1])


@data
def vocabulary() -> Vocabulary:
    """The vocabulary that ships with the package."""
    data = packaged_toml(__package__, "data/vocabulary.toml")
    primitives = (*data["primitives"]["ghn2"], *data["primitives"]["own"])
    by_op: dict[str, Reading] = {}
    for ops in data["joined"].values():
        by_op.update(dict.fromkeys(ops, Reading(role=Role.JOINED)))
    by_op.update(dict.fromkeys(data["product"]["ops"], Reading(role=Role.PRODUCT)))
    for role, table in ((Role.PRIMITIVE, data["op"]), (Role.MERGE, data["merge"])):
        by_op.update({op: Reading(role=role, primitive=name) for op, name in table.items()})
    return Vocabulary(
        primitives=primitives,
        index={name: position for position, name in enumerate(primitives)},
        by_class={
            OpClass(name): Reading(role=Role.PRIMITIVE, primitive=primitive)
            for name, primitive in data["class"].items()
        },
        by_op=by_op,
        channels=_sizes(data["channels"]),
        sides=_sizes(data["spatial"]),
    )


def _sizes(table: Mapping[str, Any]) -> Ints:
    steps = [value for low, high, step in table["steps"] for value in range(low, high + 1, step)]
    return np.unique(np.array([*table["single"], *steps, *table.get("beyond", ())], dtype=np.int64))
