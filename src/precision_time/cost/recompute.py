"""Operators that selective checkpointing runs again, as Megatron-LM names them (--recompute-modules)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..workload.graph import EXPERT_PRODUCT, Node, OpClass, OpGraph

_POINTWISE = frozenset({OpClass.ELEMENTWISE, OpClass.MOVE})


def recomputed_nodes(graph: OpGraph, names: tuple[str, ...]) -> frozenset[int]:
    """Nodes of the named operators; those outside layers stand once and are kept."""
    return frozenset(index for name in names for index in RECOMPUTED[name](graph.nodes))


def _attention(nodes: tuple[Node, ...]) -> Iterable[int]:
    """Scores, their softmax and what they weigh; a softmax right behind a layer's product is a router's."""
    for index, node in enumerate(nodes):
        routes = any(nodes[source].op_class is OpClass.GEMM for source in node.inputs if source >= 0)
        scores = node.op_class in {OpClass.ATTENTION, OpClass.BMM}
        if node.segment and (scores or (node.op_class is OpClass.SOFTMAX and not routes)):
            yield index


def _norms(nodes: tuple[Node, ...]) -> Iterable[int]:
    return (index for index, node in enumerate(nodes) if node.op_class is OpClass.NORM and node.segment)


def _expert_activations(nodes: tuple[Node, ...]) -> Iterable[int]:
    """Pointwise operators between the products of experts."""
    waiting = [source for node in nodes if node.op == EXPERT_PRODUCT for source in node.inputs]
    found: set[int] = set()
    while waiting:
        index = waiting.pop()
        if index >= 0 and index not in found and nodes[index].op_class is OpClass.ELEMENTWISE:
            found.add(index)
            waiting += nodes[index].inputs
    return found


def _latent_products(nodes: tuple[Node, ...]) -> Iterable[int]:
    """Products of normed latents (multi-head latent attention), and what rearranges them for attention."""
    found: set[int] = set()
    for index, node in enumerate(nodes):
        sources = [nodes[source] for source in node.inputs if source >= 0]
        if node.op_class is OpClass.GEMM and node.segment:
            normed = [source for source in sources if source.op_class is OpClass.NORM]
            latent = any(
                nodes[below].op_class is OpClass.GEMM
                for source in normed
                for below in source.inputs
                if below >= 0
            )
            if latent:
                found.add(index)
        elif node.op_class in _POINTWISE and found.intersection(node.inputs):
            found.add(index)
    return found


RECOMPUTED: Mapping[str, Callable[[tuple[Node, ...]], Iterable[int]]] = {
    "core_attn": _attention,
    "layernorm": _norms,
    "moe_act": _expert_activations,
    "mla_up_proj": _latent_products,
}
"""What finds the nodes of each operator that can be named."""


def recomputed_shares(graph: OpGraph, names: tuple[str, ...]) -> Mapping[OpClass, float]:
    """Of each class of operators the share of its forward work (FLOPs, else elements) that runs again."""
    again = recomputed_nodes(graph, names)
    work: dict[OpClass, list[float]] = {}
    for index, node in enumerate(graph.nodes):
        own = node.flops or (node.in_elems + node.out_elems) * node.repeat
        sums = work.setdefault(node.op_class, [0.0, 0.0])
        sums[0] += own * (index in again)
        sums[1] += own
    return {op_class: part / whole for op_class, (part, whole) in work.items() if part}
