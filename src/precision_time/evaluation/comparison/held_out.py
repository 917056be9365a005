"""Held-out predictions of one predictor under one question, with what they cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...learn.holding_out import Fold
from ...learn.table import JobTable
from ...papers.contract import Estimator, Fitted
from ...papers.per_job import Bench, PerJobEstimator
from .jobs import MeasuredJob
from .wide import Wide

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

LEAST_OFFERED = 8
"""Configurations that a job must offer to those who sample it."""
LEAST_COUNTS = 2
"""Device counts among them."""
LEAST_RUNS, MOST_RUNS = 4, 7
"""Sample runs of a job: half of what is offered, within these; Ernest's own example has seven."""
_SINGLE_CALLS = 15
BULK = 1000


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOut:
    """Predictions in the order of the table, and the account."""

    step_time_s: Floats
    """Shape (n,), NaN for rows not asked."""
    sampled: Bools
    """Rows of configurations that were run as samples, shape (n,)."""
    fit_s: Floats
    """Seconds of each fit: per fold, or per job."""
    single_s: Floats
    """Seconds of one answer, its features given; medians per fold or job."""
    bulk_s: Floats
    """Seconds of 1,000 answers at once, likewise."""
    job: Ints
    """Numbers of the jobs sampled, shape (j,); empty for predictors that sample none."""
    runs: Floats
    """Sample runs of each, shape (j,)."""
    run_s: Floats
    """Wall-clock seconds of those runs."""
    run_device_s: Floats
    """Device-seconds of those runs."""

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for one `.npz` file."""
        return {item.name: getattr(self, item.name) for item in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> HeldOut:
        """What `to_arrays` wrote."""
        return cls(**{item.name: arrays[item.name] for item in fields(cls)})


def from_table(
    wide: Wide,
    folds: Sequence[Fold],
    estimator: Estimator,
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> HeldOut:
    """Fit on the inside of every fold and predict its outside."""
    seconds = np.full(len(wide), np.nan)
    fit_s, single_s, bulk_s = [], [], []
    for index, fold in enumerate(folds):
        tell(f"fold {index + 1} of {len(folds)}")
        started = time.perf_counter()
        fitted = estimator.fit(wide.table, fold.inside)
        fit_s.append(time.perf_counter() - started)
        seconds[fold.outside] = fitted.predict(wide.table.jobs.take(fold.outside))
        single, bulk = answer_seconds(fitted, wide.table.jobs, fold.outside)
        single_s.append(single)
        bulk_s.append(bulk)
    none = np.zeros(0)
    return HeldOut(
        step_time_s=seconds,
        sampled=np.zeros(len(wide), dtype=bool),
        fit_s=np.array(fit_s),
        single_s=np.array(single_s),
        bulk_s=np.array(bulk_s),
        job=np.zeros(0, dtype=np.intp),
        runs=none,
        run_s=none,
        run_device_s=none,
    )


def from_samples(
    wide: Wide,
    folds: Sequence[Fold],
    estimator: PerJobEstimator,
    *,
    samples_from_asked: bool,
    seed: int,
    tell: Callable[[str], None] = lambda _: None,
) -> HeldOut:
    """Let the predictor run some configurations of every job that offers enough, and ask it of the others.

    Args:
        wide: The table.
        folds: Who is known and who is asked.
        estimator: Fitted once per job and fold.
        samples_from_asked: Whether its runs come from the asked rows or from the known ones.
        seed: Of its own draws.
        tell: Called with a word on what is being done.
    """
    seconds, sampled = np.full(len(wide), np.nan), np.zeros(len(wide), dtype=bool)
    account: list[tuple[float, ...]] = []
    for fold in folds:
        asked, known = _mask(fold.outside, len(wide)), _mask(fold.inside, len(wide))
        offering = asked if samples_from_asked else known
        for job in wide.jobs:
            rows = np.concatenate(job.rows)
            if not asked[rows].any():
                continue
            offered = np.array(
                [place for place, found in enumerate(job.rows) if offering[found].any()], dtype=np.intp
            )
            if not enough(job, offered):
                continue
            tell(job.key)
            account.append(_one_job(wide, job, offered, offering, asked, estimator, seed, seconds, sampled))
    columns = np.array(account, dtype=np.float64).reshape(len(account), 7).T
    return HeldOut(
        step_time_s=seconds,
        sampled=sampled,
        job=columns[0].astype(np.intp),
        runs=columns[1],
        run_s=columns[2],
        run_device_s=columns[3],
        fit_s=columns[4],
        single_s=columns[5],
        bulk_s=columns[6],
    )


def enough(job: MeasuredJob, offered: Ints) -> bool:
    """Whether a predictor that samples can be fitted: enough configurations on enough device counts."""
    counts = np.unique(job.configurations.devices[offered])
    return len(offered) >= LEAST_OFFERED and len(counts) >= LEAST_COUNTS


def run_limit(offered: int) -> int:
    """Sample runs of a job that offers so many configurations.

    >>> run_limit(8), run_limit(11), run_limit(400)
    (4, 5, 7)
    """
    return min(max(LEAST_RUNS, offered // 2), MOST_RUNS)


def _one_job(
    wide: Wide,
    job: MeasuredJob,
    offered: Ints,
    offering: Bools,
    asked: Bools,
    estimator: PerJobEstimator,
    seed: int,
    seconds: Floats,
    sampled: Bools,
) -> tuple[float, ...]:
    """Fit and ask one job; writes into `seconds` and `sampled`, returns a row of the account."""
    # One run each: the first repeat, as one run is what a sample run gives.
    first = [job.rows[place][offering[job.rows[place]]][0] for place in offered]
    bench = Bench(
        offered=job.configurations.take(offered),
        step_time_s=wide.table.measured_s[np.array(first, dtype=np.intp)],
        limit=run_limit(len(offered)),
    )
    started = time.perf_counter()
    fitted = estimator.fit(bench, seed=seed)
    fit_s = time.perf_counter() - started
    for place in bench.chosen:
        sampled[job.rows[offered[place]]] = True
    started = time.perf_counter()
    answers = fitted.predict(job.configurations)
    answered_s = time.perf_counter() - started
    for place, found in enumerate(job.rows):
        rows = found[asked[found] & ~sampled[found]]
        seconds[rows] = answers[place]
    one = job.configurations.take(np.zeros(1, dtype=np.intp))
    single = _median_seconds(lambda: fitted.predict(one))
    bulk_s = answered_s * BULK / len(job.rows)
    return (job.number, len(bench.chosen), bench.wall_s, bench.device_s, fit_s, single, bulk_s)


def answer_seconds(fitted: Fitted, jobs: JobTable, rows: Ints) -> tuple[float, float]:
    """Seconds of one answer and of 1,000 at once, the features of the jobs given.

    Args:
        fitted: Who answers.
        jobs: The table.
        rows: Rows that may be asked.
    """
    singles = [jobs.take(rows[[place]]) for place in np.linspace(0, len(rows) - 1, _SINGLE_CALLS).astype(int)]
    thousand = jobs.take(np.resize(rows, BULK))
    fitted.predict(singles[0])
    single = float(np.median([_seconds(lambda one=one: fitted.predict(one)) for one in singles]))  # type: ignore[misc]
    return single, min(_seconds(lambda: fitted.predict(thousand)) for _ in range(3))


def _median_seconds(call: Callable[[], Any]) -> float:
    return float(np.median([_seconds(call) for _ in range(3)]))


def _seconds(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def _mask(rows: Ints, count: int) -> Bools:
    mask = np.zeros(count, dtype=bool)
    mask[rows] = True
    return mask
