"""Trials that are stopped, on recorded step times of real runs: which would have ended in time."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from precision_time_integrations.online.monitor import RunMonitor
from precision_time_integrations.trials import least_remaining_s, risk_of_check

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "studies"))

from eta_series import Series, read_series  # noqa: E402

CHECKED = (0.01, 0.02, 0.05, *(step / 20 for step in range(2, 20)))
"""Shares of the steps after which a trial reports."""


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def checks(series: Series) -> list[tuple[float, float | None]]:
    """Elapsed and least remaining seconds at each report of a run, as pruner and scheduler see them."""
    clock = Clock()
    planned = None if series.kind == "public" and not series.schedule else dict(series.schedule)
    monitor = RunMonitor(
        total_steps=series.total_steps, pauses=planned, clock=clock, on_warning=lambda text: None
    )
    if series.first_step == 0 or "resumed" in series.features:
        monitor.begin(series.first_step)
    else:
        monitor.step(series.first_step)
    happened: list[tuple[float, int, Any, int]] = [
        *((end_s, 0, monitor.end_pause, 0) for _, end_s, _ in series.pauses),
        *(
            (at_s, 1, partial(monitor.step, step, at_s=at_s), index)
            for index, (step, at_s) in enumerate(series.events)
            if index
        ),
        *((start_s, 2, partial(monitor.begin_pause, name), 0) for start_s, _, name in series.pauses),
    ]
    wanted, found = {series.index_at(share) for share in CHECKED}, []
    for at_s, _, tell, index in sorted(happened, key=lambda each: each[:2]):
        clock.now_s = at_s
        tell()
        if index in wanted:
            found.append((at_s, least_remaining_s(monitor.eta(), risk=risk_of_check(0.05, len(found) + 1))))
    return found


def stopped_s(seen: list[tuple[float, float | None]], limit_s: float) -> float | None:
    """When a trial is stopped; None where it is not."""
    late = (at_s for at_s, least_s in seen if least_s is not None and least_s > limit_s - at_s)
    return next(late, None)


@pytest.mark.slow
def test_few_trials_are_stopped_that_would_have_ended_in_time() -> None:
    runs = [(series.duration_s, checks(series)) for series in read_series()]
    assert len(runs) >= 40
    for slack in (1.02, 1.05, 1.1, 1.25, 1.5):
        wrong = [stopped_s(seen, slack * duration_s) is not None for duration_s, seen in runs]
        assert sum(wrong) <= 0.05 * len(runs), slack
    # Those that need twice the limit are stopped long before, half of them in its first seventh.
    early = [
        (stopped_s(seen, 0.5 * duration_s) or duration_s) / (0.5 * duration_s) for duration_s, seen in runs
    ]
    assert sum(share <= 1.0 for share in early) >= 0.95 * len(runs)
    assert sorted(early)[len(early) // 2] < 0.15
