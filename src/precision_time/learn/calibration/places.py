"""What of a job the errors of a predictor are alike with: kinds, differences, and where its time goes.

All of it is read off the feature table, so that measured runs, requests and the corpus have it alike. The
columns are listed in `data/places.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cache import data
from ...cost.terms import TERMS, StepTerm, TermGroup
from ...io import packaged_toml
from ...records import dataclass
from ...workload.graph import OpClass
from ..table import JobTable

Floats = NDArray[np.float64]

_COLUMNS = packaged_toml(__package__, "data/places.toml")
KINDS: tuple[str, ...] = tuple(_COLUMNS["kinds"])
DIFFERENCES: tuple[str, ...] = (*KINDS, *_COLUMNS["differences"])
"""Kinds differ by 1 or not at all, the others by how much."""
PARAMETERS = ("products", "memory", "host", "update", "links", "waits")
"""What a term of the step is the time of: matrix products, other kernels, the host, the update, messages that
are not hidden, waiting for others. Each has a logarithm that measured points move."""
_PRODUCTS = frozenset({OpClass.CONV, OpClass.GEMM, OpClass.RNN, OpClass.ATTENTION})
_DIGITS = 6
_FIELDS = ("kinds", "positions", "shares", "width")


def parameter_of(term: StepTerm) -> str:
    """The parameter that a term is the time of.

    >>> from precision_time.cost.terms import TERMS
    >>> {term.name: parameter_of(term) for term in TERMS}["gemm_s"]
    'products'
    """
    if term.group is TermGroup.KERNELS:
        return "products" if _PRODUCTS & {*term.op_classes} else "memory"
    if term.group is TermGroup.EXPOSED:
        return "links" if term.name.endswith("_exposed_s") else "waits"
    return "update" if term.group is TermGroup.UPDATE else "host"


PARAMETER_OF: Mapping[str, str] = {term.name: parameter_of(term) for term in TERMS}


@dataclass(frozen=True, kw_only=True, slots=True)
class Places:
    """n jobs as the process of their errors sees them."""

    kinds: NDArray[np.str_]
    """Equal where two jobs are of one kind, shape (n, len(KINDS))."""
    positions: Floats
    """The other differences are differences of these, shape (n, n_columns)."""
    shares: Floats
    """Of the predicted step, by parameter; rows sum to 1. Shape (n, len(PARAMETERS))."""
    width: Floats
    """Standard deviation of log(measured / predicted) that the predictor expects, shape (n,)."""

    def __len__(self) -> int:
        return len(self.width)

    def take(self, rows: Any) -> Places:
        """Some of the places."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _FIELDS})

    def differences(self, others: Places) -> Floats:
        """How far places are apart, shape (len(DIFFERENCES), n, n_others)."""
        kinds = [
            (self.kinds[:, None, index] != others.kinds[None, :, index]).astype(np.float64)
            for index in range(len(KINDS))
        ]
        apart = np.abs(self.positions[:, None, :] - others.positions[None, :, :])
        summed = [apart[:, :, columns].sum(axis=2) for columns in _slices()]
        return np.stack([*kinds, *summed])

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {name: getattr(self, name).tolist() for name in _FIELDS}

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> Places:
        """The places that `to_dict` wrote.

        Raises:
            ValueError: If the shapes do not fit together.
        """
        arrays = {name: np.array(stated[name], dtype=np.float64) for name in _FIELDS[1:]}
        found = cls(kinds=np.array(stated["kinds"], dtype=np.str_), **arrays)
        count, columns = len(found.width), position_columns()
        shapes = [(count, len(KINDS)), (count, len(columns)), (count, len(PARAMETERS)), (count,)]
        finite = all(np.isfinite(values).all() for values in arrays.values())
        if [getattr(found, name).shape for name in _FIELDS] != shapes or not finite:
            raise ValueError("points and places do not fit together")
        if (
            (found.shares < 0.0).any()
            or (found.shares.sum(axis=1) <= 0.0).any()
            or (found.width <= 0.0).any()
        ):
            raise ValueError("a share or a width of a point is no positive number")
        return found

    @classmethod
    def together(cls, parts: Sequence[Places]) -> Places:
        """Places one after the other."""
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in _FIELDS})


def position_columns() -> list[str]:
    """The feature columns that positions are made of."""
    return [name for kind in DIFFERENCES[len(KINDS) :] for name in _names(kind)]


def places_of(table: JobTable, exposed_share: Floats, width: Floats) -> Places:
    """The places of priced jobs.

    Args:
        table: The jobs.
        exposed_share: Share of the predicted step that is exposed communication, shape (n,).
        width: Standard deviation of log(measured / predicted) that is expected, shape (n,).
    """
    columns, apart = _columns(table.names)
    # A kind is the text of its columns: equal for equal jobs, and short enough for a file.
    kinds = np.array(
        [[_text(row[wanted]) for wanted in columns] for row in table.features], dtype=np.str_
    ).reshape(len(table.features), len(KINDS))
    positions = table.features[:, apart]
    return Places(
        kinds=kinds,
        positions=positions,
        shares=_shares(table, exposed_share),
        width=np.asarray(width, dtype=np.float64),
    )


def _shares(table: JobTable, exposed_share: Floats) -> Floats:
    """Of the predicted step by parameter: the analytical terms, both parts as the correction leaves them."""
    shares = np.zeros((len(table.features), len(PARAMETERS)))
    for name, parameter in PARAMETER_OF.items():
        if f"share.{name}" in table.names:
            column = table.features[:, table.names.index(f"share.{name}")]
            shares[:, PARAMETERS.index(parameter)] += column
    exposed = np.array([name in ("links", "waits") for name in PARAMETERS])
    for part, share in ((exposed, exposed_share), (~exposed, 1.0 - exposed_share)):
        total = shares[:, part].sum(axis=1)
        shares[:, part] *= (share / np.where(total > 0.0, total, 1.0))[:, None]
    # Features are rounded: what is missing to 1 goes where most is.
    summed: Floats = shares / shares.sum(axis=1, keepdims=True)
    return summed


def _names(difference: str) -> tuple[str, ...]:
    table = "kinds" if difference in KINDS else "differences"
    return tuple(_COLUMNS[table][difference])


def _columns(names: tuple[str, ...]) -> tuple[list[list[int]], list[int]]:
    """Where the columns of each kind are in a table, and those of the positions."""
    kinds = [[names.index(name) for name in _matching(names, _names(kind))] for kind in KINDS]
    return kinds, [names.index(name) for name in position_columns()]


def _matching(names: tuple[str, ...], wanted: tuple[str, ...]) -> list[str]:
    return [name for name in names if any(_is(name, given) for given in wanted)]


def _is(name: str, given: str) -> bool:
    return name.startswith(given) if given.endswith(".") else name == given


def _text(values: Floats) -> str:
    return " ".join(f"{value:.{_DIGITS}g}" for value in values)


@data
def _slices() -> tuple[slice, ...]:
    """Where the columns of each difference that grows are among the positions."""
    ends = np.cumsum([0, *(len(_names(name)) for name in DIFFERENCES[len(KINDS) :])]).tolist()
    return tuple(slice(low, high) for low, high in zip(ends[:-1], ends[1:], strict=True))
