"""Layers written out in small operators, read as the one node that a fused kernel is.

Attention is product, softmax, product; a root-mean-square norm is square, mean, inverse root, product, scale.
The same model must have one architecture graph whether its code calls the fused operator or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ...workload.graph import Node, OpClass, OpGraph
from .unroll import Unrolled

_ROOTS = frozenset({"rsqrt", "sqrt"})
_MEANS = frozenset({"mean"})
_PRODUCTS = frozenset({"mul", "div"})
Indices = frozenset[int]
_NOTHING: Indices = frozenset()


def written_out(graph: OpGraph, occurrences: Sequence[Unrolled]) -> dict[int, str]:
    """Occurrences that are parts of a larger layer: the primitive for its last operator, "" for others."""
    nodes = [graph.nodes[occurrence.source] for occurrence in occurrences]
    before = [[i for i in occurrence.inputs if i >= 0] for occurrence in occurrences]
    return _norms(nodes, before) | _attention(nodes, before)


def _attention(nodes: Sequence[Node], before: Sequence[Sequence[int]]) -> dict[int, str]:
    """Softmax over a product of two activations, and the product that reads these weights.

    In between may be element-wise operators (masks and learned terms added) and copies.
    """
    found: dict[int, str] = {}
    scores: list[Indices] = []
    weights: list[Indices] = []
    for index, (node, sources) in enumerate(zip(nodes, before, strict=True)):
        score, weight = _union(scores, sources), _union(weights, sources)
        if node.op_class is OpClass.BMM:
            if weight:
                found.update(dict.fromkeys(weight, ""))
                found[index] = "msa"
            score, weight = frozenset({index}), _NOTHING
        elif node.op_class is OpClass.SOFTMAX:
            score, weight = _NOTHING, score | {index} if score else _NOTHING
        elif node.op_class in (OpClass.ELEMENTWISE, OpClass.MOVE):
            score = score | {index} if score else _NOTHING
        else:
            score, weight = _NOTHING, _NOTHING
        scores.append(score)
        weights.append(weight)
    return found


def _norms(nodes: Sequence[Node], before: Sequence[Sequence[int]]) -> dict[int, str]:
    """A product with the inverse root of a mean, and the learned scale that follows.

    A norm without a learned scale is joined through.
    """
    found: dict[int, str] = {}
    means: list[Indices] = []
    roots: list[Indices] = []
    normed: list[bool] = []
    for index, (node, sources) in enumerate(zip(nodes, before, strict=True)):
        mean, root = _union(means, sources), _union(roots, sources)
        is_normed = False
        if node.op in _MEANS:
            mean, root = frozenset({index}), _NOTHING
        elif node.op in _ROOTS and mean:
            mean, root = _NOTHING, mean | {index}
        elif node.op in _PRODUCTS and root and len(sources) > 1:
            found.update(dict.fromkeys((*root, index), ""))
            mean, root, is_normed = _NOTHING, _NOTHING, True
        elif node.op_class is OpClass.ELEMENTWISE and len(sources) == 1:
            if node.op in _PRODUCTS and node.param_elems and normed[sources[0]]:
                found[index] = "rms_norm"
        elif node.op_class is OpClass.MOVE and len(sources) == 1:
            is_normed = normed[sources[0]]
        else:
            mean, root = _NOTHING, _NOTHING
        means.append(mean)
        roots.append(root)
        normed.append(is_normed)
    return found


def _union(tags: Sequence[Indices], sources: Iterable[int]) -> Indices:
    return _NOTHING.union(*(tags[source] for source in sources))
