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
    bubble changes with the schedule as the formulas say. Times the least correction seen so far in layouts
    that are cut and sharded in the same ways.
    """

    layouts: list[Layout]
    base_s: Floats
    """Analytical time of what the family shares, and of the bubble."""
    least: dict[Hashable, float] = field(default_factory=dict)
    """The least correction by kind."""

    def of(self, rows: Indices) -> Floats:
        """Bounds of some of the layouts [s]."""
        least = [self.least[_kind(self.layouts[row])] for row in rows]
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
        corrections = corrected_s / priced.table.analytical_s
        for row, correction in zip(rows, corrections.tolist(), strict=True):
            kind = _kind(self.layouts[row])
            self.least[kind] = min(correction, self.least.get(kind, correction))


def bounds_of(families: Sequence[Sequence[Layout]], first: Priced) -> Bounds:
    """Bounds of all but the first layouts of families; of use once `samples` were learned from.

    Args:
        families: Layouts by family.
        first: Prices of the first of each.
    """
    layouts: list[Layout] = []
    base_s: list[float] = []
    rows = zip(families, first.shared_s.tolist(), first.bubble_s.tolist(), strict=True)
    for members, shared_s, bubble_s in rows:
        own = _bubble_share(members[0])
        relative = bubble_s / own if own else 0.0
        layouts += members[1:]
        base_s += [shared_s + relative * _bubble_share(layout) for layout in members[1:]]
    return Bounds(layouts=layouts, base_s=np.array(base_s))


def _kind(layout: Layout) -> Hashable:
    """How a layout is cut and sharded: what corrections differ by most."""
    return (layout.zero_stage, layout.schedule, layout.tp > 1, layout.pp > 1, layout.checkpointing)


def _bubble_share(layout: Layout) -> float:
    """Idle time by formula, in passes of a micro batch through a stage; equal stages."""
    if layout.pp == 1:
        return 0.0
    times = StageTimes(forward_s=1.0 / 3.0, backward_s=2.0 / 3.0)
    schedule = schedule_of(layout.schedule)
    return float(schedule.bubble_s(layout.pp, layout.virtual_pp, layout.num_micro_batches, times))
