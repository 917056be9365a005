"""Seconds of a call: warm-up apart, blocks of calls, their median and relative range."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

Run = Callable[[int], float]
"""Makes that many calls back to back and returns the seconds they took."""

REPEATS = 5
_FEWEST_REPEATS = 3
_FEWEST_WARM_CALLS = 2
_WARM_SHARE = 0.25
"""Of the timed seconds, spent on warming up: clocks rise and caches fill."""
_MOST_CALLS = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds per call over repeated blocks of calls."""

    median_s: float
    low_s: float
    high_s: float
    repeats: int
    """Blocks behind the median."""
    calls: int
    """Calls of a block."""

    @property
    def spread(self) -> float:
        """Relative range: (largest - smallest) / median over the blocks."""
        return (self.high_s - self.low_s) / self.median_s

    def per(self, parts: float) -> Timing:
        """The same for one of `parts` equal parts of the call."""
        return Timing(
            median_s=self.median_s / parts,
            low_s=self.low_s / parts,
            high_s=self.high_s / parts,
            repeats=self.repeats,
            calls=self.calls,
        )


def time_calls(run: Run, *, seconds: float, warmed: Callable[[], object] = lambda: None) -> Timing:
    """Time what `run` calls.

    The first call never counts: it compiles, allocates and chooses kernels. A call longer than its share of
    `seconds` is timed at least three times all the same.

    Args:
        run: Makes n calls.
        seconds: To spend on the timed calls, about.
        warmed: Called once between warm-up and timing.
    """
    run(1)
    warm_s, last_s, calls = 0.0, 0.0, 0
    while calls < _FEWEST_WARM_CALLS or warm_s < _WARM_SHARE * seconds:
        count = 1 if calls < _FEWEST_WARM_CALLS else calls
        taken_s = max(run(count), 1e-9)
        last_s = taken_s / count
        warm_s += taken_s
        calls += count
    block = min(max(round(seconds / REPEATS / last_s), 1), _MOST_CALLS)
    warmed()
    samples: list[float] = []
    while len(samples) < _FEWEST_REPEATS or (len(samples) < REPEATS and sum(samples) * block < seconds):
        samples.append(run(block) / block)
    return Timing(
        median_s=statistics.median(samples),
        low_s=min(samples),
        high_s=max(samples),
        repeats=len(samples),
        calls=block,
    )
