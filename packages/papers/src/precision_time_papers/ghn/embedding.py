"""One vector per architecture: the mean of its node vectors, remembered by content and weights."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from precision_time.io import cache_folder, write_atomically
from precision_time.precision.policy import DType
from precision_time.workload.graph import OpGraph

from .architecture import ArchitectureGraph, architecture_of
from .network import node_vectors
from .readout import annotated_vector, mean_vector, node_classes
from .weights import Floats32, GhnWeights, shipped_weights

_REMEMBERED = 8192
_memory: OrderedDict[str, Floats32] = OrderedDict()


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Embedding:
    """What a regressor may know of an architecture."""

    vector: Floats32
    """Shape (32,), or (128,) where types were given: blocks wide, tf32, half, narrow."""
    graph_hash: str
    weights_version: str
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Operators that the vocabulary does not know, and how often they occur; they were joined through."""


def embed(
    graph: OpGraph,
    *,
    dtypes: Sequence[DType] | None = None,
    weights: GhnWeights | None = None,
    on_disk: bool = True,
) -> Embedding:
    """The embedding of an architecture.

    Args:
        graph: Operator graph; any batch, image size and sequence length give much the same.
        dtypes: Type that each operator computes in (`readout.lowered_dtypes`); the vector then has a block of
            32 per width class instead of being blind to precision.
        weights: Hypernetwork; the shipped one if not given.
        on_disk: Keep vectors of architectures that are not shipped in the user's cache folder, too.

    Raises:
        CaptureError: If the graph has no operators.
        ConfigError: If there are fewer types than operators.
        NotFittedError: If the shipped weights are missing or damaged.
    """
    chosen = weights or shipped_weights()
    architecture = architecture_of(graph)
    classes = None if dtypes is None else node_classes(architecture, dtypes)
    key = f"{chosen.version}-{architecture.content_hash}"
    if classes is not None:
        key += "-" + hashlib.sha256(classes.astype(np.uint8).tobytes()).hexdigest()[:16]
    vector = _memory.get(key)
    if vector is None and on_disk:
        vector = _read(_file_of(key))
    if vector is None:
        vectors = node_vectors(architecture, chosen)
        if classes is None:
            vector = mean_vector(architecture, vectors)
        else:
            vector = annotated_vector(architecture, vectors, classes)
        if on_disk:
            _write(_file_of(key), vector)
    _remember(key, vector)
    return embedding_from(architecture, vector, chosen)


def embedding_from(architecture: ArchitectureGraph, vector: Floats32, weights: GhnWeights) -> Embedding:
    """An embedding with where it comes from."""
    return Embedding(
        vector=vector,
        graph_hash=architecture.content_hash,
        weights_version=weights.version,
        unknown=dict(architecture.unknown),
    )


def _remember(key: str, vector: Floats32) -> None:
    _memory[key] = vector
    _memory.move_to_end(key)
    if len(_memory) > _REMEMBERED:
        _memory.popitem(last=False)


def _file_of(key: str) -> Path:
    return cache_folder() / "embeddings" / f"{key}.npz"


def _read(path: Path) -> Floats32 | None:
    """A vector kept earlier; one that cannot be read counts as missing."""
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            vector: Floats32 = file["vector"]
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return vector if vector.dtype == np.float32 and np.isfinite(vector).all() else None


def _write(path: Path, vector: Floats32) -> None:
    """Keep a vector; a failure to write is ignored."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, vector=vector)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, buffer.getvalue())
    except OSError:
        return
