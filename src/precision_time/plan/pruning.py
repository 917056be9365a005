"""Which candidates fit in memory, with no more recomputation than they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from ..cost.memory import micro_batches_in_flight
from ..parallel.layout import Layout
from .problem import Problem
from .space import Frame


@dataclass(frozen=True, kw_only=True, slots=True)
class Nearest:
    """The layout that needs the least memory, and how much."""

    layout: Layout
    needed_bytes: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Pruned:
    """What is left of frames, and what was left out by which rule."""

    layouts: tuple[Layout, ...] = ()
    too_large: int = 0
    """Layouts that do not fit."""
    recomputing: int = 0
    """Layouts that recompute although the same one with less recomputation fits."""
    nearest: Nearest | None = None


def fitting(problem: Problem, frame: Frame) -> Pruned:
    """The layouts of a frame that fit, each micro batch with the least recomputation that does.

    Args:
        problem: What is sought a layout for.
        frame: Candidates; memory grows with their micro batch and shrinks with their recomputation.
    """
    capacity = problem.cluster.device.memory_bytes
    modes = frame.checkpointing
    least = frame.layout(frame.batches[0], modes[-1])
    nearest = Nearest(layout=least, needed_bytes=problem.needed_bytes(least)[0])
    if nearest.needed_bytes > capacity:
        return Pruned(too_large=len(frame), nearest=nearest)
    found: list[Layout] = []
    recomputing = start = 0
    for batches in _alike(frame):
        needed: dict[int, tuple[float, ...]] = {}
        for place, batch in enumerate(batches):
            while start < len(modes):
                if start not in needed:
                    first = frame.layout(batches[0], modes[start])
                    needed[start] = problem.needed_bytes(first, [size for size, _ in batches])
                if needed[start][place] <= capacity:
                    found.append(frame.layout(batch, modes[start]))
                    recomputing += len(modes) - 1 - start
                    break
                start += 1
    too_large = len(frame) - len(found) - recomputing
    return Pruned(layouts=tuple(found), too_large=too_large, recomputing=recomputing, nearest=nearest)


def _alike(frame: Frame) -> list[list[tuple[float, int]]]:
    """The batches of a frame in runs that keep as many micro batches alive: their memory is one array."""

    def alive(batch: tuple[float, int]) -> float:
        return micro_batches_in_flight(0, frame.layout(batch, frame.checkpointing[0]))

    return [list(run) for _, run in groupby(frame.batches, key=alive)]


def fitting_of(problem: Problem, frames: Sequence[Frame]) -> Pruned:
    """`fitting` of several frames, together."""
    problem = problem.here()
    return merged([fitting(problem, frame) for frame in frames])


def merged(parts: Sequence[Pruned]) -> Pruned:
    """All parts as one, in their order."""
    found = [part.nearest for part in parts if part.nearest is not None]
    return Pruned(
        layouts=tuple(layout for part in parts for layout in part.layouts),
        too_large=sum(part.too_large for part in parts),
        recomputing=sum(part.recomputing for part in parts),
        nearest=min(found, key=lambda nearest: nearest.needed_bytes, default=None),
    )
