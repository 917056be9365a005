"""The workload-embeddings generator: jobs to vectors of the GHN, each graph embedded once.

Under one shared GHN a vector depends on the architecture alone, not on image size, batch or software.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, lru_cache

import numpy as np

from ...cost.job import Job
from ...precision.policy import PrecisionPolicy
from ...workload.graph import OpGraph
from ...workload.resolve import load_workload
from ..ghn.embedding import Embedding, embed
from ..ghn.readout import WIDTH_CLASSES, lowered_dtypes
from ..ghn.weights import WIDTH, shipped_weights
from .columns import ANNOTATED, EMBEDDING, SIZE_COLUMNS, size_of_graph
from .regressors import Floats

PROBE = (
    "resnet18",
    "resnet50",
    "vgg16",
    "mobilenetv2_100",
    "densenet121",
    "efficientnet_b0",
    "vit_base_patch16_224",
    "bert-base",
    "gpt2",
)
"""Networks on whose embeddings two GHNs are compared."""


def job_embeddings(
    jobs: Sequence[Job], progress: Callable[[int], None] | None = None, *, annotated: bool = True
) -> tuple[tuple[str, ...], Floats]:
    """Embeddings of jobs, one row each.

    Args:
        jobs: n jobs.
        progress: Called with 1 after each.
        annotated: Also the blocks by the width of the types that the precision lowers operators to.

    Returns:
        Names `ghn.0` to `ghn.31`, then `ghnp.wide.0` to `ghnp.narrow.31`, then SIZE_COLUMNS, and values of
        shape (n, 164), or (n, 36) without the annotated ones.

    Raises:
        CaptureError: If a graph has no operators.
    """
    names = blind_names() + (annotated_names() if annotated else ()) + SIZE_COLUMNS
    values = np.empty((len(jobs), len(names)))
    for row, job in enumerate(jobs):
        graph = job.workload.graph
        values[row, :WIDTH] = embedding_of_graph(graph).vector
        if annotated:
            values[row, WIDTH : -len(SIZE_COLUMNS)] = annotated_embedding(graph, job.runs).vector
        values[row, -len(SIZE_COLUMNS) :] = size_of_graph(graph)
        if progress:
            progress(1)
    return names, values


@lru_cache(maxsize=4096)
def embedding_of_graph(graph: OpGraph) -> Embedding:
    """The embedding of an architecture, with the operators that the vocabulary lacks.

    Raises:
        CaptureError: If the graph has no operators.
    """
    return embed(graph)


@lru_cache(maxsize=4096)
def annotated_embedding(graph: OpGraph, policy: PrecisionPolicy) -> Embedding:
    """The embedding in blocks by the types that `policy` lowers the operators to."""
    return embed(graph, dtypes=lowered_dtypes(graph, policy))


def blind_names() -> tuple[str, ...]:
    """Columns of the blind embedding."""
    return tuple(f"{EMBEDDING}{place}" for place in range(WIDTH))


def annotated_names() -> tuple[str, ...]:
    """Columns of the annotated embedding, block by block."""
    return tuple(f"{ANNOTATED}{block.value}.{place}" for block in WIDTH_CLASSES for place in range(WIDTH))


@cache
def probe_embeddings() -> Floats:
    """Embeddings of the probe networks by the shipped GHN, shape (9, 32)."""
    vectors = [embedding_of_graph(load_workload(name).graph).vector for name in PROBE]
    return np.stack(vectors).astype(np.float64)


def ghn_version() -> str:
    """Digest of the shipped GHN's weights."""
    return shipped_weights().version


def same_probe(probe: Floats) -> bool:
    """Whether embeddings of the probe networks, shape (n_probe, 32), are those of this installation."""
    now = probe_embeddings()
    return probe.shape == now.shape and bool(np.allclose(probe, now, rtol=1e-3, atol=1e-3))


def probe_distance(first: Floats, second: Floats) -> float:
    """1 - mean cosine similarity of the embeddings that two GHNs give to the same networks.

    Args:
        first: Shape (n_probe, 32).
        second: The same networks by the other GHN.
    """
    if np.array_equal(first, second):
        return 0.0
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    cosines = np.einsum("ij,ij->i", first, second) / np.maximum(lengths, 1e-12)
    return float(1.0 - cosines.mean())
