"""The named terms that a step time is the sum of: `data/terms.toml`, read by all that list or show them.

A new term takes an entry there and the line of `compute`, `step` or `optimizer` that computes it. The
predictor then needs `packages/papers/studies/accuracy.py --ship`, as the shares of the terms are features.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from ..records import dataclass
from ..workload.graph import OpClass
from .constants import constants


class TermGroup(StrEnum):
    """What a term is the time of."""

    KERNELS = "kernels"
    HOST = "host"
    UPDATE = "update"
    EXPOSED = "exposed"
    """Communication that the computation does not hide, and waiting for other devices."""
    INPUT = "input"
    METHOD = "method"
    """What a training method does beside the update: priced apart, not part of the step that is learned."""


class Pass(StrEnum):
    """Where in a step a term stands."""

    BOTH = "both"
    """In the forward and the backward pass by their shares of the kernels."""
    MIRRORED = "mirrored"
    """Half of it in the forward pass, half in the backward pass."""
    BACKWARD = "backward"
    END = "end"
    """After the last backward pass."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTerm:
    """One term of a step time."""

    name: str
    title: str
    group: TermGroup
    op_classes: tuple[OpClass, ...]
    """Kernels of these classes are counted in it."""
    stands: Pass
    color: str
    """In pictures of a step."""


OTHER_COLOR = "#bab0ac"
"""In pictures, of what has no color of its own."""
REST = "memory_bound_s"
"""Counts the kernels whose class no other term has."""
CASTS = "casts_s"
HOST_STALL = "host_stall_s"
DATA_STALL = "data_stall_s"
_LISTED = tuple(
    StepTerm(
        name=name,
        title=table["title"],
        group=TermGroup(table["group"]),
        op_classes=tuple(map(OpClass, table.get("op_classes", ()))),
        stands=Pass(table.get("stands", Pass.BOTH)),
        color=table.get("color", OTHER_COLOR),
    )
    for name, table in constants("terms").items()
)
TERMS = tuple(term for term in _LISTED if term.group is not TermGroup.METHOD)
"""In the order in which they are summed and shown."""
METHOD_TERMS = tuple(term for term in _LISTED if term.group is TermGroup.METHOD)
"""Terms that training methods add (predict/method.py)."""
TERM_OF_CLASS: Mapping[OpClass, str] = {op_class: term.name for term in TERMS for op_class in term.op_classes}
KERNEL_TERMS, EXPOSED_TERMS = (
    tuple(term.name for term in TERMS if term.group is group)
    for group in (TermGroup.KERNELS, TermGroup.EXPOSED)
)
