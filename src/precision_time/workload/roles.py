"""What the linear layers of a graph are for: queries, keys, values, outputs, feed-forward blocks, heads.

Read off the edges of the graph, so that parametric models, captured ones and models of a user are alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from ..cache import derived
from .graph import EXPERT_PRODUCT, PRODUCT_CLASSES, Node, OpClass, OpGraph

ROLES = ("q", "k", "v", "o", "gate", "up", "down")
OTHER = "other"
"""The role of a linear layer that is none of `ROLES`: poolers, projections between parts."""
_ACTIVATIONS = frozenset(
    {
        "gelu",
        "silu",
        "silu_",
        "relu",
        "relu_",
        "pow",
        "tanh",
        "sigmoid",
        "hardswish",
        "leaky_relu",
        "elu",
        "mul",
    }
)
_CHOICE = 2.0
_ADDS = frozenset({"add", "add_"})


def is_linear(node: Node) -> bool:
    """Whether `node` is one linear layer: a single dense product with a parameter."""
    return (
        node.op_class is OpClass.GEMM
        and node.op != EXPERT_PRODUCT
        and node.weight_elems > 0.0
        and node.count == 1.0
        and node.scales_with_batch
    )


def _weighted(node: Node) -> bool:
    return node.op_class in PRODUCT_CLASSES and node.weight_elems > 0.0


def consumers_of(nodes: Sequence[Node]) -> list[list[int]]:
    """Who reads each node, in order."""
    readers: list[list[int]] = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        for source in node.inputs:
            if source >= 0:
                readers[source].append(index)
    return readers


@derived
def heads_of(graph: OpGraph) -> frozenset[int]:
    """Products behind which no other product with a weight stands: what a task adds to a network."""
    nodes, readers = graph.nodes, consumers_of(graph.nodes)
    named = {index for index, node in enumerate(nodes) if node.layer == "head"}
    leads_on = [False] * len(nodes)
    for index in reversed(range(len(nodes))):
        leads_on[index] = any(_weighted(nodes[r]) or leads_on[r] for r in readers[index])
    last = {i for i, node in enumerate(nodes) if _weighted(node) and not leads_on[i] and not node.repeat > 1}
    return frozenset(named | last)


def is_vocabulary_head(graph: OpGraph, index: int) -> bool:
    """Whether a head has the shape of an embedding table: that of a language model.

    Two columns are a choice of two, though segment tables have two rows as well.
    """
    node = graph.nodes[index]
    tables = {table.weight_elems for table in graph.nodes if table.op_class is OpClass.EMBEDDING}
    return node.n > _CHOICE and node.n * node.k in tables


@derived
def roles_of(graph: OpGraph) -> Mapping[int, Mapping[str, float]]:
    """Columns of each linear layer by what they are for; fused projections have several parts.

    Of equal layers in a row that stand once, each part has all columns.

    Heads, experts and their routers have no role: nobody adapts them.
    """
    nodes, readers = graph.nodes, consumers_of(graph.nodes)
    heads = heads_of(graph)
    linear = {
        index
        for index, node in enumerate(nodes)
        if is_linear(node) and index not in heads and not _routes(index, nodes, readers)
    }
    found: dict[int, dict[str, float]] = {}
    for index, node in enumerate(nodes):
        if node.op_class is OpClass.ATTENTION:
            _attention_roles(index, nodes, readers, linear, found)
        elif node.op_class is OpClass.SOFTMAX:
            _written_out_roles(index, nodes, readers, linear, found)
    for index in sorted(linear - found.keys()):
        inner = [i for i in _sources(index, nodes, through_act=True) if i in linear and i not in found]
        if inner:
            found[index] = {"down": nodes[index].n}
    downs = {index for index, parts in found.items() if "down" in parts}
    for index in sorted(downs):
        inner = [i for i in _sources(index, nodes, through_act=True) if i in linear and i not in found]
        for place, i in enumerate(inner):
            gated = len(inner) == 2 and place == 0  # noqa: PLR2004
            found[i] = {"gate" if gated else "up": nodes[i].n}
    for index in linear - found.keys():
        found[index] = {OTHER: nodes[index].n}
    return found


def _routes(index: int, nodes: Sequence[Node], readers: list[list[int]]) -> bool:
    """Whether a product scores experts (a top-k follows its softmax), or gates with one column."""
    behind = [r for first in readers[index] for r in (first, *readers[first])]
    return nodes[index].n == 1.0 or any(nodes[r].op == "topk" for r in behind)


def _sources(index: int, nodes: Sequence[Node], *, through_act: bool = False) -> list[int]:
    """Products with a weight whose output reaches `index` through no other one, in order of the graph.

    Args:
        index: Where the search begins.
        nodes: Of the graph.
        through_act: Follow pointwise operators and norms only, and give what passes an activation.
    """
    found: set[int] = set()
    seen: set[tuple[int, bool]] = set()
    open_ends = [(source, False) for source in nodes[index].inputs]
    while open_ends:
        at, active = open_ends.pop()
        if at < 0 or (at, active) in seen:
            continue
        seen.add((at, active))
        node = nodes[at]
        if _weighted(node):
            if active or not through_act:
                found.add(at)
            continue
        if node.op_class in (OpClass.ATTENTION, OpClass.BMM, OpClass.EMBEDDING):
            continue
        if node.op in _ADDS and len(node.inputs) > 1 and not _same_product(node, nodes):
            continue
        if through_act and node.op_class not in (OpClass.ELEMENTWISE, OpClass.NORM, OpClass.MOVE):
            continue
        now = active or node.op in _ACTIVATIONS
        open_ends.extend((source, now) for source in node.inputs)
    return sorted(found)


def _same_product(node: Node, nodes: Sequence[Node]) -> bool:
    """Whether a sum is of pieces of one tensor, such as rotary positions, and not a residual one."""
    return all(
        source >= 0 and nodes[source].op_class is OpClass.ELEMENTWISE and nodes[source].op in ("mul", "neg")
        for source in node.inputs
    )


def _attention_roles(
    index: int,
    nodes: Sequence[Node],
    readers: list[list[int]],
    linear: set[int],
    found: dict[int, dict[str, float]],
) -> None:
    """Roles around one fused attention: its inputs are queries, keys and values, or what holds them."""
    inputs = nodes[index].inputs
    words = {1: ("qkv",), 2: ("q", "kv")}.get(len(inputs), ("q", "k", "v"))
    reached: dict[int, str] = {}
    for word, source in zip(words, inputs, strict=False):
        ends = [source] if source >= 0 and _weighted(nodes[source]) else _reached(source, nodes)
        for product in ends:
            if product in linear and product not in found:
                reached[product] = reached.get(product, "") + "".join(
                    part for part in word if part not in reached.get(product, "")
                )
    query_width = nodes[index].out_elems / max(nodes[index].m, 1.0)
    for product, parts in reached.items():
        folded = nodes[product].repeat == len(parts) * nodes[index].repeat > nodes[index].repeat
        alike = dict.fromkeys(parts, nodes[product].n)
        found[product] = alike if folded else _parts(nodes[product].n, parts, query_width)
    _output_role(index, nodes, readers, linear, found)


def _written_out_roles(
    index: int,
    nodes: Sequence[Node],
    readers: list[list[int]],
    linear: set[int],
    found: dict[int, dict[str, float]],
) -> None:
    """Roles around attention that is written out: products of activations before and after the softmax."""
    scores = _back_to(index, nodes, OpClass.BMM)
    mixed = _on_to(index, nodes, readers, OpClass.BMM)
    if scores is None or mixed is None:
        return
    reached: dict[int, str] = {}
    sides = [(word, source) for word, source in zip("qk", nodes[scores].inputs, strict=False)]
    sides += [("v", source) for source in nodes[mixed].inputs[1:]]
    for word, source in sides:
        ends = [source] if source >= 0 and _weighted(nodes[source]) else _reached(source, nodes)
        for product in ends:
            if product in linear and product not in found:
                reached[product] = reached.get(product, "") + word
    query_width = nodes[mixed].out_elems / max(nodes[scores].m * nodes[scores].count, 1.0)
    for product, parts in reached.items():
        width = nodes[product].n / 3.0 if len(parts) == 3 else query_width  # noqa: PLR2004
        found[product] = _parts(nodes[product].n, parts, width)
    _output_role(mixed, nodes, readers, linear, found)


def _reached(source: int, nodes: Sequence[Node]) -> list[int]:
    """Products that a tensor comes from, without those that only feed another one of them."""
    if source < 0:
        return []
    stub = Node(op="", op_class=OpClass.MOVE, inputs=(source,))
    ends = _sources(len(nodes), [*nodes, stub])
    feeding = {i for end in ends for i in _sources(end, nodes)}
    return [end for end in ends if end not in feeding]


def _parts(columns: float, parts: str, query_width: float) -> dict[str, float]:
    """Columns of a possibly fused projection by part; keys and values share what queries leave."""
    if len(parts) == 1:
        return {parts: columns}
    if "q" not in parts:
        return {part: columns / len(parts) for part in parts}
    others = [part for part in parts if part != "q"]
    left = (columns - query_width) / len(others)
    if left <= 0.0:
        return {part: columns / len(parts) for part in parts}
    return {part: query_width if part == "q" else left for part in parts}


def _output_role(
    index: int,
    nodes: Sequence[Node],
    readers: list[list[int]],
    linear: set[int],
    found: dict[int, dict[str, float]],
) -> None:
    for reader in _products_behind(index, nodes, readers):
        if reader in linear and reader not in found:
            found[reader] = {"o": nodes[reader].n}


def _products_behind(index: int, nodes: Sequence[Node], readers: list[list[int]]) -> Iterator[int]:
    """The first products with a weight behind a node, short of residual sums and norms."""
    open_ends, seen = list(readers[index]), set()
    while open_ends:
        at = open_ends.pop()
        if at in seen:
            continue
        seen.add(at)
        if _weighted(nodes[at]):
            yield at
        elif nodes[at].op_class in (OpClass.MOVE, OpClass.ELEMENTWISE) and nodes[at].op not in _ADDS:
            open_ends.extend(readers[at])


def _back_to(index: int, nodes: Sequence[Node], wanted: OpClass) -> int | None:
    return _first(index, wanted, nodes, lambda at: nodes[at].inputs)


def _on_to(index: int, nodes: Sequence[Node], readers: list[list[int]], wanted: OpClass) -> int | None:
    return _first(index, wanted, nodes, lambda at: readers[at])


def _first(
    index: int, wanted: OpClass, nodes: Sequence[Node], step: Callable[[int], Sequence[int]]
) -> int | None:
    """The first node of a class that pointwise operators and copies lead to."""
    open_ends, seen = [index], {index}
    while open_ends:
        for other in step(open_ends.pop(0)):
            if other < 0 or other in seen:
                continue
            seen.add(other)
            if nodes[other].op_class is wanted:
                return other
            if nodes[other].op_class in (OpClass.ELEMENTWISE, OpClass.MOVE):
                open_ends.append(other)
    return None
