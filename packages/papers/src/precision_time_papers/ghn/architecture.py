"""The architecture graph that GHN-2 reads: primitives, shapes, and who feeds whom.

Reference: Knyazev et al., Parameter Prediction for Unseen Deep Architectures, NeurIPS 2021, section 3 and
appendix A; Zhang et al., Graph HyperNetworks, ICLR 2019.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from graphlib import CycleError, TopologicalSorter

import numpy as np
from numpy.typing import NDArray

from precision_time.cache import derived
from precision_time.errors import CaptureError
from precision_time.workload.graph import OpGraph

from .reading import GraphNode, read_nodes
from .vocabulary import vocabulary

Ints = NDArray[np.int64]
LONGEST_PATH = 50
"""Virtual edges join nodes at most so many edges apart (s_max of GHN-2)."""
_HASH_LENGTH = 32


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ArchitectureGraph:
    """Primitives in a topological order, node 0 being the input. All arrays have length N unless stated."""

    name: str
    """For messages; not part of the content."""
    primitives: Ints
    """Index into `vocabulary().primitives`."""
    shapes: Ints
    """Rows of the shape tables, shape (N, 4): output width, input width, window height, window width."""
    edges: Ints
    """Direct edges (from, to) in ascending order, shape (E, 2); always from a smaller to a larger index."""
    stands_for: NDArray[np.float64]
    """Occurrences in the model of each node: above 1 only where unrolling reached its limit."""
    operators: Ints
    """Index of the operator of the `OpGraph` that the node comes from; -1 for the input."""
    unknown: Mapping[str, int] = field(default_factory=dict)
    """Operators that the vocabulary does not know, and how often they occur; they were joined through."""
    content_hash: str = ""
    """Equal for graphs with equal content, under any name."""

    def __len__(self) -> int:
        return len(self.primitives)

    @property
    def primitive_names(self) -> tuple[str, ...]:
        """What each node is."""
        names = vocabulary().primitives
        return tuple(names[index] for index in self.primitives)


@derived
def architecture_of(graph: OpGraph) -> ArchitectureGraph:
    """The architecture graph of an operator graph.

    Raises:
        CaptureError: If the graph has no operators.
    """
    if not graph.nodes:
        raise CaptureError(
            f"The graph of {graph.name!r} is empty: it has no operators. To fix: capture a model whose "
            "forward pass computes something, with example inputs that reach its layers."
        )
    nodes, unknown = read_nodes(graph)
    return build_architecture(graph.name, nodes, unknown)


def build_architecture(
    name: str, nodes: Sequence[GraphNode], unknown: Mapping[str, int] | None = None
) -> ArchitectureGraph:
    """Sort nodes topologically and number what they are made of.

    Args:
        name: For messages.
        nodes: In any order; `inputs` are positions in this sequence.
        unknown: Operators that were left out, and how often.

    Raises:
        CaptureError: If there is no node, an edge leads nowhere, or the edges form a cycle.
    """
    if not nodes:
        raise CaptureError(f"Architecture {name!r} is empty. To fix: give it at least an input node.")
    order = _topological(name, [node.inputs for node in nodes])
    place = {old: new for new, old in enumerate(order)}
    words = vocabulary()
    kept = [nodes[old] for old in order]
    edges = sorted({(place[source], place[old]) for old in order for source in nodes[old].inputs})
    primitives = np.array([words.index[node.primitive] for node in kept], dtype=np.int64)
    shapes = np.array([_shape_rows(node) for node in kept], dtype=np.int64)
    edge_array = np.array(edges, dtype=np.int64).reshape(-1, 2)
    stands_for = np.array([node.stands_for for node in kept], dtype=np.float64)
    return ArchitectureGraph(
        name=name,
        primitives=primitives,
        shapes=shapes,
        edges=edge_array,
        stands_for=stands_for,
        operators=np.array([node.operator for node in kept], dtype=np.int64),
        unknown=dict(unknown or {}),
        content_hash=_hash(primitives, shapes, edge_array, stands_for),
    )


def _shape_rows(node: GraphNode) -> tuple[int, int, int, int]:
    words = vocabulary()
    return (
        words.channel_index(node.c_out),
        words.channel_index(node.c_in),
        words.side_index(node.k_h),
        words.side_index(node.k_w),
    )


def _topological(name: str, inputs: Sequence[Iterable[int]]) -> list[int]:
    """Positions so that every node comes after its inputs; the given order if it is one."""
    if any(not 0 <= source < len(inputs) for sources in inputs for source in sources):
        raise CaptureError(
            f"Architecture {name!r} has an edge from a node that it does not hold. "
            "To fix: number the nodes from 0 in the order given."
        )
    if all(source < index for index, sources in enumerate(inputs) for source in sources):
        return list(range(len(inputs)))
    sorter = TopologicalSorter(dict(enumerate(inputs)))
    try:
        sorter.prepare()
    except CycleError as error:
        raise CaptureError(
            f"Architecture {name!r} is cyclic: nodes {sorted(set(error.args[1]))[:5]} wait for each other. "
            "The rule: data flow from the input to the output. To fix: write recurrent steps as one node."
        ) from error
    order: list[int] = []
    while sorter.is_active():
        ready = sorted(sorter.get_ready())
        order += ready
        sorter.done(*ready)
    return order


def _hash(primitives: Ints, shapes: Ints, edges: Ints, stands_for: NDArray[np.float64]) -> str:
    digest = hashlib.sha256()
    for array in (primitives, shapes, edges):
        digest.update(np.ascontiguousarray(array, dtype="<i8").tobytes())
        digest.update(b"|")
    digest.update(np.ascontiguousarray(stands_for, dtype="<f8").tobytes())
    return digest.hexdigest()[:_HASH_LENGTH]


def levels_of(graph: ArchitectureGraph) -> Ints:
    """Edges of the longest path that ends at each node, shape (N,): nodes of one level are independent."""
    levels = np.zeros(len(graph), dtype=np.int64)
    for source, target in graph.edges:
        levels[target] = max(levels[target], levels[source] + 1)
    return levels


def path_lengths(graph: ArchitectureGraph, longest: int = LONGEST_PATH) -> NDArray[np.uint8]:
    """Edges on the shortest directed path from u to v.

    Returns:
        Shape (N, N), row v, column u; 0 where there is no path of at most `longest` edges.
    """
    far = longest + 1
    lengths = np.full((len(graph), len(graph)), far, dtype=np.uint8)
    sources: list[list[int]] = [[] for _ in range(len(graph))]
    for source, target in graph.edges:
        sources[target].append(source)
    for node, before in enumerate(sources):
        row = lengths[node]
        for source in before:
            np.minimum(row[:node], lengths[source, :node] + 1, out=row[:node])
        row[before] = 1
        np.minimum(row, far, out=row)
    lengths[lengths > longest] = 0
    return lengths
