"""From operators to nodes of an architecture graph: what stays, what is joined through, what splits in two.

As in GHN-2 the weight and the bias of a layer are nodes of their own, norms are one node, activations are
left out, and sums and concatenations stay only where two or more streams meet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

from precision_time.workload.graph import PRODUCT_CLASSES, Node, OpClass, OpGraph

from .unroll import Unrolled, unroll
from .vocabulary import BIAS, INPUT, Reading, Role, vocabulary

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


_ONE_PARAMETER_NORMS = frozenset({"rms_norm"})
_NORMS = frozenset({"bn", "ln", "group_norm", "rms_norm"})
_POOLS = frozenset({"max_pool", "avg_pool"})
_SQUEEZED = 4.0
"""A factor of a product at least so many times smaller than the result is broadcast: squeeze-excite."""
_WHOLE_TABLE = 0.5
"""A learned term that covers this share of a sample or more is a table of positions, a smaller one a bias."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphNode:
    """One node of an architecture graph, sizes as they are (0: none)."""

    primitive: str
    inputs: tuple[int, ...] = ()
    """Positions of the nodes that feed it."""
    c_out: float = 0.0
    c_in: float = 0.0
    """Input channels per group, as the weight tensor has them."""
    k_h: float = 0.0
    k_w: float = 0.0
    stands_for: float = 1.0
    operator: int = -1


def read_nodes(graph: OpGraph) -> tuple[list[GraphNode], Mapping[str, int]]:
    """The nodes of the architecture graph of `graph`, and unknown operators with how often they occur."""
    occurrences = unroll(graph)
    readings = [_reading(node, graph) for node in graph.nodes]
    widths = _read_widths(graph.nodes)
    parts = written_out(graph, occurrences)
    reader = _Reader(graph, readings, widths)
    for index, occurrence in enumerate(occurrences):
        reader.take(occurrence, parts.get(index))
    unknown = Counter[str]()
    for node, reading in zip(graph.nodes, readings, strict=True):
        if reading.role is Role.UNKNOWN:
            unknown[node.op] += node.repeat
    return reader.nodes, dict(unknown)


class _Reader:
    """Nodes while they are being read, and for each operator which of them its readers see."""

    def __init__(self, graph: OpGraph, readings: Sequence[Reading], widths: Sequence[float]) -> None:
        self.nodes = [GraphNode(primitive=INPUT)]
        self._graph, self._readings, self._widths = graph, readings, widths
        self._seen: list[tuple[int, ...]] = []
        self._sizes: list[float] = []

    def take(self, occurrence: Unrolled, instead: str | None) -> None:
        """Read one occurrence of an operator; `instead` is what it is as a part of something larger."""
        node = self._graph.nodes[occurrence.source]
        feeding = {0} if -1 in occurrence.inputs else set()
        for source in occurrence.inputs:
            if source >= 0:
                feeding.update(self._seen[source])
        sizes = [self._sizes[source] for source in occurrence.inputs if source >= 0]
        self._sizes.append(node.out_elems)
        inputs = tuple(sorted(feeding))
        primitive = instead
        if primitive is None:
            primitive = _primitive_of(node, self._readings[occurrence.source], inputs, sizes)
        if not primitive:
            self._seen.append(inputs)
            return
        made = _made(primitive, node, self._widths[occurrence.source], self._graph)
        for one in made:
            self.nodes.append(
                GraphNode(
                    primitive=one.primitive, inputs=inputs, c_out=one.c_out, c_in=one.c_in, k_h=one.k_h,
                    k_w=one.k_w, stands_for=occurrence.stands_for, operator=occurrence.source,
                )
            )  # fmt: skip
            inputs = (len(self.nodes) - 1,)
        self._seen.append(inputs)


def _reading(node: Node, graph: OpGraph) -> Reading:
    """What `node` is apart from its place; what never sees a sample only makes parameters."""
    reading = vocabulary().reading(node)
    makes_parameters = not node.scales_with_batch and node.op_class not in PRODUCT_CLASSES
    if not makes_parameters or not any(one.scales_with_batch for one in graph.nodes):
        return reading
    if node.weight_elems and node.op_class in (OpClass.EMBEDDING, OpClass.GATHER):
        return Reading(role=Role.PRIMITIVE, primitive="pos_enc")
    return reading if reading.role is Role.UNKNOWN else Reading(role=Role.JOINED)


def _primitive_of(node: Node, reading: Reading, inputs: Sequence[int], sizes: Sequence[float]) -> str:
    """The primitive of an operator in its place; "" where it is joined through."""
    if reading.role is Role.PRIMITIVE:
        return reading.primitive
    if reading.role is Role.MERGE:
        if len(inputs) > 1:
            return reading.primitive
        if reading.primitive == "sum" and node.param_elems:
            whole = node.param_elems >= _WHOLE_TABLE * node.out_elems
            return "pos_enc" if whole else BIAS
        return ""
    if reading.role is Role.PRODUCT:
        if node.param_elems:
            return "scale"
        if len(inputs) > 1:
            squeezed = len(sizes) > 1 and min(sizes) * _SQUEEZED <= node.out_elems
            return "cse" if squeezed else "gate"
    return ""


def _made(primitive: str, node: Node, read_width: float, graph: OpGraph) -> list[GraphNode]:
    """The node of a primitive with its sizes, and the node of its bias if it has one."""
    if node.op_class is OpClass.RNN:
        return [GraphNode(primitive=primitive, c_out=node.n, c_in=node.k, k_h=1, k_w=1)]
    if node.op_class in PRODUCT_CLASSES and primitive not in ("msa", "matmul"):
        return _layer(primitive, node)
    if primitive in _NORMS:
        return [GraphNode(primitive=primitive, c_out=_norm_width(primitive, node))]
    if primitive in _POOLS:
        side_h, side_w = _sides(node.kernel)
        return [GraphNode(primitive=primitive, c_out=1, c_in=1, k_h=side_h, k_w=side_w)]
    if primitive == "embedding" or (primitive == "pos_enc" and node.op_class is OpClass.EMBEDDING):
        width = _table_width(node, read_width, graph)
        rows = node.weight_elems / width if width else 0.0
        return [GraphNode(primitive=primitive, c_out=width, c_in=rows, k_h=1, k_w=1)]
    if primitive in (BIAS, "scale"):
        return [GraphNode(primitive=primitive, c_out=node.param_elems)]
    return [GraphNode(primitive=primitive)]


def _layer(primitive: str, node: Node) -> list[GraphNode]:
    """Weight and bias of a convolution, linear layer or product of experts."""
    area = max(1, node.kernel)
    per_expert = primitive == "expert"
    groups = 1.0 if per_expert else max(1.0, node.count)
    if primitive == "transposed_conv":
        c_out, c_in = node.n / area * groups, node.k
    else:
        c_out, c_in = node.n * groups, node.k / area
    side_h, side_w = _sides(area)
    layer = [GraphNode(primitive=primitive, c_out=c_out, c_in=c_in, k_h=side_h, k_w=side_w)]
    biases = node.weight_elems - node.n * node.k * max(1.0, node.count)
    if node.weight_elems and biases >= c_out * (node.count if per_expert else 1.0):
        layer.append(GraphNode(primitive=BIAS, c_out=c_out))
    return layer


def _norm_width(primitive: str, node: Node) -> float:
    return node.weight_elems / (1.0 if primitive in _ONE_PARAMETER_NORMS else 2.0)


def _sides(area: int) -> tuple[int, int]:
    """Height and width of a window of that area: as square as whole numbers allow, the height smaller.

    >>> _sides(49), _sides(33), _sides(7)
    ((7, 7), (3, 11), (1, 7))
    """
    height = isqrt(max(1, area))
    while area % height:
        height -= 1
    return height, max(1, area) // height


def _read_widths(nodes: Sequence[Node]) -> list[float]:
    """For each operator the width in which the next layers read it; 0 where nothing tells."""
    widths = [0.0] * len(nodes)
    for node in reversed(nodes):
        own = 0.0
        if node.op_class is OpClass.GEMM and node.scales_with_batch:
            own = node.k
        elif node.op_class is OpClass.NORM and node.weight_elems:
            own = _norm_width(vocabulary().reading(node).primitive, node)
        for index in node.inputs:
            if index >= 0 and not widths[index]:
                widths[index] = own
    for index in range(len(nodes) - 1, -1, -1):
        for source in nodes[index].inputs:
            if source >= 0 and not widths[source] and nodes[index].op_class not in PRODUCT_CLASSES:
                widths[source] = widths[index]
    return widths


def _table_width(node: Node, read_width: float, graph: OpGraph) -> float:
    """Columns of a table of embeddings: what reads it says so, or else the tokens of a sample."""
    if read_width and node.weight_elems % read_width == 0:
        return read_width
    if graph.seq_len and node.out_elems % graph.seq_len == 0:
        width = node.out_elems / graph.seq_len
        return width if node.weight_elems % width == 0 else 0.0
    return 0.0
