"""Errors of predictions, all of the time itself (never of its logarithm)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..records import dataclass

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorSummary:
    """Absolute percentage errors |predicted - measured| / measured of n rows."""

    n: int
    mape_percent: float
    median_ape_percent: float
    p90_ape_percent: float
    bias_percent: float
    """Median of predicted / measured - 1."""
    interval_coverage: float | None
    """Share of rows whose measured time lies in its interval."""

    @classmethod
    def of(
        cls,
        measured_s: Floats,
        predicted_s: Floats,
        low_s: Floats | None = None,
        high_s: Floats | None = None,
    ) -> ErrorSummary:
        """Errors of at least one prediction, and how many measured times lie in their intervals."""
        errors = errors_percent(measured_s, predicted_s)
        coverage = None
        if low_s is not None and high_s is not None:
            coverage = float(np.mean((measured_s >= low_s) & (measured_s <= high_s)))
        return cls(
            n=len(measured_s),
            mape_percent=float(errors.mean()),
            median_ape_percent=float(np.median(errors)),
            p90_ape_percent=float(np.percentile(errors, 90)),
            bias_percent=float((np.median(predicted_s / measured_s) - 1.0) * 100.0),
            interval_coverage=coverage,
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return asdict(self)


def errors_percent(measured_s: Floats, predicted_s: Floats) -> Floats:
    """Absolute percentage errors; NaN where nothing was predicted."""
    errors: Floats = np.abs(predicted_s / measured_s - 1.0) * 100.0
    return errors


def mape(measured_s: Floats, predicted_s: Floats) -> float | None:
    """Mean error over the rows that were predicted [%]; None without any."""
    errors = errors_percent(measured_s, predicted_s)
    tested = ~np.isnan(errors)
    return float(errors[tested].mean()) if tested.any() else None


def summarize(measured_s: Floats, predicted_s: Floats) -> ErrorSummary | None:
    """Errors of the rows that were predicted (NaN: not predicted), None without any.

    >>> summary = summarize(np.array([1.0, 2.0]), np.array([1.1, 1.8]))
    >>> round(summary.mape_percent, 6), summary.n
    (10.0, 2)
    """
    tested = ~np.isnan(predicted_s)
    return ErrorSummary.of(measured_s[tested], predicted_s[tested]) if tested.any() else None
