"""The first and last layers of a model apart from the others, where a policy keeps their products wide.

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
    runs = [tuple(run) for _, run in groupby(range(len(nodes)), key=lambda index: nodes[index].segment)]
    sizes = [nodes[run[0]].repeat if nodes[run[0]].segment else 0 for run in runs]
    first = _taken(sizes, ends[0])
    left = [size - taken for size, taken in zip(sizes, first, strict=True)]
    last = _taken(left[::-1], ends[1])[::-1]
    fresh = max(node.segment for node in nodes) + 1
    out: list[Node] = []
    wide: list[bool] = []
    where: dict[int, int] = {}
    for run, size, before, after in zip(runs, sizes, first, last, strict=True):
        parts = [(before, True), (size - before - after, False), (after, True)] if size else [(1, False)]
        for count, is_end in parts:
            if not count:
                continue
            segment = fresh if is_end else nodes[run[0]].segment
            fresh += is_end
            local: dict[int, int] = {}
            for index in run:
                node = nodes[index]
                inputs = tuple(local.get(i, where.get(i, -1)) if i >= 0 else -1 for i in node.inputs)
                repeat = count if size else node.repeat
                local[index] = len(out)
                out.append(replace(node, inputs=inputs, repeat=repeat, segment=segment))
                wide.append(is_end)
            where.update(local)
    return tuple(out), tuple(wide)


def _taken(sizes: Sequence[int], wanted: int) -> list[int]:
    """How many of `wanted` each block gives, in order."""
    taken = []
    for size in sizes:
        taken.append(min(size, wanted))
        wanted -= taken[-1]
    return taken
