"""The table of known embeddings, and whether it is informative: are known relatives closer than strangers?

Written and read by train_ghn.py; packages/papers/tests/ghn/test_embedding.py checks the shipped
table by it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from precision_time.io import write_atomically
from precision_time.workload.resolve import known_models, load_workload
from precision_time_papers.ghn.architecture import architecture_of
from precision_time_papers.ghn.known import SCHEMA, KnownEmbeddings
from precision_time_papers.ghn.network import node_vectors
from precision_time_papers.ghn.picture import relative_rows, relatives
from precision_time_papers.ghn.readout import mean_vector
from precision_time_papers.ghn.weights import Floats32, GhnWeights


@dataclass(frozen=True, kw_only=True, slots=True)
class Closeness:
    """Mean cosines of a group of relatives; models of one graph count once."""

    group: str
    graphs: int
    within_raw: float
    between_raw: float
    """With the members of all other groups."""
    within: float
    """Of standardized vectors (`KnownEmbeddings.standardized`)."""
    between: float


def closeness(table: KnownEmbeddings) -> list[Closeness]:
    """Cosines within and between groups of relatives, raw and standardized."""
    groups = relative_rows(table)
    raw, standard = cosines(table.vectors), cosines(table.standardized(table.vectors))
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
    similar = cosines(table.standardized(table.vectors))
    np.fill_diagonal(similar, -2.0)
    agree = families[similar.argmax(axis=1)] == families
    shares = np.unique(families, return_counts=True)[1] / len(families)
    return float(agree.mean()), float((shares**2).sum())


def classifier_matrix(table: KnownEmbeddings) -> tuple[list[str], NDArray[np.float64]]:
    """Names of known torchvision classifiers and their cosines, standardized; shape (n, n)."""
    names = [name for name in relatives()["classifiers"]["names"] if name in table.row_of]
    vectors = table.standardized(table.vectors[[table.row_of[name] for name in names]])
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


def embed_known(weights: GhnWeights, progress: Callable[[str], None] = lambda _: None) -> KnownEmbeddings:
    """Embeddings of every known model, each at its usual sizes.

    Args:
        weights: Hypernetwork.
        progress: Called with the name of every model.
    """
    models = known_models()
    row_of_hash: dict[str, int] = {}
    vectors: list[Floats32] = []
    rows = []
    for model in models:
        progress(model.name)
        architecture = architecture_of(load_workload(model.name).graph)
        if architecture.content_hash not in row_of_hash:
            row_of_hash[architecture.content_hash] = len(vectors)
            vectors.append(mean_vector(architecture, node_vectors(architecture, weights)))
        rows.append(row_of_hash[architecture.content_hash])
    return KnownEmbeddings(
        names=tuple(model.name for model in models),
        families=tuple(model.family for model in models),
        rows=np.array(rows, dtype=np.int64),
        vectors=np.stack(vectors),
        hashes=tuple(row_of_hash),
        weights_version=weights.version,
    )


def write_table(path: Path, table: KnownEmbeddings) -> None:
    """Write a table atomically."""
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        schema=np.array(SCHEMA),
        names=_texts(table.names),
        families=_texts(table.families),
        rows=table.rows.astype(np.int32),
        vectors=table.vectors,
        hashes=_texts(table.hashes),
        weights_version=np.array(table.weights_version),
    )
    write_atomically(path, buffer.getvalue())


def _texts(words: Sequence[str]) -> NDArray[np.str_]:
    return np.array(words, dtype=np.str_)
