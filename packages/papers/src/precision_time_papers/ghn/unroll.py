"""Repeated blocks written out again: our operator graphs hold identical layers once.

GHN-2 reads the whole autograd graph, in which the twelve layers of a BERT are twelve. Weighing one layer by
twelve would give twelve and twenty-four layers the same node vectors, and depth is a large part of what an
architecture is. So blocks are written out, up to `MOST_NODES`; beyond, every copy stands for several.

Which copy an edge across the border of a block means is not in the folded graph. The rule:

- A block reads, in its first copy, what stands before it. Where a source lies as far back as a node of a
  previous copy would that something after the block reads, too (or the last node), later copies read that
  node of the copy before them. Where no source does, the latest one of the size of the block's last node
  counts as that node. All other sources (the memory of a cross-attention) are read by every copy.
- What reads a block from behind reads its last copy where it reads one of these nodes, and the first
  copy otherwise: that is a residual around the whole run.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from precision_time.workload.graph import Node, OpGraph

MOST_NODES = 4096
"""Operators of a graph after unrolling; only models with hundreds of recurrent steps reach it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Unrolled:
    """One occurrence of an operator."""

    source: int
    """Index of the operator in the folded graph."""
    inputs: tuple[int, ...]
    """Indices of occurrences; -1 is an input of the graph."""
    stands_for: float
    """Occurrences in the model; above 1 only where the limit was reached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """Consecutive operators that repeat together."""

    start: int
    end: int
    repeat: int
    copies: int
    offset: int
    """Index of the first occurrence after unrolling."""

    @property
    def period(self) -> int:
        return self.end - self.start

    def occurrence(self, index: int, copy: int) -> int:
        """Where operator `index` of a copy stands after unrolling."""
        return self.offset + copy * self.period + index - self.start


def unroll(graph: OpGraph, most_nodes: int = MOST_NODES) -> tuple[Unrolled, ...]:
    """The operators of `graph` with repeated blocks written out.

    Args:
        graph: Any operator graph.
        most_nodes: Occurrences at most (one per operator at least).
    """
    runs = _runs(graph.nodes, most_nodes)
    run_of = [run for run in runs for _ in range(run.period)]
    carried = [_carried(graph.nodes, run) for run in runs]
    carried_of = [found for run, found in zip(runs, carried, strict=True) for _ in range(run.period)]
    out: list[Unrolled] = []
    for run, carry in zip(runs, carried, strict=True):
        for copy in range(run.copies):
            for index in range(run.start, run.end):
                inputs = []
                for source in graph.nodes[index].inputs:
                    if copy > 0 and source < run.start and source in carry:
                        inputs.append(run.occurrence(carry[source], copy - 1))
                    elif source < 0:
                        inputs.append(-1)
                    elif source >= run.start:
                        inputs.append(run.occurrence(source, copy))
                    else:
                        inputs.append(_read_from_behind(source, run_of[source], carried_of[source]))
                share = run.repeat / run.copies
                out.append(Unrolled(source=index, inputs=tuple(sorted(set(inputs))), stands_for=share))
    return tuple(out)


def _read_from_behind(source: int, run: _Run, carry: dict[int, int]) -> int:
    last = source == run.end - 1 or source in carry.values()
    return run.occurrence(source, run.copies - 1 if last else 0)


def _runs(nodes: tuple[Node, ...], most_nodes: int) -> list[_Run]:
    spans = list(_spans(nodes))
    limit = _copies_at_most(spans, most_nodes)
    runs, offset = [], 0
    for start, end, repeat in spans:
        copies = min(repeat, limit)
        runs.append(_Run(start=start, end=end, repeat=repeat, copies=copies, offset=offset))
        offset += copies * (end - start)
    return runs


def _spans(nodes: tuple[Node, ...]) -> Iterator[tuple[int, int, int]]:
    """(start, end, repeat) of every run of operators with one segment and repeat."""
    for (_, repeat), group in groupby(
        range(len(nodes)), key=lambda index: (nodes[index].segment, nodes[index].repeat)
    ):
        members = list(group)
        yield members[0], members[-1] + 1, max(1, repeat)


def _copies_at_most(spans: list[tuple[int, int, int]], most_nodes: int) -> int:
    """The most copies of any run with which the whole graph keeps to `most_nodes`; at least one."""

    def nodes(copies: int) -> int:
        return sum((end - start) * min(repeat, copies) for start, end, repeat in spans)

    most = max((repeat for _, _, repeat in spans), default=1)
    return max(bisect_right(range(most + 1), most_nodes, key=nodes) - 1, 1)


def _carried(nodes: tuple[Node, ...], run: _Run) -> dict[int, int]:
    """Sources before a run that later copies replace, and by which operator of the copy before them."""
    if run.copies == 1:
        return {}
    outside = {s for index in range(run.start, run.end) for s in nodes[index].inputs if s < run.start}
    outputs = {
        source
        for index in range(run.end, len(nodes))
        for source in nodes[index].inputs
        if run.start <= source < run.end
    }
    outputs.add(run.end - 1)
    carry = {s: s + run.period for s in outside if s >= 0 and s + run.period in outputs}
    if not carry and outside:
        size = nodes[run.end - 1].out_elems
        fitting = [s for s in outside if s >= 0 and nodes[s].out_elems == size]
        carry = {max(fitting or outside): run.end - 1}
    return carry
