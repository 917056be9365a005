"""The groups of layers that a precision schedule gives a type of their own, from the operator graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from precision_time.errors import ConfigError
from precision_time.precision.rules import operator_names
from precision_time.workload.blocks import runs_of
from precision_time.workload.graph import PRODUCT_CLASSES, OpClass, OpGraph

ATTENTION, MLP, CONV, HEAD = "attention", "mlp", "conv", "head"
FIRST, LAST, EMBEDDING = "first", "last", "embedding"
"""Kinds of groups, by the words of the table of measured risks."""
_OF_TWO_ACTIVATIONS = frozenset({OpClass.ATTENTION, OpClass.BMM})
_STEM = {False: FIRST, True: EMBEDDING}
"""What stands before the blocks, by whether the model has attention."""
_LEAST_SHARE = 0.002
"""Of the products: groups below it stay in the reference precision, as their type moves no time."""
_CONVOLUTIONS = frozenset({OpClass.CONV, OpClass.GROUPED_CONV, OpClass.DEPTHWISE_CONV})


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerGroup:
    """Layers that get one type."""

    name: str
    kind: str
    """What the table of risks calls it: attention, mlp, conv, first, last, embedding, head."""
    patterns: tuple[str, ...]
    """What names its operators in a policy file."""
    wide: tuple[str, ...]
    """Those of the patterns that narrow types leave as they are: products of two activations."""
    flops_share: float
    """Share of the FLOPs of all products of the model, 0..1."""
    kind_share: float
    """Share of the FLOPs of all groups of its kind, 0..1."""
    blocks: int
    """Of how many blocks of the model it is one; 0 where it is no block of a stack, or several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    name: str
    kind: str
    patterns: tuple[str, ...]
    flops: float
    wide: tuple[str, ...] = ()
    blocks: int = 0


def layer_groups(graph: OpGraph, *, bands: int = 1) -> tuple[LayerGroup, ...]:
    """The groups of a model in execution order.

    A stack of equal blocks gives its first block, its last block, and between them `bands` ranges of blocks,
    attention (its projections included) and the rest apart where it has attention. Other runs of equal
    blocks, what stands before and around them, and the last product are groups of their own.

    Args:
        graph: Of the model.
        bands: Ranges that the blocks between the first and the last are divided into.

    Raises:
        ConfigError: If there is no product to give a type to, or `bands` is below 1.
    """
    if bands < 1:
        raise ConfigError(f"layers={bands} ranges of blocks. The rule: 1 or more. To fix: such as 1 or 4.")
    parts = [*_parts(graph, bands)]
    total = sum(part.flops for part in parts)
    parts = [part for part in parts if part.flops > _LEAST_SHARE * total]
    if not parts:
        raise ConfigError(
            f"{graph.name} has no products that a type could be given to. To fix: another model."
        )
    of_kind: dict[str, float] = {}
    for part in parts:
        of_kind[part.kind] = of_kind.get(part.kind, 0.0) + part.flops
    return tuple(
        LayerGroup(
            name=part.name,
            kind=part.kind,
            patterns=part.patterns,
            wide=part.wide,
            flops_share=part.flops / total,
            kind_share=part.flops / of_kind[part.kind],
            blocks=part.blocks,
        )
        for part in parts
    )


def _parts(graph: OpGraph, bands: int) -> Iterator[_Part]:
    nodes, names = graph.nodes, [each[0] for each in operator_names(graph.nodes)]
    runs = runs_of(nodes)
    total = sum(nodes[run[0]].repeat for run in runs if nodes[run[0]].segment > 0)
    classifier = _classifier(graph)
    around: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        if nodes[index].segment == 0 and index != classifier:
            around.setdefault(name.split(".")[0], []).append(index)
    start = 0
    for run in runs:
        if nodes[run[0]].segment > 0:
            yield from _of_blocks(graph, names, run, start, total, bands)
            start += nodes[run[0]].repeat
        for place in dict.fromkeys(names[index].split(".")[0] for index in run):
            if place in around:
                yield _around(graph, names, place, around.pop(place), classifier)
    if classifier is not None:
        yield _Part(name=HEAD, kind=HEAD, patterns=(names[classifier],), flops=nodes[classifier].flops)


def _classifier(graph: OpGraph) -> int | None:
    """The last product with a weight outside the blocks: a vocabulary projection or a classifier."""
    found = [index for index, node in enumerate(graph.nodes) if node.layer == HEAD]
    found += [
        index
        for index, node in enumerate(graph.nodes)
        if node.op_class is OpClass.GEMM and node.segment == 0 and node.weight_elems > 0.0
    ][-1:]
    return found[0] if found else None


def _around(
    graph: OpGraph, names: Sequence[str], place: str, own: Sequence[int], classifier: int | None
) -> _Part:
    """What stands outside the blocks by one name (`stem`, `end`)."""
    apart = "" if classifier is None else names[classifier].rpartition(".")[0]
    classes = (names[index].rpartition(".")[0] for index in own)
    patterns = [each if each != apart else names[index] for index, each in zip(own, classes, strict=True)]
    attends = any(node.op_class in _OF_TWO_ACTIVATIONS for node in graph.nodes)
    convolves = any(graph.nodes[index].op_class in _CONVOLUTIONS for index in own)
    return _Part(
        name=place,
        kind=_STEM[attends] if place == "stem" else CONV if convolves else MLP,
        patterns=tuple(dict.fromkeys(patterns)),
        flops=sum(graph.nodes[index].flops for index in own),
    )


def _of_blocks(
    graph: OpGraph, names: Sequence[str], run: Sequence[int], start: int, total: int, bands: int
) -> Iterator[_Part]:
    count = graph.nodes[run[0]].repeat
    classes = {graph.nodes[index].op_class for index in run}
    attends = bool(classes & _OF_TWO_ACTIVATIONS)
    flops = sum(graph.nodes[index].flops for index in run) / count
    if not attends:  # a stage of a network of convolutions
        kind = CONV if classes & _CONVOLUTIONS else MLP
        name = _range(start, start + count)
        yield _Part(name=f"blocks {name}", kind=kind, patterns=(f"blocks.{name}",), flops=flops * count)
        return
    first, last = start == 0 and count > 2, start + count == total and count > 2
    if first:
        yield _Part(name="first block", kind=FIRST, patterns=(f"blocks.{start}",), flops=flops, blocks=total)
    products = [index for index in run if graph.nodes[index].op_class in PRODUCT_CLASSES]
    attention = _of_attention(graph, products)
    inner = range(start + first, start + count - last)
    edges = [inner.start + len(inner) * band // bands for band in range(bands + 1)]
    for low, high in zip(edges, edges[1:], strict=False):
        if low == high:
            continue
        where = _range(low, high)
        for kind, some in ((ATTENTION, attention), (MLP, [one for one in products if one not in attention])):
            own = [names[index].replace("{}", where) for index in some]
            yield _Part(
                name=f"{kind} {where}",
                kind=kind,
                patterns=tuple(own),
                wide=tuple(
                    name
                    for index, name in zip(some, own, strict=True)
                    if graph.nodes[index].op_class in _OF_TWO_ACTIVATIONS
                ),
                flops=sum(graph.nodes[index].flops for index in some) / count * (high - low),
            )
    if last:
        end = start + count - 1
        yield _Part(name="last block", kind=LAST, patterns=(f"blocks.{end}",), flops=flops, blocks=total)


def _of_attention(graph: OpGraph, products: Sequence[int]) -> list[int]:
    """Attention, the products before it in its block, and the one behind it: its projections."""
    inside = (graph.nodes[index].op_class in _OF_TWO_ACTIVATIONS for index in products)
    last = max(place for place, is_one in enumerate(inside) if is_one)
    return list(products[: last + 2])


def _range(low: int, high: int) -> str:
    return f"{low}-{high - 1}" if high - low > 1 else f"{low}"
