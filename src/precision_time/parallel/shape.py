"""Counts of a model that degrees of parallelism must divide, read off its operator graph."""

from __future__ import annotations

import math

from ..cache import derived
from ..records import dataclass
from ..workload.graph import EXPERT_PRODUCT, Node, OpClass, OpGraph

_QUERY_AND_PAIR = 2
"""Inputs of attention that reads keys and values, or others, from one producer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """What can be cut into equal parts; None (experts: 0) where the model has no such thing."""

    num_layers: int | None = None
    """Repeated layers: what pipeline stages share out."""
    heads: int | None = None
    """Attention heads, of every layer: their greatest common divisor where layers differ."""
    kv_heads: int | None = None
    """Heads of keys and values; fewer than `heads` under grouped queries."""
    num_experts: int = 0
    seq_len: int | None = None
    """Tokens per sample."""


@derived
def model_shape(graph: OpGraph) -> ModelShape:
    """The counts of a graph.

    Assumes: identical layers stand once with their number of repeats, else every layer has one attention
    operator, or products of as many pairs as heads around a softmax; a model without attention and without
    sequences has no layers to speak of.
    """
    attention = [node for node in graph.nodes if node.op_class is OpClass.ATTENTION]
    heads = math.gcd(*(round(node.count) for node in attention or _written_out(graph))) or None
    kv_heads = math.gcd(*(_kv_heads(node, graph.nodes) for node in attention)) or None
    experts = [round(node.count) for node in graph.nodes if node.op == EXPERT_PRODUCT]
    return ModelShape(
        num_layers=_num_layers(graph, attention) or None,
        heads=heads,
        kv_heads=min(kv_heads, heads) if kv_heads and heads else heads,
        num_experts=max(experts, default=0),
        seq_len=graph.seq_len,
    )


def _written_out(graph: OpGraph) -> list[Node]:
    """Products of queries, keys and values in layers that write attention out: with relative positions."""
    weighed = {node.segment for node in graph.nodes if node.op_class is OpClass.SOFTMAX}
    products = (node for node in graph.nodes if node.op_class is OpClass.BMM and node.segment in weighed)
    return [] if graph.seq_len is None else [node for node in products if round(node.count) > 1]


def _num_layers(graph: OpGraph, attention: list[Node]) -> int:
    """Repeated blocks, and layers that stand once before them (the dense one of some expert models)."""
    if not attention and graph.seq_len is None:
        return 0
    blocks: dict[int, int] = {}
    leading = 0
    for node in graph.nodes:
        if node.repeat > 1 and node.scales_with_batch:
            blocks[node.segment] = node.repeat
        elif not blocks and node.op_class is OpClass.ATTENTION and graph.seq_len is not None:
            leading += 1
    return leading + sum(blocks.values()) if blocks else len(attention)


def _kv_heads(node: Node, nodes: tuple[Node, ...]) -> int:
    """Heads in what attention's value input holds; all of them where that is not known.

    Keys are counted by the rows of the producer, as a sliding window shortens `n`. A producer stands once
    among the inputs: a fused projection holds queries, keys and values; what one of two holds is not known.
    """
    heads = round(node.count)
    if not node.inputs or node.inputs[-1] < 0 or not node.k:
        return heads
    held = nodes[node.inputs[-1]].out_elems / (node.m * node.k)
    if len(node.inputs) == _QUERY_AND_PAIR:
        return heads
    if held > heads:
        held = (held - heads) / 2
    return round(held) if 1.0 <= held < heads and heads % round(held) == 0 else heads
