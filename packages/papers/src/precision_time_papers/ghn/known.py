"""Embeddings of every known model, shipped as a table: looking one up needs no graph."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from precision_time.cache import data
from precision_time.errors import ConfigError, NotFittedError
from precision_time.forks import cached_property
from precision_time.workload.graph import OpGraph
from precision_time.workload.resolve import canonical_name, load_workload

from .embedding import Embedding, embed
from .weights import Floats32

TABLE = "embeddings.npz"
SCHEMA = 1
_REMEDY = "To fix: reinstall the package, or write it again: packages/papers/studies/train_ghn.py --embed."


@dataclass(frozen=True, kw_only=True, eq=False)
class KnownEmbeddings:
    """Vectors of all known models; models with equal graphs share a row. Arrays of G graphs."""

    names: tuple[str, ...]
    """Every model name."""
    families: tuple[str, ...]
    """Family of each name."""
    rows: NDArray[np.int64]
    """Row of each name in `vectors`."""
    vectors: Floats32
    """Shape (G, 32)."""
    hashes: tuple[str, ...]
    """Content hash of each row."""
    weights_version: str

    @cached_property
    def row_of(self) -> Mapping[str, int]:
        """Row of a name."""
        return dict(zip(self.names, self.rows.tolist(), strict=True))

    @cached_property
    def members(self) -> Mapping[int, tuple[str, ...]]:
        """Names that share a row, the shortest first."""
        found: dict[int, list[str]] = {}
        for name, row in zip(self.names, self.rows.tolist(), strict=True):
            found.setdefault(row, []).append(name)
        return {row: tuple(sorted(names, key=lambda name: (len(name), name))) for row, names in found.items()}

    @cached_property
    def family_of(self) -> Mapping[str, str]:
        """Family of a name."""
        return dict(zip(self.names, self.families, strict=True))

    @cached_property
    def center(self) -> Floats32:
        """Mean over all graphs, shape (32,)."""
        return np.asarray(self.vectors.mean(axis=0), dtype=np.float32)

    @cached_property
    def deviation(self) -> Floats32:
        """Standard deviation over all graphs, shape (32,)."""
        return np.asarray(np.maximum(self.vectors.std(axis=0), 1e-6), dtype=np.float32)

    def standardized(self, vectors: Floats32) -> Floats32:
        """Vectors as standard deviations from the mean of all known models; shape as given.

        All architectures share a large common part, so that raw cosines are near one for everything.
        """
        return np.asarray((vectors - self.center) / self.deviation, dtype=np.float32)

    def similarities(self, vector: Floats32) -> NDArray[np.float64]:
        """Cosine of a vector with every row, both standardized; shape (G,)."""
        rows = self.standardized(self.vectors).astype(np.float64)
        one = self.standardized(vector).astype(np.float64)
        lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(one)
        products: NDArray[np.float64] = (rows @ one) / np.where(lengths > 0, lengths, 1.0)
        return products


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbor:
    """A known architecture near another one."""

    name: str
    family: str
    similarity: float
    """Cosine of the standardized vectors, -1 to 1."""
    same_as: tuple[str, ...] = ()
    """Other names of the same graph."""


def table_path() -> Path:
    """File of the shipped table."""
    return Path(__file__).parent / "data" / TABLE


@data
def known_embeddings() -> KnownEmbeddings:
    """The table that ships with the package.

    Raises:
        NotFittedError: If it is missing or damaged.
    """
    return read_table(table_path())


def embedding_of(model: str) -> Embedding:
    """The embedding of a model by name: from the table, or else from its graph.

    Raises:
        UnknownNameError: If no model has the name.
    """
    table = known_embeddings()
    row = table.row_of.get(model, table.row_of.get(canonical_name(model)))
    if row is None:
        return embed(load_workload(model).graph)
    return Embedding(
        vector=table.vectors[row], graph_hash=table.hashes[row], weights_version=table.weights_version
    )


def nearest(model: str | OpGraph | Embedding, k: int = 5) -> tuple[Neighbor, ...]:
    """Known architectures most like `model`, nearest first.

    A model given by name is not listed, nor are other names of its graph; a graph or an embedding is
    listed with the known models that it equals.

    Args:
        model: Name, operator graph, or a blind embedding made with the shipped weights.
        k: How many at most; models of one graph count once.

    Raises:
        ConfigError: If `k` is not positive, or the embedding is annotated or made with other weights.
        UnknownNameError: If no model has the name.
    """
    if k < 1:
        raise ConfigError(f"k={k} is invalid: at least one neighbor must be listed. To fix: raise it.")
    table = known_embeddings()
    if isinstance(model, OpGraph):
        given = embed(model)
    else:
        given = embedding_of(model) if isinstance(model, str) else model
    if given.vector.shape != table.center.shape or given.weights_version != table.weights_version:
        raise ConfigError(
            f"An embedding of shape {given.vector.shape} with weights {given.weights_version!r} cannot be "
            f"compared with the table, which has {table.center.shape} and {table.weights_version!r}. "
            "To fix: embed it without dtypes and with the shipped weights."
        )
    similar = table.similarities(given.vector)
    found = []
    for row in np.argsort(-similar, kind="stable"):
        if isinstance(model, str) and table.hashes[row] == given.graph_hash:
            continue
        first, *others = table.members[int(row)]
        found.append(
            Neighbor(
                name=first,
                family=table.family_of[first],
                similarity=float(similar[row]),
                same_as=tuple(others),
            )
        )
        if len(found) == k:
            break
    return tuple(found)


def read_table(path: Path) -> KnownEmbeddings:
    """The table that packages/papers/studies/train_ghn.py wrote.

    Raises:
        NotFittedError: If it is missing, truncated or of another schema.
    """
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = dict(file)
        if int(arrays["schema"]) != SCHEMA:
            raise NotFittedError(
                f"{path} has schema {arrays['schema']}, this version reads {SCHEMA}. {_REMEDY}"
            )
        table = KnownEmbeddings(
            names=tuple(arrays["names"].tolist()),
            families=tuple(arrays["families"].tolist()),
            rows=arrays["rows"].astype(np.int64),
            vectors=arrays["vectors"],
            hashes=tuple(arrays["hashes"].tolist()),
            weights_version=str(arrays["weights_version"]),
        )
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        raise NotFittedError(
            f"The embeddings in {path} are missing or damaged ({error}). {_REMEDY}"
        ) from error
    if not len(table.names) == len(table.families) == len(table.rows) or table.rows.max(initial=0) >= len(
        table.vectors
    ):
        raise NotFittedError(f"The embeddings in {path} are incomplete. {_REMEDY}")
    return table
