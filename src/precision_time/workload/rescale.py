"""An image model's graph at another image size: spatial work grows with the area."""

from __future__ import annotations

from dataclasses import replace

from .graph import Node, OpClass, OpGraph

_CONVOLUTIONS = frozenset({OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV})
_GLOBAL_POOL_RATIO = 16.0
"""A reduction that shrinks at least this much per output element leaves no image behind."""


def at_image_size(graph: OpGraph, image_size: int) -> OpGraph:
    """`graph` scaled from its own image size to `image_size`; parameters stay as they are.

    Convolutions, pooling, elementwise work and token-wise products grow with the area; attention over
    all tokens grows with its square, attention inside windows with the number of windows. An estimate:
    exact only where no padding or window rounding changes with the size; `notes` says so.
    """
    if graph.image_size is None or graph.image_size == image_size:
        return graph
    ratio = (image_size / graph.image_size) ** 2
    tokens = {node.m for node in graph.nodes if node.op_class is OpClass.GEMM}
    spatial: list[bool] = []
    nodes = []
    for node in graph.nodes:
        reads_image = any(True if source < 0 else spatial[source] for source in node.inputs)
        writes_image = reads_image and node.scales_with_batch and _stays_image(node)
        spatial.append(writes_image)
        nodes.append(_scaled(node, ratio, reads_image, writes_image, tokens) if reads_image else node)
    note = f"work scaled by area from image size {graph.image_size} to {image_size}"
    return replace(
        graph,
        nodes=tuple(nodes),
        image_size=image_size,
        input_bytes_per_sample=graph.input_bytes_per_sample * ratio,
        notes="; ".join(part for part in (graph.notes, note) if part),
    )


def _stays_image(node: Node) -> bool:
    if node.op_class in _CONVOLUTIONS or node.op_class is OpClass.GEMM:
        return node.m > 1
    if node.op_class in (OpClass.REDUCTION, OpClass.POOL):
        shrink = node.in_elems / node.out_elems if node.out_elems else float("inf")
        return shrink < _GLOBAL_POOL_RATIO
    return True


def _scaled(node: Node, ratio: float, reads: bool, writes: bool, tokens: set[float]) -> Node:
    """One node with its image-sized numbers multiplied by the area ratio."""
    if not node.scales_with_batch:
        return node
    grown = replace(
        node,
        in_elems=node.in_elems * (ratio if reads else 1.0),
        out_elems=node.out_elems * (ratio if writes else 1.0),
        saved_elems=node.saved_elems * (ratio if reads else 1.0),
    )
    if node.op_class is OpClass.ATTENTION and node.m in tokens:
        return replace(grown, m=node.m * ratio, n=node.n * ratio)
    if node.op_class in (OpClass.ATTENTION, OpClass.BMM):
        return replace(grown, count=node.count * ratio)
    return replace(grown, m=node.m * ratio) if node.m > 1 else grown
