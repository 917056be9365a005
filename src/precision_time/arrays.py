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


def sum_in_order(values: Floats, axis: int = -1) -> Floats:
    """The sum over an axis, one by one: the same to the bit however many rows there are."""
    found: Floats = np.add.accumulate(values, axis=axis).take(-1, axis=axis)
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


def flag_of(condition: bool | Bools) -> Number:
    """1 where a condition holds, else 0."""
    return condition.astype(np.float64) if isinstance(condition, np.ndarray) else float(condition)


def where(flag: Number, then: Number, otherwise: Number) -> Number:
    """`np.where`, without its cost where there is one layout."""
    if isinstance(flag, np.ndarray):
        return np.where(flag, then, otherwise)
    return then if flag else otherwise


def least(one: Number, other: Number) -> Number:
    """`np.minimum`, as `where`."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.minimum(one, other)
    return min(one, other)


def most(one: Number, other: Number) -> Number:
    """`np.maximum`, as `where`."""
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.maximum(one, other)
    return max(one, other)
