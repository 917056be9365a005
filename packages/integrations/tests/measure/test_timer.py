"""Medians of blocks, with the first call left out."""

from __future__ import annotations

import pytest

from precision_time_integrations.measure.timer import REPEATS, Timing, time_calls


class Machine:
    """Takes a set time per call; the very first call takes longer, as compilation makes it."""

    def __init__(self, call_s: float, *, first_s: float = 100.0, drift: float = 0.0) -> None:
        self.call_s, self.first_s, self.drift = call_s, first_s, drift
        self.counts: list[int] = []

    def run(self, count: int) -> float:
        first = not self.counts
        self.counts.append(count)
        blocks = len(self.counts)
        return (self.first_s if first else 0.0) + count * self.call_s * (1.0 + self.drift * blocks)


def test_the_first_call_never_counts() -> None:
    timing = time_calls(Machine(1e-3).run, seconds=0.1)
    assert timing.median_s == pytest.approx(1e-3)
    assert timing.high_s == pytest.approx(1e-3)


def test_short_calls_are_timed_in_blocks_that_fill_the_time() -> None:
    machine = Machine(1e-3)
    timing = time_calls(machine.run, seconds=0.5)
    assert (timing.repeats, timing.calls) == (REPEATS, 100)
    assert machine.counts[-REPEATS:] == [100] * REPEATS


def test_long_calls_are_timed_three_times() -> None:
    timing = time_calls(Machine(10.0).run, seconds=1.0)
    assert (timing.repeats, timing.calls) == (3, 1)


def test_spread_is_the_range_over_the_median() -> None:
    timing = time_calls(Machine(1.0, drift=0.1).run, seconds=0.1)
    assert timing.low_s < timing.median_s < timing.high_s
    assert timing.spread == pytest.approx((timing.high_s - timing.low_s) / timing.median_s)


def test_warm_up_ends_before_timing_begins() -> None:
    machine = Machine(1e-3)
    at: list[int] = []
    time_calls(machine.run, seconds=0.2, warmed=lambda: at.append(len(machine.counts)))
    assert at == [len(machine.counts) - REPEATS]
    assert sum(machine.counts[: at[0]]) * 1e-3 >= 0.05


def test_parts_of_a_call_share_its_time() -> None:
    whole = Timing(median_s=8.0, low_s=4.0, high_s=12.0, repeats=5, calls=1)
    part = whole.per(4)
    assert (part.low_s, part.median_s, part.high_s) == (1.0, 2.0, 3.0)
    assert part.spread == whole.spread
