"""Embeddings of every known model, shipped as a table: looking one up needs no graph."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, NotFittedError
from ...io import write_atomically
from ...workload.graph import OpGraph
from ...workload.resolve import canonical_name, known_models, load_workload
from .architecture import architecture_of
from .embedding import Embedding, embed
from .network import node_vectors
from .readout import mean_vector
from .weights import Floats32, GhnWeights

TABLE = "embeddings.npz"
_SCHEMA = 1
_WAY_OUT = "To fix: reinstall the package, or write it again with scripts/train_ghn.py --embed."


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
    def centre(self) -> Floats32:
        """Mean over all graphs, shape (32,)."""
        return np.asarray(self.vectors.mean(axis=0), dtype=np.float32)

    @cached_property
    def spread(self) -> Floats32:
        """Standard deviation over all graphs, shape (32,)."""
        return np.asarray(np.maximum(self.vectors.std(axis=0), 1e-6), dtype=np.float32)

    def standardised(self, vectors: Floats32) -> Floats32:
        """Vectors as standard deviations from the mean of all known models; shape as given.

        All architectures share a large common part, so that raw cosines are near one for everything.
        """
        return np.asarray((vectors - self.centre) / self.spread, dtype=np.float32)

    def similarities(self, vector: Floats32) -> NDArray[np.float64]:
        """Cosine of a vector with every row, both standardised; shape (G,)."""
        rows = self.standardised(self.vectors).astype(np.float64)
        one = self.standardised(vector).astype(np.float64)
        lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(one)
        products: NDArray[np.float64] = (rows @ one) / np.where(lengths > 0, lengths, 1.0)
        return products


@dataclass(frozen=True, kw_only=True, slots=True)
class Neighbour:
    """A known architecture near another one."""

    name: str
    family: str
    similarity: float
    """Cosine of the standardised vectors, -1 to 1."""
    same_as: tuple[str, ...] = ()
    """Other names of the same graph."""


def table_path() -> Path:
    """Where the shipped table lies."""
    return Path(__file__).parent / "data" / TABLE


@cache
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


def nearest(model: str | OpGraph | Embedding, k: int = 5) -> tuple[Neighbour, ...]:
    """Known architectures most like `model`, nearest first.

    A model asked for by name is not listed, nor are other names of its graph; a graph or an embedding is told
    which known models it equals.

    Args:
        model: Name, operator graph, or a blind embedding made with the shipped weights.
        k: How many at most; models of one graph count once.

    Raises:
        ConfigError: If `k` is not positive, or the embedding is annotated or made with other weights.
        UnknownNameError: If no model has the name.
    """
    if k < 1:
        raise ConfigError(f"{k} neighbours cannot be. The rule: one or more. To fix: raise it.")
    table = known_embeddings()
    if isinstance(model, OpGraph):
        wanted = embed(model)
    else:
        wanted = embedding_of(model) if isinstance(model, str) else model
    if wanted.vector.shape != table.centre.shape or wanted.weights_version != table.weights_version:
        raise ConfigError(
            f"An embedding of shape {wanted.vector.shape} with weights {wanted.weights_version!r} cannot be "
            f"compared with the table, which has {table.centre.shape} and {table.weights_version!r}. "
            "To fix: embed it without dtypes and with the shipped weights."
        )
    similar = table.similarities(wanted.vector)
    found = []
    for row in np.argsort(-similar, kind="stable"):
        if isinstance(model, str) and table.hashes[row] == wanted.graph_hash:
            continue
        first, *others = table.members[int(row)]
        found.append(
            Neighbour(
                name=first,
                family=table.family_of[first],
                similarity=float(similar[row]),
                same_as=tuple(others),
            )
        )
        if len(found) == k:
            break
    return tuple(found)


def embed_known(weights: GhnWeights, tell: Callable[[str], None] = lambda _: None) -> KnownEmbeddings:
    """Embeddings of every known model, each at its usual sizes.

    Args:
        weights: Hypernetwork.
        tell: Told of every model.
    """
    models = known_models()
    row_of_hash: dict[str, int] = {}
    vectors: list[Floats32] = []
    rows = []
    for model in models:
        tell(model.name)
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
    """Write a table whole or not at all."""
    buffer = io.BytesIO()
    np.savez_compressed(
        buffer,
        allow_pickle=False,
        schema=np.array(_SCHEMA),
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


def read_table(path: Path) -> KnownEmbeddings:
    """The table that `write_table` wrote.

    Raises:
        NotFittedError: If it is missing, truncated or of another schema.
    """
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            arrays = dict(file)
        if int(arrays["schema"]) != _SCHEMA:
            raise NotFittedError(
                f"{path} has schema {arrays['schema']}, this version reads {_SCHEMA}. {_WAY_OUT}"
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
            f"The embeddings in {path} are missing or damaged ({error}). {_WAY_OUT}"
        ) from error
    if not len(table.names) == len(table.families) == len(table.rows) or table.rows.max(initial=0) >= len(
        table.vectors
    ):
        raise NotFittedError(f"The embeddings in {path} are incomplete. {_WAY_OUT}")
    return table
