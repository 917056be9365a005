"""Errors by group and by predictor, ranking, repeat noise, and what limits the worst groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.corpus.measurement import Measurement, Quality
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.metrics import ErrorSummary, errors_percent, mape
from precision_time.render.document import Metric

from ..contract import Bools, Floats
from .cross_validation import Runs
from .measured_jobs import job_numbers

NOISE, DOUBTFUL = "repeats differ as well", "doubtful rows"
FACTOR, MIXED = "one factor for all", "none of these"
LIMITS = (NOISE, DOUBTFUL, FACTOR, MIXED)
"""What the errors of a group show; not what causes them."""
_LEAST_ROWS, _MOST_GROUPS = 5, 10
_LEAST_OF_A_PRECISION = 20
_NOISE_SHARE = 0.5
_BIAS_SHARE = 0.7
_DOUBT_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstGroup:
    """A group of runs that a predictor gets wrong."""

    name: str
    errors: ErrorSummary
    noise_percent: float | None
    """Mean deviation of repeats of one configuration from their median."""
    sources: str
    limit: str
    """Of LIMITS."""


def over_seeds(values: Sequence[float]) -> Metric:
    """Mean and standard deviation over seeds.

    >>> over_seeds([7.0, 9.0])
    Metric(value=8.0, spread=1.4142135623730951)
    """
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Metric(value=float(np.mean(values)), spread=spread)


def mape_over_seeds(
    measured_s: Floats, predicted: Sequence[Floats], rows: Bools | slice = slice(None)
) -> Metric | None:
    """MAPE of some rows, mean over the predictions of each seed [%]; None where nothing was predicted."""
    each = [mape(measured_s[rows], seconds[rows]) for seconds in predicted]
    known = [error for error in each if error is not None]
    return over_seeds(known) if known else None


def mean_over_groups(values: Floats, groups: Sequence[Any] | NDArray[Any]) -> float:
    """Mean over the groups of each one's mean, every group alike; NaN: not counted.

    >>> mean_over_groups(np.array([1.0, 3.0, 8.0, np.nan]), ["a", "a", "b", "c"])
    5.0
    """
    found = rows_of_groups(groups, ~np.isnan(values)).values()
    return float(np.mean([values[rows].mean() for rows in found]))


def ranking_tau(
    groups: Sequence[Any] | NDArray[Any], measured_s: Floats, predicted_s: Floats
) -> float | None:
    """`kendall_tau` within groups, weighted by their pairs of runs; None without pairs that differ.

    Args:
        groups: Group of each run: only runs that one would choose between are compared.
        measured_s: Shape (n,).
        predicted_s: Shape (n,), NaN where nothing was predicted.
    """
    taus: list[float] = []
    pairs: list[float] = []
    for rows in rows_of_groups(groups, ~np.isnan(predicted_s)).values():
        if len(rows) > 1:
            tau = kendall_tau(measured_s[rows], predicted_s[rows])
            if tau is not None:
                taus.append(tau)
                pairs.append(len(rows) * (len(rows) - 1) / 2)
    return float(np.average(taus, weights=pairs)) if pairs else None


def kendall_tau(x: Floats, y: Floats) -> float | None:
    """Kendall's tau-b of two rankings; None where one of them is constant.

    Formula: (C - D) / sqrt((n0 - nx)(n0 - ny)), with C pairs in the same order, D in opposite orders, n0 in
    all, nx and ny tied in one.
    Source: Kendall, The treatment of ties in ranking problems, Biometrika 33, 1945.

    Args:
        x: Shape (n,).
        y: Shape (n,).

    >>> round(kendall_tau(np.array([1.0, 2.0, 3.0, 3.0]), np.array([1.0, 3.0, 2.0, 4.0])), 3)
    0.548
    """
    first, second = (np.unique(values, return_inverse=True)[1] for values in (x, y))
    pairs = len(x) * (len(x) - 1) // 2
    tied_x, tied_y, tied_both = (_tied(ranks) for ranks in (first, second, first * len(x) + second))
    if pairs in (tied_x, tied_y):
        return None
    opposite = _inversions(second[np.lexsort((second, first))])
    difference = pairs - tied_x - tied_y + tied_both - 2 * opposite
    return float(np.clip(difference / np.sqrt(pairs - tied_x) / np.sqrt(pairs - tied_y), -1.0, 1.0))


def _tied(ranks: NDArray[np.intp]) -> int:
    counts = np.unique(ranks, return_counts=True)[1]
    return int((counts * (counts - 1) // 2).sum())


def _inversions(ranks: NDArray[np.intp]) -> int:
    """Pairs in descending order, one bit after the other: a 1 before a 0 where all higher bits are equal."""
    found = 0
    for bit in reversed(range(int(ranks.max(initial=0)).bit_length())):
        ones = (ranks >> bit) & 1
        higher = ranks >> (bit + 1)
        order = np.argsort(higher, kind="stable")
        ones, higher = ones[order], higher[order]
        before = np.cumsum(ones) - ones
        first = np.searchsorted(higher, higher)
        found += int((before - before[first])[ones == 0].sum())
    return found


def rows_of_groups(groups: Sequence[Any] | NDArray[Any], chosen: Bools) -> dict[str, NDArray[np.intp]]:
    """The chosen rows of each group, by the group's name in ascending order."""
    tested = np.flatnonzero(chosen)
    if not len(tested):
        return {}
    kinds, inverse = np.unique(np.asarray(groups)[tested], return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    parts = np.split(tested[order], np.flatnonzero(np.diff(inverse[order])) + 1)
    return {str(name): rows for name, rows in zip(kinds, parts, strict=True)}


def repeat_deviations(table: MeasuredTable) -> Floats:
    """|median of the repeats / measured - 1| of each row [%]; NaN for configurations measured once."""
    keys = [item.configuration_key for item in table.measurements]
    deviations = np.full(len(keys), np.nan)
    for rows in rows_of_groups(keys, np.ones(len(keys), dtype=bool)).values():
        if len(rows) > 1:
            median = np.median(table.measured_s[rows])
            deviations[rows] = np.abs(median / table.measured_s[rows] - 1.0) * 100.0
    return deviations


def worst_groups(
    table: MeasuredTable, predicted_s: Floats, group: Callable[[Measurement], str], *, noise: Floats
) -> tuple[WorstGroup, ...]:
    """The ten worst of `scored_groups` among those of at least 5 predicted rows."""
    groups = scored_groups(table, predicted_s, group, noise=noise)
    return tuple([item for item in groups if item.errors.n >= _LEAST_ROWS][:_MOST_GROUPS])


def scored_groups(
    table: MeasuredTable, predicted_s: Floats, group: Callable[[Measurement], str], *, noise: Floats
) -> tuple[WorstGroup, ...]:
    """All groups of predicted rows, the largest mean error first.

    Args:
        table: Measured runs.
        predicted_s: Shape (n,), NaN where nothing was predicted.
        group: Names the group of a run.
        noise: From `repeat_deviations`.
    """
    names = [group(item) for item in table.measurements]
    found = []
    for name, rows in rows_of_groups(names, ~np.isnan(predicted_s)).items():
        errors = ErrorSummary.of(table.measured_s[rows], predicted_s[rows])
        repeated = noise[rows][~np.isnan(noise[rows])]
        own_noise = float(repeated.mean()) if len(repeated) else None
        runs = [table.measurements[row] for row in rows]
        doubtful = np.mean([item.quality is not Quality.FINE or bool(item.quality_reason) for item in runs])
        sources = Counter(item.source for item in runs).most_common(2)
        found.append(
            WorstGroup(
                name=name,
                errors=errors,
                noise_percent=own_noise,
                sources=", ".join(source for source, _ in sources),
                limit=_limit(errors, own_noise, float(doubtful)),
            )
        )
    return tuple(sorted(found, key=lambda item: -item.errors.mape_percent))


def _limit(errors: ErrorSummary, noise: float | None, doubtful: float) -> str:
    """The first of LIMITS that holds."""
    if noise is not None and noise >= _NOISE_SHARE * errors.mape_percent:
        return NOISE
    if doubtful >= _DOUBT_SHARE:
        return DOUBTFUL
    if abs(errors.bias_percent) >= _BIAS_SHARE * errors.mape_percent:
        return FACTOR
    return MIXED


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictorScore:
    """Errors |predicted - measured| / measured of the step time of one predictor, mean over seeds."""

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
    """Every job with the same weight, whatever its number of rows."""
    job_median_percent: float
    """Median over the jobs of their mean errors."""
    median_percent: float
    p90_percent: float
    tau_within_jobs: float | None
    """Kendall's tau over pairs of configurations of one job."""
    tau_overall: float | None
    by_precision: dict[str, float]
    """MAPE of the precisions with at least 20 rows."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return asdict(self)


def scored_errors_percent(runs: Runs, name: str, protocol: str, population: str, seed: int) -> Floats:
    """Absolute percentage errors, shape (n,); NaN for rows that are not scored."""
    errors = errors_percent(runs.table.measured_s, runs.predict(name, protocol, seed).step_time_s)
    return np.where(runs.scored(protocol, seed, population), errors, np.nan)


def score_predictor(
    runs: Runs, name: str, title: str, question: str, protocol: str, population: str, seeds: Sequence[int]
) -> PredictorScore | None:
    """Score one predictor; None where the population has no rows."""
    found = [_of_one_seed(runs, name, protocol, population, seed) for seed in seeds]
    found = [item for item in found if item]
    if not found:
        return None
    means = {}
    for key in (
        "by_job_percent",
        "job_median_percent",
        "median_percent",
        "p90_percent",
        "tau_within_jobs",
        "tau_overall",
    ):
        known = [item[key] for item in found if item[key] is not None]
        means[key] = float(np.mean(known)) if known else None
    precisions = sorted({name for item in found for name in item["precisions"]})
    mape_metric = over_seeds([item["mape"] for item in found])
    return PredictorScore(
        name=name,
        title=title,
        question=question,
        population=population,
        **{key: found[0][key] for key in ("rows", "jobs", "architectures")},
        mape_percent=mape_metric.value,
        spread_percent=mape_metric.spread,
        **means,  # type: ignore[arg-type]
        by_precision={
            name: float(np.mean([item["precisions"][name] for item in found if name in item["precisions"]]))
            for name in precisions
        },
    )


def _of_one_seed(runs: Runs, name: str, protocol: str, population: str, seed: int) -> dict[str, Any]:
    rows = np.flatnonzero(runs.scored(protocol, seed, population))
    if not len(rows):
        return {}
    table, predicted_s = runs.table, runs.predict(name, protocol, seed).step_time_s[rows]
    measured_s = table.measured_s[rows]
    errors, summary = errors_percent(measured_s, predicted_s), ErrorSummary.of(measured_s, predicted_s)
    jobs = job_numbers(runs.jobs, len(table))[rows]
    _, inverse = np.unique(jobs, return_inverse=True)
    per_job = np.bincount(inverse, weights=errors) / np.bincount(inverse)
    precisions = rows_of_groups(
        [table.measurements[row].precision for row in rows], np.ones(len(rows), dtype=bool)
    )
    return {
        "rows": len(rows),
        "jobs": len(per_job),
        "architectures": len({table.measurements[row].model for row in rows}),
        "mape": summary.mape_percent,
        "by_job_percent": float(per_job.mean()),
        "job_median_percent": float(np.median(per_job)),
        "median_percent": summary.median_ape_percent,
        "p90_percent": summary.p90_ape_percent,
        "tau_within_jobs": ranking_tau(jobs, measured_s, predicted_s),
        "tau_overall": ranking_tau(np.zeros(len(rows)), measured_s, predicted_s),
        "precisions": {
            kind: float(errors[own].mean())
            for kind, own in precisions.items()
            if len(own) >= _LEAST_OF_A_PRECISION
        },
    }
