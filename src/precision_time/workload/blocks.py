"""Some layers of a model apart from the others, where a policy treats them otherwise.

Reference: Megatron-LM, --first-last-layers-bf16; arXiv 2509.25149, section 4 (first 2 and last 8 of 62).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from .graph import Node


def split_ends(nodes: Sequence[Node], ends: tuple[int, int]) -> tuple[tuple[Node, ...], tuple[bool, ...]]:
    """The nodes with the layers at both ends as blocks of their own.

    Args:
        nodes: Operators in execution order; blocks are nodes of one segment above 0.
        ends: Layers at the start and at the end.

    Returns:
        Nodes, and which of them belong to the ends. Blocks that are cut keep their segment in the middle;
        the ends get new segments. Layers that stand unfolded (repeat 1) count one by one.
    """
    if ends == (0, 0):
        return tuple(nodes), (False,) * len(nodes)
    sizes = [nodes[run[0]].repeat if nodes[run[0]].segment else 0 for run in runs_of(nodes)]
    first = _taken(sizes, ends[0])
    left = [size - taken for size, taken in zip(sizes, first, strict=True)]
    last = _taken(left[::-1], ends[1])[::-1]
    parts = [
        [(before, True), (size - before - after, False), (after, True)]
        for size, before, after in zip(sizes, first, last, strict=True)
    ]
    out, sources = split_runs(nodes, parts)
    return out, tuple(part != 1 and nodes[index].segment > 0 for index, part in sources)


def runs_of(nodes: Sequence[Node]) -> list[tuple[int, ...]]:
    """Indices of nodes that follow each other in one segment: a block that stands once or many times."""
    return [tuple(run) for _, run in groupby(range(len(nodes)), key=lambda index: nodes[index].segment)]


def split_runs(
    nodes: Sequence[Node], parts: Sequence[Sequence[tuple[int, bool]]]
) -> tuple[tuple[Node, ...], tuple[tuple[int, int], ...]]:
    """The nodes with blocks cut into parts.

    Args:
        nodes: Operators in execution order.
        parts: For each of `runs_of`: how many layers each part of it takes, in order, and whether it gets a
            segment of its own; nothing is said of runs that are no block.

    Returns:
        Nodes, and of each the node it was and which part it is in.
    """
    fresh = max((node.segment for node in nodes), default=0) + 1
    out: list[Node] = []
    sources: list[tuple[int, int]] = []
    where: dict[int, int] = {}
    for run, cut in zip(runs_of(nodes), parts, strict=True):
        is_block = nodes[run[0]].segment > 0
        for part, (count, apart) in enumerate(cut if is_block else [(1, False)]):
            if not count:
                continue
            segment = fresh if apart else nodes[run[0]].segment
            fresh += apart
            local: dict[int, int] = {}
            for index in run:
                node = nodes[index]
                inputs = tuple(local.get(i, where.get(i, -1)) if i >= 0 else -1 for i in node.inputs)
                repeat = count if is_block else node.repeat
                local[index] = len(out)
                out.append(replace(node, inputs=inputs, repeat=repeat, segment=segment))
                sources.append((index, part))
            where.update(local)
    return tuple(out), tuple(sources)


def _taken(sizes: Sequence[int], wanted: int) -> list[int]:
    """How many of `wanted` each block gives, in order."""
    taken = []
    for size in sizes:
        taken.append(min(size, wanted))
        wanted -= taken[-1]
    return taken
