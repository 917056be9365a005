"""What a model sends and keeps when it is cut over devices: sizes read off its operator graph."""

from __future__ import annotations

import numpy as np

from ..arrays import Number
from ..cache import derived
from ..parallel.shape import model_shape
from ..records import dataclass
from ..workload.graph import EXPERT_PRODUCT, PRODUCT_CLASSES, Node, OpClass, OpGraph


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformerTraffic:
    """Sizes per sample of a layered model; zeros for one that is never cut."""

    num_layers: Number = 1.0
    """Repeated layers: units of sharding, of checkpointing and of pipeline stages."""
    boundary_elems: Number = 0.0
    """Activation elements between two layers (sequence x hidden)."""
    kv_elems: Number = 0.0
    """Key and value elements of one layer (2 x sequence x kv heads x head size)."""
    routed_elems: Number = 0.0
    """Activation elements that one expert layer sends to its experts (boundary x experts per token)."""
    moe_layers: Number = 0.0
    """Layers with experts."""
    output_elems: Number = 0.0
    """Output of the last product, which DataParallel gathers."""
    input_bytes: Number = 0.0
    """Bytes that the host hands over, which DataParallel scatters."""

    @property
    def expert_layer_share(self) -> Number:
        """Layers with experts, of all layers."""
        return self.moe_layers / np.maximum(self.num_layers, 1.0)


@derived
def traffic_of(graph: OpGraph) -> TransformerTraffic:
    """Sizes of what a graph sends when it is cut, computed once per graph.

    Returns:
        Sizes per sample.

    Assumes: the last operator of a repeated block is what the next block reads; a graph whose layers
    are written out has as many layers as attention operators, or as operators with parameters.
    """
    nodes = graph.nodes
    blocks = {node.segment: node for node in nodes if node.repeat > 1 and node.scales_with_batch}
    attention = [node for node in nodes if node.op_class is OpClass.ATTENTION]
    weighted = [node for node in nodes if node.param_elems > 0 and node.op_class in PRODUCT_CLASSES]
    experts = [node for node in nodes if node.op == EXPERT_PRODUCT]
    products = [node for node in nodes if node.op_class in PRODUCT_CLASSES]
    num_layers = model_shape(graph).num_layers or sum(node.repeat for node in blocks.values())
    num_layers = num_layers or len(attention) or len(weighted) or 1
    moe_layers = {node.segment: node.repeat for node in experts}
    routed = experts[0].m * experts[0].k * experts[0].count if experts else 0.0
    return TransformerTraffic(
        num_layers=float(num_layers),
        boundary_elems=_boundary_elems(list(blocks.values()), attention, weighted),
        kv_elems=max((_kv_elems(node, nodes) for node in attention), default=0.0),
        routed_elems=routed,
        moe_layers=float(sum(moe_layers.values())),
        output_elems=products[-1].out_elems if products else 0.0,
        input_bytes=graph.input_bytes_per_sample,
    )


def _boundary_elems(ends: list[Node], attention: list[Node], weighted: list[Node]) -> float:
    """Output of the most repeated block, else of attention, else of the median operator with weights."""
    if ends:
        return max(ends, key=lambda node: node.repeat).out_elems
    if attention:
        return attention[0].out_elems
    return float(np.median([node.out_elems for node in weighted])) if weighted else 0.0


def _kv_elems(node: Node, nodes: tuple[Node, ...]) -> float:
    """Elements of key and value: what attention's value input holds, twice, at most one pair per head."""
    full = 2.0 * node.n * node.k * node.count
    if len(node.inputs) >= 3 and node.inputs[2] >= 0:
        return min(2.0 * nodes[node.inputs[2]].out_elems, full)
    return full
