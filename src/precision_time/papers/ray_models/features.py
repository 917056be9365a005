"""Features of a point: products of simple functions of its columns, written down as data.

A feature is a product of atoms, an atom one function of one column: `inverse_workers__batch` is
batch / workers. They read one row and nothing else, so that no split can leak through them, and a saved
model states them in JSON.

Reference: aMLLibrary's order of preprocessing, inverse and logarithm before products (papers.md 4.2).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, CorpusError

Floats = NDArray[np.float64]
Column = NDArray[Any]

_FUNCTIONS: Mapping[str, Callable[[Floats], Floats]] = {
    "value": lambda x: x,
    "inverse": lambda x: 1.0 / x,
    "log": np.log,
    "sqrt": np.sqrt,
    "square": np.square,
    # Of a count of workers or nodes.
    "others": lambda x: (x - 1.0) / x,
    "alone": lambda x: (x <= 1.0).astype(np.float64),
    "several": lambda x: (x > 1.0).astype(np.float64),
}
_ABOVE_ZERO = {"log", "inverse", "others"}
_RULES = {"log": "a logarithm takes values above 0", "sqrt": "a root takes no value below 0"}
_ONE_HOT = "is"


@dataclass(frozen=True, slots=True, order=True)
class Atom:
    """One function of one column; `is` compares a category with `word`."""

    function: str
    column: str
    word: str = ""

    @property
    def name(self) -> str:
        """As in reports: workers, inverse_workers, model_is_resnet50."""
        if self.function == "value":
            return self.column
        if self.function == _ONE_HOT:
            return f"{self.column}_is_{self.word}"
        return f"{self.function}_{self.column}"


@dataclass(frozen=True, slots=True, order=True)
class Feature:
    """A product of atoms."""

    atoms: tuple[Atom, ...]

    @property
    def name(self) -> str:
        """Names of the atoms, joined by two underscores."""
        return "__".join(atom.name for atom in self.atoms)

    def to_list(self) -> list[list[str]]:
        """JSON-ready."""
        return [[atom.function, atom.column, atom.word] for atom in self.atoms]

    @classmethod
    def from_list(cls, atoms: Iterable[Sequence[str]]) -> Feature:
        """The feature that `to_list` wrote.

        Raises:
            ConfigError: If a function is not known.
        """
        made = tuple(Atom(*(str(word) for word in atom)) for atom in atoms)
        for atom in made:
            if atom.function not in _FUNCTIONS and atom.function != _ONE_HOT:
                raise ConfigError(
                    f"Unknown function {atom.function!r} of a feature. To fix: use one of "
                    f"{', '.join([*_FUNCTIONS, _ONE_HOT])}."
                )
        return cls(made)


def feature(*atoms: tuple[str, str]) -> Feature:
    """A feature by pairs of function and column.

    >>> feature(("inverse", "workers"), ("value", "batch")).name
    'inverse_workers__batch'
    """
    return Feature(tuple(Atom(*atom) for atom in atoms))


def table(
    features: Sequence[Feature], columns: Mapping[str, Column], lines: Sequence[int] | None = None
) -> Floats:
    """Values of features, shape (n, n_features).

    Args:
        features: What to compute.
        columns: Values by name, shape (n,) each: numbers, or texts for categories.
        lines: How rows are called in messages; None counts from 1.

    Raises:
        CorpusError: If a function cannot take a value; names row and column.
    """
    rows = len(next(iter(columns.values()))) if columns else 0
    values: dict[Atom, Floats] = {}
    result = np.ones((rows, len(features)))
    for index, item in enumerate(features):
        for atom in item.atoms:
            if atom not in values:
                values[atom] = _evaluate(atom, columns, lines)
            result[:, index] *= values[atom]
    return result


def _evaluate(atom: Atom, columns: Mapping[str, Column], lines: Sequence[int] | None) -> Floats:
    if atom.column not in columns:
        raise ConfigError(
            f"The column {atom.column!r} is missing. To fix: give it, as all of {', '.join(sorted(columns))}."
        )
    column = columns[atom.column]
    if atom.function == _ONE_HOT:
        matches: Floats = (column == atom.word).astype(np.float64)
        return matches
    numbers = column.astype(np.float64)
    bad = numbers <= 0.0 if atom.function in _ABOVE_ZERO else numbers < 0.0
    if atom.function in _ABOVE_ZERO | {"sqrt"} and bad.any():
        first = int(np.flatnonzero(bad)[0])
        line = first + 1 if lines is None else lines[first]
        rule = _RULES.get(atom.function, "a share or an inverse takes values above 0")
        raise CorpusError(
            f"Row {line}: {atom.column} = {numbers[first]:g}, but {rule}. "
            f"To fix: leave {atom.column} out of {atom.function!r}, or leave out the row."
        )
    return _FUNCTIONS[atom.function](numbers)


def engineered(
    columns: Sequence[str],
    categories: Mapping[str, Sequence[str]],
    *,
    inverse: Sequence[str] = (),
    log: Sequence[str] = (),
    degree: int = 1,
    interactions_only: bool = True,
) -> tuple[Feature, ...]:
    """The columns, one column per category but the first, inverses, logarithms, and products of them.

    Args:
        columns: Numeric columns.
        categories: Category to its words.
        inverse: Columns whose inverse is added.
        log: Columns whose logarithm is added.
        degree: Largest number of atoms of a product; 1 for no products.
        interactions_only: No powers of an atom.

    No product holds c and 1/c of one column, nor two words of one category: the one is constant, the
    other always zero.
    """
    atoms = [Atom("value", name) for name in columns]
    atoms += [Atom(_ONE_HOT, name, word) for name, words in categories.items() for word in words[1:]]
    atoms += [Atom("inverse", name) for name in inverse]
    atoms += [Atom("log", name) for name in log]
    choose = itertools.combinations if interactions_only else itertools.combinations_with_replacement
    singles = [Feature((atom,)) for atom in atoms]
    products = [
        Feature(tuple(sorted(chosen)))
        for size in range(2, degree + 1)
        for chosen in choose(sorted(atoms), size)
        if _says_something(chosen)
    ]
    return (*singles, *products)


def _says_something(chosen: Sequence[Atom]) -> bool:
    plain = {atom.column for atom in chosen if atom.function == "value"}
    inverted = {atom.column for atom in chosen if atom.function == "inverse"}
    words = [atom.column for atom in chosen if atom.function == _ONE_HOT]
    return not plain & inverted and len(words) == len(set(words))


def is_single(item: Feature) -> bool:
    """Whether a feature reads one column only."""
    return len(item.atoms) == 1


def without_copies(features: Iterable[Feature]) -> tuple[Feature, ...]:
    """Each feature once, in the order of their first mention."""
    return tuple(dict.fromkeys(features))
