"""The workload-embeddings generator: jobs to vectors of the GHN, each graph embedded once.

Under one GHN a vector depends on the architecture alone, not on image size, batch or software.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from precision_time.cache import memo
from precision_time.cost.job import Job
from precision_time.precision.policy import PrecisionPolicy
from precision_time.workload.graph import OpGraph
from precision_time.workload.resolve import load_workload

from ..ghn.embedding import Embedding, embed
from ..ghn.readout import WIDTH_CLASSES, lowered_dtypes
from ..ghn.weights import WIDTH, GhnWeights, shipped_weights
from .columns import ANNOTATED, EMBEDDING, SIZE_COLUMNS, batch_per_device, size_columns
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
_ROUNDING = 1e-9
"""What the same embeddings are apart when another processor computed one of them, and more."""


def job_embeddings(
    jobs: Sequence[Job],
    progress: Callable[[int], None] | None = None,
    *,
    annotated: bool = True,
    ghn: GhnWeights | None = None,
) -> tuple[tuple[str, ...], Floats]:
    """Embeddings of jobs, one row each.

    Args:
        jobs: n jobs.
        progress: Called with 1 after each.
        annotated: Also the blocks by the width of the types that the precision lowers operators to.
        ghn: Hypernetwork; None for the shipped one.

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
        values[row, :WIDTH] = embedding_of_graph(graph, ghn).vector
        if annotated:
            values[row, WIDTH : -len(SIZE_COLUMNS)] = annotated_embedding(graph, job.runs, ghn).vector
        if progress:
            progress(1)
    batches = np.array([batch_per_device(job) for job in jobs])
    values[:, -len(SIZE_COLUMNS) :] = size_columns([job.workload.graph for job in jobs], batches)
    return names, values


@memo(4096)
def embedding_of_graph(graph: OpGraph, ghn: GhnWeights | None = None) -> Embedding:
    """The embedding of an architecture, with the operators that the vocabulary lacks.

    Args:
        graph: Operator graph.
        ghn: Hypernetwork; None for the shipped one.

    Raises:
        CaptureError: If the graph has no operators.
    """
    return embed(graph, weights=ghn)


@memo(4096)
def annotated_embedding(graph: OpGraph, policy: PrecisionPolicy, ghn: GhnWeights | None = None) -> Embedding:
    """The embedding in blocks by the types that `policy` lowers the operators to."""
    return embed(graph, dtypes=lowered_dtypes(graph, policy), weights=ghn)


def blind_names() -> tuple[str, ...]:
    """Columns of the blind embedding."""
    return tuple(f"{EMBEDDING}{place}" for place in range(WIDTH))


def annotated_names() -> tuple[str, ...]:
    """Columns of the annotated embedding, block by block."""
    return tuple(f"{ANNOTATED}{block.value}.{place}" for block in WIDTH_CLASSES for place in range(WIDTH))


@memo(64)
def probe_embeddings(ghn: GhnWeights | None = None) -> Floats:
    """Embeddings of the probe networks, shape (9, 32), by a hypernetwork; None for the shipped one."""
    vectors = [embedding_of_graph(load_workload(name).graph, ghn).vector for name in PROBE]
    return np.stack(vectors).astype(np.float64)


def ghn_version(ghn: GhnWeights | None = None) -> str:
    """Digest of a hypernetwork's weights; None for the shipped one."""
    return (ghn or shipped_weights()).version


def same_probe(probe: Floats, ghn: GhnWeights | None = None) -> bool:
    """Whether embeddings of the probe networks, shape (n_probe, 32), are those of this installation."""
    now = probe_embeddings(ghn)
    return probe.shape == now.shape and bool(np.allclose(probe, now, rtol=1e-3, atol=1e-3))


def probe_distance(first: Floats, second: Floats) -> float:
    """How differently two GHNs see the same networks: 1 - linear CKA (Kornblith et al., ICML 2019).

    CKA is the cosine of the two matrices of inner products between the centered embeddings: columns of one
    training mean nothing in another, which networks are alike does.

    Args:
        first: Shape (n_probe, 32).
        second: The same networks by the other GHN.

    Returns:
        0 for embeddings that are equal but for a rotation and a scale, to 1.
    """
    one, other = ((x @ x.T) for x in (first - first.mean(axis=0), second - second.mean(axis=0)))
    apart = float(1.0 - (one * other).sum() / max(np.linalg.norm(one) * np.linalg.norm(other), 1e-12))
    return apart if apart > _ROUNDING else 0.0
