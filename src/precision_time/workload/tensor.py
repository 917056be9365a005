"""What flows between the operators of a graph that is written by hand."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tensor:
    """The output of one node: `rows` x `width` elements per sample."""

    node: int
    rows: float
    width: float
    grad: bool = True

    @property
    def elems(self) -> float:
        """Elements per sample."""
        return self.rows * self.width
