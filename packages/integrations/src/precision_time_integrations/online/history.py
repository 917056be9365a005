"""`StepHistory`: how long the steps of a run took, in bounded memory and at little cost."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from precision_time.arrays import Floats

_EARLY = 128
"""Intervals at the start that are kept as they are: warm-up is there."""
_LAST_PAUSES = 15
_MOST = 2048
"""Intervals kept; above, neighbors are put together."""


@dataclass(slots=True)
class Pauses:
    """Announced pauses of one name."""

    seconds: float = 0.0
    count: int = 0
    first_step: int = 0
    last_step: int = 0
    last_s: deque[float] = field(default_factory=lambda: deque(maxlen=_LAST_PAUSES))
    """Seconds of the last ones."""

    @property
    def usual_s(self) -> float:
        """Seconds of one; the first is slower, as it warms up, and counts where it is the only one."""
        warm = self.count > 1 and self.count <= _LAST_PAUSES
        return float(np.median(list(self.last_s)[warm:]))


class StepHistory:
    """Intervals between the ends of steps, without announced pauses.

    An interval is of one step or of several, as they were reported.
    """

    def __init__(self, *, from_start: bool = True) -> None:
        """An empty history.

        Args:
            from_start: Whether the first interval begins with the run; else it was watched from its middle.
        """
        self.from_start = from_start
        self._counts: list[float] = []
        self._seconds: list[float] = []
        self.pauses: dict[str, Pauses] = {}

    def add(self, count: int, seconds: float) -> None:
        """Steps that ended.

        Args:
            count: How many they are.
            seconds: They took together.
        """
        self._counts.append(count)
        self._seconds.append(seconds)
        if len(self._counts) > _MOST:
            self._halve()

    def add_pause(self, name: str, step: int, seconds: float) -> None:
        """A pause that was announced.

        Args:
            name: "evaluation", "checkpoint" ...
            step: Steps done when it began.
            seconds: It took.
        """
        found = self.pauses.setdefault(name, Pauses(first_step=step))
        found.seconds += seconds
        found.last_s.append(seconds)
        found.count += 1
        found.last_step = step

    def intervals(self) -> tuple[Floats, Floats]:
        """Counts and seconds of the intervals, in their order."""
        return np.array(self._counts, dtype=float), np.array(self._seconds)

    def __len__(self) -> int:
        return len(self._counts)

    def _halve(self) -> None:
        """Neighbors after the early intervals become one."""
        self._counts, self._seconds = _halved(self._counts), _halved(self._seconds)


def _halved(values: list[float]) -> list[float]:
    last = _EARLY + (len(values) - _EARLY) // 2 * 2
    pairs = zip(values[_EARLY:last:2], values[_EARLY + 1 : last : 2], strict=True)
    return [*values[:_EARLY], *(one + other for one, other in pairs), *values[last:]]
