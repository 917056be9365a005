"""Candidates priced in chunks, here or in other processes, and lower bounds of those not priced yet."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import chain
from operator import attrgetter

import numpy as np

from ...arrays import Floats, Indices
from ...cost.job import Job
from ...cost.search import groups_under, kernels_key
from ...cost.step import shared_and_bubble_s
from ...executor import Executor, OneCopy, in_chunks
from ...learn.table import JobTable, priced_groups
from ...parallel.layout import Layout
from ...parallel.schedules.contract import StageTimes
from ...parallel.schedules.registry import schedule_of

_CHUNK = 256
"""Layouts per task: some tenths of a second."""
_PLAIN = frozenset(
    (
        *("zero_stage", "dp_shard", "reshard_after_forward", "prefetch", "vpp", "schedule"),
        "recompute_layers",
    )
)
"""What layouts of one family may differ in."""
_kept = attrgetter(*(item.name for item in fields(Layout) if item.name not in _PLAIN))


def price_layouts(job: OneCopy[Job], layouts: Sequence[Layout]) -> JobTable:
    """Analytical times and features of some layouts of a job, in their order."""
    rows, groups = zip(*groups_under(job.here(), layouts), strict=True)
    return priced_groups(groups)[1].take(np.argsort([*chain.from_iterable(rows)]))


def priced_by(
    job: OneCopy[Job], layouts: Sequence[Layout], over: Executor, progress: Callable[[int], None]
) -> JobTable:
    """Analytical times of layouts, chunk by chunk: those that run the same kernels one after the other."""
    found: list[JobTable] = []
    done = 0
    order = sorted(range(len(layouts)), key=[kernels_key(layout) for layout in layouts].__getitem__)
    for part in over(partial(price_layouts, job), in_chunks([layouts[row] for row in order], _CHUNK)):
        found.append(part)
        done += len(part)
        progress(done)
    return JobTable.together(found).take(np.argsort(order))


def families_of(layouts: Iterable[Layout], policy_of: Callable[[Layout], Hashable]) -> list[list[Layout]]:
    """Layouts that run the same kernels, whatever they shard and in whatever order, together.

    They may recompute a different number of layers: the first of a family the fewest, so that what it takes
    bounds the others.
    """
    families: dict[Hashable, list[Layout]] = defaultdict(list)
    for layout in layouts:
        families[_kept(layout), policy_of(layout)].append(layout)
    return [sorted(members, key=attrgetter("recompute_share")) for members in families.values()]


@dataclass(slots=True)
class Bounds:
    """Lower bounds of the corrected times of layouts that are not priced yet.

    A family shares its kernels and what its tensor, context and expert ranks exchange; the pipeline's
    bubble changes with the schedule as the formulas say. Times the least that corrected times were above
    this so far in layouts that are cut and sharded in the same ways: what replicas exchange is in the factor.
    """

    layouts: list[Layout]
    kinds: list[Hashable]
    """How each is cut and sharded: what the factors differ by most."""
    base_s: Floats
    """Analytical time of what the family shares, and of the bubble."""
    least: dict[Hashable, float] = field(default_factory=dict)
    """The least corrected time over `base_s`, by kind."""

    def of(self, rows: Indices) -> Floats:
        """Bounds of some of the layouts [s]."""
        bounds: Floats = self.base_s[rows] * np.array([self.least[self.kinds[row]] for row in rows])
        return bounds

    def near(self, most_s: float) -> Indices:
        """Layouts of the kinds of which one at least is bounded by this time or less."""
        rows = np.arange(len(self.layouts))
        kinds = {self.kinds[row] for row in rows[self.of(rows) <= most_s].tolist()}
        return np.array([row for row, kind in enumerate(self.kinds) if kind in kinds], dtype=np.intp)

    def samples(self, count: int, rows: Indices) -> Indices:
        """Of some rows the `count` lowest of each kind, and as many with the fewest micro batches.

        These gather least.
        """
        base_s, rounds = self.base_s[rows], np.array([self.layouts[row].num_microbatches for row in rows])
        chosen: set[int] = set()
        for order in (np.argsort(base_s, kind="stable"), np.lexsort((base_s, rounds))):
            members: dict[Hashable, list[int]] = defaultdict(list)
            for row in rows[order].tolist():
                members[self.kinds[row]].append(row)
            chosen |= {row for rows in members.values() for row in rows[:count]}
        return np.array(sorted(chosen), dtype=np.intp)

    def learn(self, rows: Indices, corrected_s: Floats) -> None:
        """Take note of layouts that were priced since."""
        for row, factor in zip(rows, (corrected_s / self.base_s[rows]).tolist(), strict=True):
            kind = self.kinds[row]
            self.least[kind] = min(factor, self.least.get(kind, factor))


def bounds_of(job: OneCopy[Job], families: Sequence[Sequence[Layout]], over: Executor = map) -> Bounds:
    """Bounds of all layouts of families; of use once `samples` were learned from."""
    order = sorted(range(len(families)), key=[kernels_key(members[0]) for members in families].__getitem__)
    first = in_chunks([families[row][0] for row in order], _CHUNK)
    found = [pair for part in over(partial(_shared_and_bubble_s, job), first) for pair in part.T.tolist()]
    layouts: list[Layout] = []
    base_s: list[float] = []
    for row, (shared_s, bubble_s) in zip(order, found, strict=True):
        members = families[row]
        own = _bubble_share(members[0])
        relative = bubble_s / own if own else 0.0
        layouts += members
        base_s += [shared_s + relative * _bubble_share(layout) for layout in members]
    return Bounds(layouts=layouts, kinds=[*map(_kind, layouts)], base_s=np.array(base_s))


def _shared_and_bubble_s(job: OneCopy[Job], layouts: Sequence[Layout]) -> Floats:
    """Seconds of what a family shares, and of the bubble, shape (2, layouts)."""
    found = np.zeros((2, len(layouts)))
    for places, group in groups_under(job.here(), layouts):
        found[:, places] = shared_and_bubble_s(group)
    return found


def _kind(layout: Layout) -> Hashable:
    gathered = (layout.zero_stage, layout.dp_shard > 0, layout.reshard_after_forward)
    return (gathered, layout.schedule, layout.tp > 1, layout.pp > 1, layout.recompute)


def _bubble_share(layout: Layout) -> float:
    """Idle time by formula, in passes of a micro batch through a stage; equal stages."""
    if layout.pp == 1:
        return 0.0
    times = StageTimes(forward_s=1.0 / 3.0, backward_s=2.0 / 3.0)
    schedule = schedule_of(layout.schedule)
    return float(schedule.bubble_s(layout.pp, layout.vpp, layout.num_microbatches, times))
