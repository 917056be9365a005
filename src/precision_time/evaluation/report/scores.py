"""Errors by groups, ranking, repeat noise, and what limits the worst groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...corpus.measurement import Measurement, Quality
from ...learn.table import MeasuredTable
from .contract import Figure

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

NOISE, FACTS = "data noise", "missing facts"
FACTOR, PHYSICS = "missing physics: wrong by one factor", "missing physics"
LIMITS = (NOISE, FACTS, FACTOR, PHYSICS)
"""What may limit a group."""
_PAIRS = 200_000
_LEAST_ROWS = 5
_NOISE_SHARE = 0.5
_BIAS_SHARE = 0.7
_DOUBT_SHARE = 0.5


@dataclass(frozen=True, kw_only=True, slots=True)
class WorstGroup:
    """A group of runs that a predictor gets wrong."""

    name: str
    n: int
    mape_percent: float
    bias_percent: float
    noise_percent: float | None
    """Mean deviation of repeats of one configuration from their median."""
    sources: str
    limit: str
    """What likely limits it."""


def errors_percent(measured_s: Floats, predicted_s: Floats) -> Floats:
    """Absolute percentage errors; NaN where nothing was predicted."""
    errors: Floats = np.abs(predicted_s / measured_s - 1.0) * 100.0
    return errors


def mape(measured_s: Floats, predicted_s: Floats) -> float | None:
    """Mean error over the rows that were predicted [%]; None without any."""
    errors = errors_percent(measured_s, predicted_s)
    asked = ~np.isnan(errors)
    return float(errors[asked].mean()) if asked.any() else None


def over_seeds(values: Sequence[float]) -> Figure:
    """Mean and standard deviation over seeds.

    >>> over_seeds([7.0, 9.0])
    Figure(value=8.0, spread=1.4142135623730951)
    """
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Figure(value=float(np.mean(values)), spread=spread)


def ranking_tau(
    groups: Sequence[str], measured_s: Floats, predicted_s: Floats, *, seed: int = 0
) -> float | None:
    """Kendall's tau over pairs of runs of one group, up to 200,000 drawn at random; None without pairs.

    Args:
        groups: Group of each run: only runs that one would choose between are compared.
        measured_s: Shape (n,).
        predicted_s: Shape (n,), NaN where nothing was predicted.
        seed: Of the pairs drawn.
    """
    asked = np.flatnonzero(~np.isnan(predicted_s))
    _, inverse, counts = np.unique(np.asarray(groups)[asked], return_inverse=True, return_counts=True)
    order = asked[np.argsort(inverse, kind="stable")]
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    pairs = counts * (counts - 1.0) / 2.0
    if not pairs.sum():
        return None
    draw = np.random.default_rng(seed)
    chosen = draw.choice(len(counts), size=_PAIRS, p=pairs / pairs.sum())
    first = draw.integers(0, counts[chosen])
    second = (first + draw.integers(1, counts[chosen])) % counts[chosen]
    left, right = order[starts[chosen] + first], order[starts[chosen] + second]
    signs = np.sign(measured_s[left] - measured_s[right]) * np.sign(predicted_s[left] - predicted_s[right])
    return float(signs.mean())


def repeat_deviations(table: MeasuredTable) -> Floats:
    """|median of the repeats / measured - 1| of each row [%]; NaN for configurations measured once."""
    keys = np.unique([item.configuration_key for item in table.measurements], return_inverse=True)[1]
    order = np.argsort(keys, kind="stable")
    deviations = np.full(len(keys), np.nan)
    for rows in np.split(order, np.flatnonzero(np.diff(keys[order])) + 1):
        if len(rows) > 1:
            median = np.median(table.measured_s[rows])
            deviations[rows] = np.abs(median / table.measured_s[rows] - 1.0) * 100.0
    return deviations


def worst_groups(
    table: MeasuredTable,
    predicted_s: Floats,
    group: Callable[[Measurement], str],
    *,
    noise: Floats,
    count: int = 10,
) -> tuple[WorstGroup, ...]:
    """The groups of at least 5 predicted rows with the largest mean error, worst first.

    Args:
        table: Measured runs.
        predicted_s: Shape (n,), NaN where nothing was predicted.
        group: Names the group of a run.
        noise: What `repeat_deviations` says.
        count: How many at most.
    """
    groups = scored_groups(table, predicted_s, group, noise=noise)
    return tuple([item for item in groups if item.n >= _LEAST_ROWS][:count])


def scored_groups(
    table: MeasuredTable, predicted_s: Floats, group: Callable[[Measurement], str], *, noise: Floats
) -> tuple[WorstGroup, ...]:
    """All groups of predicted rows, worst first; see `worst_groups`."""
    asked = np.flatnonzero(~np.isnan(predicted_s))
    names = np.array([group(table.measurements[row]) for row in asked])
    kinds, inverse = np.unique(names, return_inverse=True)
    order = np.argsort(inverse, kind="stable")
    parts = np.split(asked[order], np.flatnonzero(np.diff(inverse[order])) + 1) if len(asked) else []
    found = [
        _group(str(name), table, rows, predicted_s, noise) for name, rows in zip(kinds, parts, strict=True)
    ]
    return tuple(sorted(found, key=lambda item: -item.mape_percent))


def _group(
    name: str, table: MeasuredTable, rows: NDArray[np.intp], predicted_s: Floats, noise: Floats
) -> WorstGroup:
    ratio = predicted_s[rows] / table.measured_s[rows]
    error = float(np.abs(ratio - 1.0).mean() * 100.0)
    bias = float((np.median(ratio) - 1.0) * 100.0)
    repeated = noise[rows][~np.isnan(noise[rows])]
    own_noise = float(repeated.mean()) if len(repeated) else None
    runs = [table.measurements[row] for row in rows]
    doubtful = float(
        np.mean([item.quality is not Quality.FINE or bool(item.quality_reason) for item in runs])
    )
    return WorstGroup(
        name=name,
        n=len(rows),
        mape_percent=error,
        bias_percent=bias,
        noise_percent=own_noise,
        sources=", ".join(source for source, _ in Counter(item.source for item in runs).most_common(2)),
        limit=_limit(error, bias, own_noise, doubtful),
    )


def _limit(error: float, bias: float, noise: float | None, doubtful: float) -> str:
    """A rule of thumb, in the order in which each would explain the error."""
    if noise is not None and noise >= _NOISE_SHARE * error:
        return NOISE
    if doubtful >= _DOUBT_SHARE:
        return FACTS
    if abs(bias) >= _BIAS_SHARE * error:
        return FACTOR
    return PHYSICS
