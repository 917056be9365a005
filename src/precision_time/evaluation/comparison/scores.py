"""Figures of one predictor on the rows that all are scored on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...papers.contract import JOB_ID, column
from ..report.scores import ranking_tau
from .runs import ComparedRuns

Floats = NDArray[np.float64]

_LEAST_OF_A_PRECISION = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Score:
    """Errors |predicted - measured| / measured of the step time, mean over seeds."""

    name: str
    title: str
    question: str
    population: str
    rows: int
    """Of the first seed."""
    jobs: int
    architectures: int
    mape_percent: float
    spread_percent: float | None
    """Standard deviation of the MAPE over seeds; None with one."""
    by_job_percent: float
    """Every job counting alike, whatever its number of rows."""
    median_percent: float
    p90_percent: float
    tau_within_jobs: float | None
    """Kendall's tau over pairs of configurations of one job."""
    tau_overall: float | None
    by_precision: dict[str, float]
    """MAPE of the precisions with at least 20 rows."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {name: getattr(self, name) for name in self.__slots__}


def score(
    runs: ComparedRuns, name: str, title: str, question: str, population: str, seeds: Sequence[int]
) -> Score | None:
    """Score one predictor; None where the population has no rows."""
    single = [_of_one_seed(runs, name, question, population, seed) for seed in seeds]
    found = [item for item in single if item is not None]
    if not found:
        return None

    def mean(key: str) -> float:
        return float(np.mean([item[key] for item in found]))

    mapes = [item["mape"] for item in found]
    taus = {key: [item[key] for item in found if item[key] is not None] for key in ("tau_in", "tau_all")}
    first = found[0]
    return Score(
        name=name,
        title=title,
        question=question,
        population=population,
        rows=first["rows"],
        jobs=first["jobs"],
        architectures=first["architectures"],
        mape_percent=mean("mape"),
        spread_percent=float(np.std(mapes, ddof=1)) if len(mapes) > 1 else None,
        by_job_percent=mean("by_job"),
        median_percent=mean("median"),
        p90_percent=mean("p90"),
        tau_within_jobs=float(np.mean(taus["tau_in"])) if taus["tau_in"] else None,
        tau_overall=float(np.mean(taus["tau_all"])) if taus["tau_all"] else None,
        by_precision=_by_precision(found),
    )


def errors_percent(runs: ComparedRuns, name: str, question: str, population: str, seed: int) -> Floats:
    """Absolute percentage errors, shape (n,); NaN for rows that are not scored."""
    predicted = runs.held_out(name, question, seed).step_time_s
    asked = runs.asked(question, seed, population)
    errors: Floats = np.abs(predicted / runs.wide.table.measured_s - 1.0) * 100.0
    return np.where(asked, errors, np.nan)


def _of_one_seed(
    runs: ComparedRuns, name: str, question: str, population: str, seed: int
) -> dict[str, Any] | None:
    errors = errors_percent(runs, name, question, population, seed)
    rows = np.flatnonzero(runs.asked(question, seed, population))
    if not len(rows):
        return None
    table = runs.wide.table
    asked = errors[rows]
    jobs = column(table.jobs, JOB_ID)[rows].astype(np.intp)
    _, inverse = np.unique(jobs, return_inverse=True)
    per_job = np.bincount(inverse, weights=asked) / np.bincount(inverse)
    measured, predicted = table.measured_s[rows], runs.held_out(name, question, seed).step_time_s[rows]
    precisions = np.array([table.measurements[row].precision for row in rows])
    kinds, counts = np.unique(precisions, return_counts=True)
    return {
        "rows": len(rows),
        "jobs": len(per_job),
        "architectures": len({table.measurements[row].model for row in rows}),
        "mape": float(asked.mean()),
        "by_job": float(per_job.mean()),
        "median": float(np.median(asked)),
        "p90": float(np.percentile(asked, 90)),
        "tau_in": ranking_tau(jobs.tolist(), measured, predicted, seed=seed),
        "tau_all": ranking_tau([""] * len(rows), measured, predicted, seed=seed),
        "precisions": {
            str(kind): float(asked[precisions == kind].mean())
            for kind, count in zip(kinds, counts, strict=True)
            if count >= _LEAST_OF_A_PRECISION
        },
    }


def _by_precision(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    names = sorted({name for item in found for name in item["precisions"]})
    return {
        name: float(np.mean([item["precisions"][name] for item in found if name in item["precisions"]]))
        for name in names
    }
