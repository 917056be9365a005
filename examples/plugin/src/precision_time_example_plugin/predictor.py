"""A predictor: the cost model, times the factor by which measured runs are usually slower."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from precision_time_papers.contract import FeatureTable, Floats, Ints, JobViews, require_rows
from precision_time_papers.registry import Needs, PredictorEntry


@dataclass(frozen=True)
class MedianFactor:
    """Fitted: seconds of the cost model times one factor."""

    factor: float

    def predict(self, jobs: JobViews) -> Floats:
        """Step times of jobs [s], shape (n,)."""
        return self.factor * jobs.native.analytical_s


class MedianFactorEstimator:
    """Learns the median of measured over modeled step times."""

    title = "median factor"
    citation = "Example of a plugin, precision-time 2026"

    def fit(self, table: FeatureTable, rows: Ints) -> MedianFactor:
        """Fit to some rows of a table."""
        require_rows(rows, self.title)
        factors = table.measured_s[rows] / table.jobs.native.analytical_s[rows]
        return MedianFactor(factor=float(np.median(factors)))


PREDICTOR = PredictorEntry(
    name="median-factor",
    make=lambda options: MedianFactorEstimator(),
    knows="architecture and precision",
    needs=Needs.PRICING,
)
