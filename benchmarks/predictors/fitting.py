"""How ours is fitted in the benchmark: to runs by their number, with constants that saw no others."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from precision_time.corpus.store import load_corpus
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.boosting import DEFAULT_SETTINGS
from precision_time.learn.measured import MeasuredTable, fit_predictor, measured_table
from precision_time.learn.predictor import Predictor
from precision_time.learn.table import job_table
from precision_time.learn.training import row_weights
from precision_time.request.request import Request

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "data"))

import refit_constants as refit  # noqa: E402

_COVERAGE = 0.9
_fitted: dict[str, Predictor] = {}


def constants_of(numbers: frozenset[int]) -> refit.Changes:
    """Constants of the formulas refitted to these runs alone (`data/refit_constants.py` says which)."""
    return _evidence().refitted([row for row in load_corpus() if row.row_id in numbers])


def learn(numbers: frozenset[int], changes: refit.Changes) -> None:
    """Price these runs with other constants and fit trees: the first thing that a process does."""
    refit.change_constants(changes)
    kept = [row.row_id in numbers for row in _priced().measurements]
    table = _priced().take(np.flatnonzero(kept))
    every = np.arange(len(table), dtype=np.intp)
    _fitted[""] = fit_predictor(table, every, row_weights(table), DEFAULT_SETTINGS["step"])


def ask(requests: Sequence[str], trees: bool) -> list[tuple[float, float | None, float | None]]:
    """Seconds and the bounds of an interval for requests as JSON; formulas alone have no interval."""
    jobs = job_table([Request.of(json.loads(each)).resolve(named_only=True) for each in requests])
    if not trees:
        return [(float(seconds), None, None) for seconds in jobs.analytical_s]
    times, intervals = _fitted[""].times(jobs.select(_fitted[""].names)), shipped_predictor().intervals
    assert intervals is not None
    scale = intervals.expected_error(times.jobs.features, times.distance)
    low, high = (times.median_s * each for each in intervals.bounds(scale, times.distance, _COVERAGE))
    step_s = times.median_s * intervals.point(scale, times.distance)
    return list(zip(step_s.tolist(), low.tolist(), high.tolist(), strict=True))


@cache
def _priced() -> MeasuredTable:
    return measured_table([row for row in load_corpus() if row.usable])


@cache
def _evidence() -> refit.Evidence:
    """Of every run what constants would be fitted to; a fit takes that of its own runs."""
    return refit.Evidence.of([row for row in load_corpus() if row.usable], refit.OF_A_CELL)
