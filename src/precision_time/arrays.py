"""Names of array types; shapes are in the docstrings of what has them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Indices: TypeAlias = NDArray[np.intp]
Number: TypeAlias = float | Floats
"""One value, or an array of them; arrays broadcast."""


def row_by_row(rows: Floats, matrix: Floats) -> Floats:
    """`rows @ matrix`, every row by itself: the same to the bit however many there are."""
    found: Floats = (np.ascontiguousarray(rows)[..., None, :] @ matrix)[..., 0, :]
    return found


class Same:
    """An object as part of a key: equal to itself alone, and kept, so that no other takes its place."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.value is self.value
