"""How long the points ahead will take, learned from the points done."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean

from .plan import Point

_FIRST_GUESS_S = 5.0
"""Of a point when none has been measured."""
_FIRST_START_S = 5.0
"""Of a group of workers when none has been started."""


@dataclass(slots=True)
class Outlook:
    """Expected seconds of points: a constant and Ernest's term s/m, fitted per model as points are done.

    A model that has not been seen takes the mean rate of those that have.
    """

    _done: dict[tuple[str, str], list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    """Model and precision -> (work, wall time) of its points."""
    _starts_s: list[float] = field(default_factory=list)

    def learn(self, point: Point, wall_s: float) -> None:
        """A point has been measured, in `wall_s` from being handed out to being stored."""
        self._done[point.model, point.precision].append((work_of(point), wall_s))

    def learn_start(self, wall_s: float) -> None:
        """A group of workers has been started."""
        self._starts_s.append(wall_s)

    @property
    def group_start_s(self) -> float:
        """Expected seconds until a group of workers is ready."""
        return fmean(self._starts_s) if self._starts_s else _FIRST_START_S

    def seconds(self, point: Point) -> float:
        """Expected seconds of a point."""
        own = self._done.get((point.model, point.precision))
        seen = own or [pair for pairs in self._done.values() for pair in pairs]
        if not seen:
            return point.seconds or _FIRST_GUESS_S
        constant_s, rate = _line(seen)
        return constant_s + rate * work_of(point)

    def total_s(self, points: Sequence[Point]) -> float:
        """Expected seconds of all of `points`, the starts of their groups included."""
        starts = len({point.setting for point in points})
        return sum(map(self.seconds, points)) + starts * self.group_start_s


def work_of(point: Point) -> float:
    """Ernest's s/m times the epochs: samples that one worker goes through."""
    return point.epochs * point.num_samples / point.setting.num_workers


def _line(pairs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Constant and slope of wall time over work by least squares, neither below 0.

    >>> _line([(1.0, 3.0), (2.0, 5.0)])
    (1.0, 2.0)
    """
    mean_work, mean_s = fmean(work for work, _ in pairs), fmean(wall_s for _, wall_s in pairs)
    spread = sum((work - mean_work) ** 2 for work, _ in pairs)
    if spread == 0:
        return mean_s, 0.0
    slope = sum((work - mean_work) * (wall_s - mean_s) for work, wall_s in pairs) / spread
    slope = min(max(slope, 0.0), mean_s / mean_work)
    return mean_s - slope * mean_work, slope
