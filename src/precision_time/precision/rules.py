"""A policy's own rules: which operators it treats otherwise than autocast does, and which layers.

Operators have names, so that patterns can choose layers: `blocks.3.gemm.linear_2` is the second linear
product of the fourth block; `stem` and `end` stand before and after the blocks, `head` is the vocabulary
projection. Where the graph was captured from modules, their paths are names too. `explain` lists them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from ..arrays import Bools, Ints
from ..cache import derived
from ..workload.blocks import runs_of, split_runs
from ..workload.graph import Node, OpGraph
from .autocast import autocast_class
from .nodes import NodeColumns, columns_of, node_columns
from .policy import DType, LayerRule, PrecisionPolicy

FOLLOWS, LOWER, WIDE = 0, 1, 2
"""How an operator is treated: it runs in the type of its inputs, in the low type, or in fp32."""
_CODES = {"lower": LOWER, "fp32": WIDE, "promote": FOLLOWS, "same": FOLLOWS}
_MOST_LAYERS = 10_000
_RANGE = re.compile(r"(\d{1,5})-(\d{1,5})")


def operator_names(nodes: Sequence[Node]) -> list[tuple[str, ...]]:
    """The names of each operator, those of a repeated block with `{}` for the number of the layer."""
    found: list[tuple[str, ...]] = []
    blocks_seen = False
    for run in runs_of(nodes):
        is_block = nodes[run[0]].segment > 0
        blocks_seen |= is_block
        counted: Counter[tuple[str, str]] = Counter()
        for index in run:
            node = nodes[index]
            part = "blocks.{}" if is_block else node.layer or ("end" if blocks_seen else "stem")
            kind = f"{node.op_class.value}.{node.op.strip('_')}"
            counted[part, kind] += 1
            number = f"_{counted[part, kind]}" if counted[part, kind] > 1 else ""
            names = [f"{part}.{kind}{number}"]
            if is_block and node.layer:
                names.append(f"{node.layer.replace('{', '').replace('}', '')}.{kind}")
            found.append(tuple(names))
    return found


def _compiled(pattern: str) -> re.Pattern[str]:
    """What a pattern matches: `*` is anything, `2-5` a range of layers; what it names holds all below it."""
    first, *rest = (_literal(part) for part in re.split(r"\*+", pattern))
    last = f".*{rest.pop()}" if rest else ""
    # Each part between stars is taken where it comes first, for good: no pattern takes long.
    between = "".join(f"(?=(?P<g{number}>.*?{part}))(?P=g{number})" for number, part in enumerate(rest))
    return re.compile(first + between + last + r"(?:\..*)?", re.DOTALL)


def _literal(part: str) -> str:
    """A part of a pattern without stars as a regular expression."""
    found = []
    for word in re.split(r"(\?|\d{1,5}-\d{1,5})", part):
        numbers = _RANGE.fullmatch(word)
        if numbers:
            low, high = int(numbers[1]), min(int(numbers[2]), _MOST_LAYERS)
            found.append(f"(?:{'|'.join(map(str, range(high, low - 1, -1))) or '(?!)'})")
        else:
            found.append("[^.]" if word == "?" else re.escape(word))
    return "".join(found)


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern names an operator or something that it is part of.

    >>> matches("blocks.0-3", "blocks.2.gemm.linear"), matches("*.attention.*", "blocks.2.gemm.linear")
    (True, False)
    """
    return _compiled(pattern).fullmatch(name) is not None


def rules_of(graph: OpGraph, layers: tuple[LayerRule, ...]) -> list[list[tuple[int, ...]]]:
    """For each of `runs_of`, for each of its layers: the rule of each operator, -1 where none holds."""
    return [list(rules) for rules in _rules_of(graph, tuple(rule.pattern for rule in layers))]


@derived
def _rules_of(graph: OpGraph, patterns: tuple[str, ...]) -> tuple[tuple[tuple[int, ...], ...], ...]:
    names = operator_names(graph.nodes)
    found: list[tuple[tuple[int, ...], ...]] = []
    layer = 0
    for run in runs_of(graph.nodes):
        count = graph.nodes[run[0]].repeat if graph.nodes[run[0]].segment else 1
        found.append(
            tuple(
                tuple(_rule(names[index], layer + number, patterns) for index in run)
                for number in range(count)
            )
        )
        layer += count if graph.nodes[run[0]].segment else 0
    return tuple(found)


def _rule(names: tuple[str, ...], layer: int, patterns: tuple[str, ...]) -> int:
    """The last pattern that matches one of the names in one layer."""
    own = [name.replace("{}", str(layer)) for name in names]
    for index in reversed(range(len(patterns))):
        if any(matches(patterns[index], name) for name in own):
            return index
    return -1


def columns_under(graph: OpGraph, policy: PrecisionPolicy) -> NodeColumns:
    """The operators of a graph, with the layers apart that a policy treats otherwise."""
    if not policy.layers:
        return columns_of(graph, policy.wide_layers)
    return _ruled_columns(graph, policy.wide_layers, policy.layers)[0]


@derived
def _ruled_columns(
    graph: OpGraph, ends: tuple[int, int], layers: tuple[LayerRule, ...]
) -> tuple[NodeColumns, tuple[int, ...]]:
    """The columns, and which node of the graph each row was."""
    rules = rules_of(graph, layers)
    runs = runs_of(graph.nodes)
    total = sum(len(each) for run, each in zip(runs, rules, strict=True) if graph.nodes[run[0]].segment)
    treated: list[list[tuple[bool, tuple[int, ...], int]]] = []
    layer = 0
    for run, each in zip(runs, rules, strict=True):
        is_block = graph.nodes[run[0]].segment > 0
        of_layers = []
        for number, its in enumerate(each):
            at_end = is_block and not ends[0] <= layer + number < total - ends[1]
            of_layers.append((at_end, its))
        layer += len(each) if is_block else 0
        treated.append([(*key, len(list(same))) for key, same in groupby(of_layers)])
    cut = [[(count, number > 0) for number, (_, _, count) in enumerate(parts)] for parts in treated]
    nodes, sources = split_runs(graph.nodes, cut)
    place = {index: (number, at) for number, run in enumerate(runs) for at, index in enumerate(run)}
    wide, rule = [], []
    for index, part in sources:
        number, at = place[index]
        at_end, its, _ = treated[number][part]
        wide.append(at_end)
        rule.append(its[at])
    return node_columns(nodes, wide, rule), tuple(index for index, _ in sources)


def treatments(nodes: NodeColumns, policy: PrecisionPolicy) -> Ints:
    """How a policy with rules of its own treats each operator: FOLLOWS, LOWER or WIDE."""
    ops = dict(policy.ops)
    low = policy.activation.num_bytes < DType.FP32.num_bytes
    lists = policy.autocast and low
    of_layer = [rule.dtype.num_bytes for rule in policy.layers]
    found = np.empty(len(nodes), dtype=np.int64)
    product, unpacking = nodes.is_product.tolist(), nodes.unpacking.tolist()
    for index, (node, rule) in enumerate(zip(nodes.nodes, nodes.rule.tolist(), strict=True)):
        narrowed = rule >= 0 and of_layer[rule] < DType.FP32.num_bytes
        said = ops.get(node.op.strip("_")) or ops.get(node.op_class.value)
        if unpacking[index]:
            found[index] = FOLLOWS
        elif rule >= 0 and not narrowed:
            found[index] = WIDE
        elif narrowed and product[index]:
            found[index] = LOWER
        elif said is not None:
            found[index] = _CODES[said]
        elif product[index]:
            found[index] = LOWER if low or narrowed else WIDE
        else:
            found[index] = _CODES[autocast_class(node.op)] if lists or narrowed else FOLLOWS
    return found


def in_low(nodes: NodeColumns, policy: PrecisionPolicy) -> tuple[Bools, Bools, Ints]:
    """Which operators write 16 bits, which fp32 by rule, and how each is treated."""
    codes = treatments(nodes, policy)
    return (codes == LOWER) | nodes.unpacking, codes == WIDE, codes


def numbered_names(nodes: Sequence[Node]) -> list[str]:
    """The first name of each operator, with the layers that it stands for: `blocks.0-11.gemm.linear`."""
    names, layer = [each[0] for each in operator_names(nodes)], 0
    for run in runs_of(nodes):
        count = nodes[run[0]].repeat if nodes[run[0]].segment else 0
        layers = f"{layer}-{layer + count - 1}" if count > 1 else f"{layer}"
        for index in run:
            names[index] = names[index].replace("{}", layers)
        layer += count
    return names


def saved_widths(graph: OpGraph, policy: PrecisionPolicy) -> tuple[float, ...]:
    """Bytes per element that each operator keeps under a policy with rules, the mean of its layers."""
    nodes, sources = columns_under(graph, policy), tuple(range(len(graph.nodes)))
    if policy.layers:
        sources = _ruled_columns(graph, policy.wide_layers, policy.layers)[1]
    usual = min(policy.activation.num_bytes, DType.FP32.num_bytes)
    low = min(usual, DType.BF16.num_bytes)
    widths = np.array([usual, low, DType.FP32.num_bytes])[treatments(nodes, policy)]
    total = np.bincount(sources, weights=widths * nodes.repeat, minlength=len(graph.nodes))
    return tuple(total / np.bincount(sources, weights=nodes.repeat, minlength=len(graph.nodes)))


def layers_of_pattern(graph: OpGraph, pattern: str) -> int:
    """How many operators, those of every layer counted, a pattern matches."""
    rules = _rules_of(graph, (pattern,))
    return sum(rule >= 0 for run in rules for layer in run for rule in layer)
