"""What a model keeps and holds, by part: before its layers, in one layer, after them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ...precision.autocast import autocast_class
from ...precision.policy import PrecisionPolicy
from ...workload.graph import EXPERT_PRODUCT, PRODUCT_CLASSES, Node, OpClass, OpGraph
from ...workload.packing import UNPACKING
from ..traffic import traffic_of
from .activations import FP32_BYTES, LOSS, SavedBytes, SavedReader


@dataclass(frozen=True, kw_only=True, slots=True)
class Component:
    """Parameters of a part of the model, and what it keeps where nothing is checkpointed."""

    dense: float = 0.0
    """Trained parameter elements outside experts."""
    experts: float = 0.0
    """Trained parameter elements of experts."""
    frozen: float = 0.0
    packed: float = 0.0
    """Frozen elements that are held in four bits."""
    unpacked: float = 0.0
    """Elements of the largest weight that is unpacked at a time."""
    saved: SavedBytes = SavedBytes()

    @property
    def trained(self) -> float:
        """Trained parameter elements."""
        return self.dense + self.experts


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelComponents:
    """A model as memory sees it. Activation sizes are bytes per sample."""

    num_layers: float
    before: Component
    """Embeddings, stem."""
    layer: Component
    """The mean layer."""
    after: Component
    """Final norm and head, without the logits."""
    tied: float
    """Elements of a table that the head shares with the embedding: a last stage holds its own copy."""
    boundary: float
    """Between two layers, what full checkpointing keeps of a layer."""
    products: SavedBytes
    """What a layer keeps where every second product and attention is kept, the rest recomputed."""
    without_scores: SavedBytes
    """What a layer keeps where attention scores alone are recomputed."""
    working: float
    """Gradients by output and input of an operator, beyond what the backward pass freed before it."""
    logits: float
    """Elements that enter the loss."""


@lru_cache(maxsize=512)
def model_components(
    graph: OpGraph, policy: PrecisionPolicy, fused_attention: bool, compiled: bool, fp8_saves_fp8: bool
) -> ModelComponents:
    """Parts of a model under a precision policy.

    Args:
        graph: Forward pass of one sample.
        policy: Types of activations.
        fused_attention: Attention does not write its scores to memory.
        compiled: A compiler recomputes pointwise operators rather than keeping their outputs.
        fp8_saves_fp8: Linear layers keep their input in the type they multiply in.

    Returns:
        Parameters and kept bytes by part.

    Assumes: layers are alike (their mean is used); a graph without repeated blocks has the layers that
    `traffic_of` counts.
    """
    nodes = graph.nodes
    traffic = traffic_of(graph)
    first, last = _span_of_layers(nodes)
    layers = max(float(traffic.num_layers), 1.0)
    split = _split_by_tensor_parallelism(nodes, float(traffic.boundary_elems))
    reader = SavedReader(
        nodes=nodes,
        split=split,
        policy=policy,
        fused_attention=fused_attention,
        compiled=compiled,
        fp8_saves_fp8=fp8_saves_fp8,
    )
    body = range(first, last)
    boundary = float(traffic.boundary_elems) * _residual_bytes(policy, nodes, body)
    products = reader.products(body, boundary, layers)
    middle = reader.saved(body, 1.0 / layers)
    frozen_scale = _frozen_scale(graph)
    return ModelComponents(
        num_layers=layers,
        before=_component(nodes, range(first), 1.0, frozen_scale, reader.saved(range(first), 1.0)),
        layer=_component(nodes, body, 1.0 / layers, frozen_scale, middle),
        after=_component(
            nodes, range(last, len(nodes)), 1.0, frozen_scale, reader.saved(range(last, len(nodes)), 1.0)
        ),
        tied=_tied_elems(nodes, last),
        boundary=boundary,
        products=products if products.total < middle.total else middle,
        without_scores=reader.saved(body, 1.0 / layers, scores=False),
        working=reader.working(body),
        logits=_logits(nodes, last),
    )


def _span_of_layers(nodes: Sequence[Node]) -> tuple[int, int]:
    """Where the layers begin and end: repeated blocks, else all but leading embeddings and the loss."""
    repeated = [index for index, node in enumerate(nodes) if node.repeat > 1]
    if repeated:
        return repeated[0], repeated[-1] + 1
    embeddings = [index for index, node in enumerate(nodes) if node.op_class is OpClass.EMBEDDING]
    weighted = [
        i for i, node in enumerate(nodes) if node.weight_elems > 0 and node.op_class in PRODUCT_CLASSES
    ]
    loss = [index for index, node in enumerate(nodes) if node.op == LOSS]
    first = embeddings[-1] + 1 if embeddings and (not weighted or embeddings[-1] < weighted[0]) else 0
    last = weighted[-1] if weighted and loss and loss[-1] > weighted[-1] else len(nodes)
    return first, max(first, last)


def _split_by_tensor_parallelism(nodes: Sequence[Node], boundary_elems: float) -> list[bool]:
    """Whether tensor parallelism splits the output of each node.

    A product of whole activations is split by columns; one of split activations as wide as the residual
    stream is a row-parallel product whose result is summed and whole.
    """
    split: list[bool] = []
    for node in nodes:
        given = any(split[source] for source in node.inputs if source >= 0)
        if node.op_class in PRODUCT_CLASSES and node.weight_elems > 0:
            given = not (given and node.out_elems == boundary_elems)
        elif node.op_class is OpClass.ATTENTION:
            given = True
        elif node.out_elems == boundary_elems and any(
            source >= 0 and not split[source] and nodes[source].out_elems == boundary_elems
            for source in node.inputs
        ):
            given = False
        split.append(given)
    return split


def _residual_bytes(policy: PrecisionPolicy, nodes: Sequence[Node], body: range) -> float:
    """Width of the residual stream: fp32 under autocast, where norms and embeddings give fp32."""
    normed = any(
        nodes[i].op_class is OpClass.NORM and autocast_class(f"aten::{nodes[i].op}") == "fp32" for i in body
    )
    return FP32_BYTES if policy.autocast and normed else policy.activation.num_bytes


def _frozen_scale(graph: OpGraph) -> float:
    """Frozen elements of the graph over those that its nodes read: tables read twice count once."""
    read = sum(_frozen(node) * node.repeat for node in graph.nodes)
    return (graph.params - graph.trainable_params) / read if read else 0.0


def _frozen(node: Node) -> float:
    return node.weight_elems if node.weight_elems > 0 and not node.weight_grad else 0.0


def _component(
    nodes: Sequence[Node], span: range, share: float, frozen_scale: float, saved: SavedBytes
) -> Component:
    dense = experts = frozen = packed = unpacked = 0.0
    for index in span:
        node = nodes[index]
        times = node.repeat * share
        frozen += _frozen(node) * times * frozen_scale
        if node.op == UNPACKING:
            packed += node.out_elems * times
            unpacked = max(unpacked, node.out_elems)
        if node.op == EXPERT_PRODUCT:
            experts += node.param_elems * times
        else:
            dense += node.param_elems * times
    return Component(
        dense=dense, experts=experts, frozen=frozen, packed=packed, unpacked=unpacked, saved=saved
    )


def _tied_elems(nodes: Sequence[Node], last: int) -> float:
    """Weights of the head's products that were counted at the embedding."""
    tied = [
        node.weight_elems - node.param_elems
        for node in nodes[last:]
        if node.op_class in PRODUCT_CLASSES and node.weight_grad
    ]
    return max(tied, default=0.0)


def _logits(nodes: Sequence[Node], last: int) -> float:
    """Elements that enter the softmax of the loss, or that the last product puts out."""
    losses = [node.out_elems for node in nodes[last:] if node.op == LOSS]
    if losses:
        return sum(losses)
    outputs = [node.out_elems for node in nodes[last:] if node.op_class in PRODUCT_CLASSES]
    return outputs[-1] if outputs else 0.0
