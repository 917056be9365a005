"""Whether embeddings say anything: do known relatives lie closer than strangers?"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .known import KnownEmbeddings
from .weights import Floats32


@dataclass(frozen=True, kw_only=True, slots=True)
class Closeness:
    """Mean cosines of a group of relatives; models of one graph count once."""

    group: str
    graphs: int
    within_raw: float
    between_raw: float
    """With the members of all other groups."""
    within: float
    """Of standardised vectors (`KnownEmbeddings.standardised`)."""
    between: float


def relative_rows(table: KnownEmbeddings) -> dict[str, list[int]]:
    """Rows of each group of relatives that the table holds; groups of one are left out."""
    rows = {
        group: sorted({table.row_of[name] for name in table.names if _matches(name, patterns)})
        for group, patterns in _data()["relatives"].items()
    }
    return {group: found for group, found in rows.items() if len(found) > 1}


def closeness(table: KnownEmbeddings) -> list[Closeness]:
    """Cosines within and between groups of relatives, raw and standardised."""
    groups = relative_rows(table)
    raw, standard = cosines(table.vectors), cosines(table.standardised(table.vectors))
    found = []
    for group, rows in groups.items():
        others = [row for name, some in groups.items() if name != group for row in some]
        pairs = np.ix_(rows, rows), np.ix_(rows, others)
        found.append(
            Closeness(
                group=group,
                graphs=len(rows),
                within_raw=_mean_of_pairs(raw[pairs[0]]),
                between_raw=float(raw[pairs[1]].mean()),
                within=_mean_of_pairs(standard[pairs[0]]),
                between=float(standard[pairs[1]].mean()),
            )
        )
    return found


def family_agreement(table: KnownEmbeddings) -> tuple[float, float]:
    """Share of graphs whose nearest other graph is of their family, and the share expected by chance."""
    families = np.array([table.family_of[table.members[row][0]] for row in range(len(table.vectors))])
    similar = cosines(table.standardised(table.vectors))
    np.fill_diagonal(similar, -2.0)
    agree = families[similar.argmax(axis=1)] == families
    shares = np.unique(families, return_counts=True)[1] / len(families)
    return float(agree.mean()), float((shares**2).sum())


def classifier_matrix(table: KnownEmbeddings) -> tuple[list[str], NDArray[np.float64]]:
    """Names of known torchvision classifiers and their cosines, standardised; shape (n, n)."""
    names = [name for name in _data()["classifiers"]["names"] if name in table.row_of]
    vectors = table.standardised(table.vectors[[table.row_of[name] for name in names]])
    return names, cosines(vectors)


def cosines(vectors: Floats32) -> NDArray[np.float64]:
    """Cosine of every pair of rows."""
    unit = vectors.astype(np.float64)
    unit /= np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    product: NDArray[np.float64] = unit @ unit.T
    return product


def _mean_of_pairs(square: NDArray[np.float64]) -> float:
    upper = square[np.triu_indices(len(square), 1)]
    return float(upper.mean())


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch(name, pattern) for pattern in patterns)


@cache
def _data() -> dict[str, Any]:
    return tomllib.loads((Path(__file__).parent / "data" / "relatives.toml").read_text(encoding="utf-8"))
