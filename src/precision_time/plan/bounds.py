"""Which layouts may still be among the best: lower bounds from layouts that were priced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..parallel.layout import Layout, PipelineSchedule
from ..parallel.schedules.contract import StageTimes
from ..parallel.schedules.registry import schedule_of
from .pricing import Priced

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

_PLAIN: Mapping[str, Any] = {
    "zero_stage": 0,
    "shard_size": 0,
    "reshard_after_forward": True,
    "prefetch": 1,
    "virtual_pp": 1,
    "schedule": PipelineSchedule.ONE_F_ONE_B,
}
"""What layouts of one family may differ in."""


def families_of(layouts: Sequence[Layout]) -> list[list[Layout]]:
    """Layouts that run the same kernels, whatever they shard and in whatever order, together."""
    families: dict[Layout, list[Layout]] = defaultdict(list)
    for layout in layouts:
        families[replace(layout, **_PLAIN)].append(layout)
    return list(families.values())


@dataclass(slots=True)
class Bounds:
    """Lower bounds of the corrected times of layouts that are not priced yet.

    A family shares its kernels and what its tensor, context and expert ranks exchange; the pipeline's
    bubble changes with the schedule as the formulas say. The correction of the first of a family holds
    for the others up to a factor by kind of sharding and schedule: the least one seen so far.
    """

    layouts: list[Layout]
    base_s: Floats
    """What the family shares and the bubble, times the correction of its first."""
    factors: Floats
    """Corrections of the firsts."""
    least: dict[Hashable, float] = field(default_factory=dict)
    """By kind, the least correction relative to that of the first of the family."""

    def of(self, rows: Indices) -> Floats:
        """Bounds of some of the layouts [s]."""
        least = [self.least.get(_kind(self.layouts[row]), 1.0) for row in rows]
        bounds: Floats = self.base_s[rows] * np.array(least)
        return bounds

    def samples(self, count: int) -> Indices:
        """The layouts with the lowest bounds, up to `count` of each kind."""
        taken: dict[Hashable, int] = defaultdict(int)
        chosen: list[int] = []
        for row in np.argsort(self.base_s, kind="stable").tolist():
            kind = _kind(self.layouts[row])
            taken[kind] += 1
            if taken[kind] <= count:
                chosen.append(row)
        return np.array(chosen, dtype=np.intp)

    def learn(self, rows: Indices, priced: Priced, corrected_s: Floats) -> None:
        """Take note of layouts that were priced since."""
        relative = corrected_s / priced.table.analytical_s / self.factors[rows]
        for row, ratio in zip(rows, relative.tolist(), strict=True):
            kind = _kind(self.layouts[row])
            self.least[kind] = min(ratio, self.least.get(kind, ratio))


def bounds_of(families: Sequence[Sequence[Layout]], first: Priced, corrected_s: Floats) -> Bounds:
    """Bounds of all but the first layouts of families.

    Args:
        families: Layouts by family.
        first: Prices of the first of each.
        corrected_s: Their corrected times.
    """
    layouts: list[Layout] = []
    base_s: list[float] = []
    factors: list[float] = []
    corrections = corrected_s / first.table.analytical_s
    rows = zip(families, first.shared_s.tolist(), first.bubble_s.tolist(), corrections.tolist(), strict=True)
    for members, shared_s, bubble_s, factor in rows:
        own = _bubble_share(members[0])
        relative = bubble_s / own if own else 0.0
        layouts += members[1:]
        base_s += [factor * (shared_s + relative * _bubble_share(layout)) for layout in members[1:]]
        factors += [factor] * (len(members) - 1)
    return Bounds(layouts=layouts, base_s=np.array(base_s), factors=np.array(factors))


def _kind(layout: Layout) -> Hashable:
    return (layout.zero_stage, layout.reshard_after_forward, layout.schedule)


def _bubble_share(layout: Layout) -> float:
    """Idle time by formula, in passes of a micro batch through a stage; equal stages."""
    if layout.pp == 1:
        return 0.0
    times = StageTimes(forward_s=1.0 / 3.0, backward_s=2.0 / 3.0)
    schedule = schedule_of(layout.schedule)
    return schedule.bubble_s(layout.pp, layout.virtual_pp, layout.num_micro_batches, times)
