"""Identical consecutive blocks of nodes are written once, with how often they occur.

Exact by construction: only blocks whose nodes are equal in every number and whose inner and backward
edges have equal relative distances are folded, so sums over `node * repeat` do not change.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from ..records import dataclass
from ..workload.graph import Node, OpGraph

_LONGEST_BLOCK = 1500


@dataclass(frozen=True, slots=True)
class _Run:
    start: int
    period: int
    times: int

    @property
    def end(self) -> int:
        return self.start + self.period * self.times

    @property
    def saving(self) -> int:
        return self.period * (self.times - 1)


def fold_repeats(graph: OpGraph, *, period: int | None = None) -> OpGraph:
    """The same graph with repeated blocks folded into segments; totals stay exactly the same.

    With `period` only the longest run of blocks of that many nodes is folded.
    """
    codes = _codes(graph.nodes)
    if period is None:
        runs = sorted(_find_runs(codes, 0, len(codes)), key=lambda run: run.start)
    else:
        best = _best_run(codes, [period] if 0 < period <= len(codes) // 2 else [])
        runs = [best] if best is not None else []
    if not runs:
        return graph
    segment = max((node.segment for node in graph.nodes), default=0)
    new_index: dict[int, int] = {}
    nodes: list[Node] = []
    position = 0
    for run in [*runs, _Run(len(codes), 0, 1)]:
        for index in range(position, run.start):
            new_index[index] = len(nodes)
            nodes.append(_moved(graph.nodes[index], new_index))
        segment += 1
        for index in range(run.start, run.start + run.period):
            new_index[index] = len(nodes)
            moved = _moved(graph.nodes[index], new_index)
            nodes.append(replace(moved, repeat=run.times, segment=segment))
        for index in range(run.start + run.period, run.end):
            new_index[index] = new_index[index - run.period]
        position = run.end
    return replace(graph, nodes=tuple(nodes))


def _moved(node: Node, new_index: dict[int, int]) -> Node:
    sources = tuple(sorted({new_index.get(i, i) for i in node.inputs}))
    return node if sources == node.inputs else replace(node, inputs=sources)


def _codes(nodes: tuple[Node, ...]) -> np.ndarray:
    """One number per node: equal for nodes of equal content and relative edges."""
    known: dict[object, int] = {}
    codes = []
    for index, node in enumerate(nodes):
        offsets = tuple(-1 if i < 0 else index - i for i in node.inputs)
        single = node.repeat == 1
        body = replace(node, inputs=offsets, layer="") if single else index
        codes.append(known.setdefault(body, len(known)))
    return np.asarray(codes, dtype=np.int64)


def _find_runs(codes: np.ndarray, low: int, high: int) -> list[_Run]:
    """Non-overlapping runs of repeated blocks in codes[low:high], the largest saving first."""
    longest = min((high - low) // 2, _LONGEST_BLOCK)
    best = _best_run(codes[low:high], range(1, longest + 1))
    if best is None:
        return []
    run = _Run(best.start + low, best.period, best.times)
    return [*_find_runs(codes, low, run.start), run, *_find_runs(codes, run.end, high)]


def _best_run(codes: np.ndarray, periods: Iterable[int]) -> _Run | None:
    best: _Run | None = None
    for period in periods:
        equal = codes[period:] == codes[:-period]
        run = _longest_true(equal)
        if run is None:
            continue
        start, length = run
        found = _Run(start, period, length // period + 1)
        if found.times > 1 and (best is None or found.saving > best.saving):
            best = found
    return best


def _longest_true(flags: np.ndarray) -> tuple[int, int] | None:
    """Start and length of the longest run of True."""
    padded = np.concatenate(([False], flags, [False]))
    edges = np.flatnonzero(padded[1:] != padded[:-1])
    if not len(edges):
        return None
    starts, ends = edges[::2], edges[1::2]
    widest = int(np.argmax(ends - starts))
    return int(starts[widest]), int(ends[widest] - starts[widest])
