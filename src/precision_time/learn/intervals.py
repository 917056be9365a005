"""Prediction intervals: conformal, scaled by the expected error, which grows with what of a job is new.

The residuals are out of fold, and of folds that each hold out something else: configurations, precisions,
larger clusters, models, devices, sources. So a job on a device that was never measured gets the width of the
errors that such jobs had.

References: Lei et al., JASA 113 (2018), locally weighted split conformal prediction; Vovk,
Mondrian conformal prediction (2005).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats, Number, sum_in_order
from ..records import dataclass
from .trees import TreeEnsemble

CLASSES = ("seen", "new")
"""Jobs of which nothing is new, and jobs of which something is."""
_GRID = np.linspace(0.0, 1.0, 401)
_MIN_SCALE = 0.01
"""No run repeats better than this (relative): repeat noise of the quietest sources."""
_NEW_AT = 0.5
"""Sum of log(1 + distance) over the kinds from which on a job counts as new; below, in proportion."""
_LEAST_ERROR = 0.01
"""Added to errors before their logarithm: below repeat noise there is nothing to learn."""
WIDTH_COVERAGE = 0.9
"""Of the intervals that the expected error of a job is read off."""
_BELOW_MEDIAN = 0.1
"""Of the product of the two log widths of a 90 % interval: so far below the median the answer lies. The least
error in percent over measured runs is at 0.15 to 0.2, in which whole published runs would take longer than
answered in three of four cases; at 0.1 most of the error is gone (docs/devdocs/learning.md)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IntervalModel:
    """Scale of the error by features and novelty, and quantiles of the scaled residuals."""

    scale: TreeEnsemble
    """log of the expected |log(measured / predicted)| among measured runs."""
    growth: Floats
    """log scale = growth[0] + growth[1] * trees + growth[2:] * log(1 + novelty), shape (2 + kinds,)."""
    quantiles: Mapping[str, Floats]
    """Of CLASSES: quantiles of log(measured / predicted) / scale at a grid of 401 levels."""

    def factors(self, features: Floats, novelty: Floats, coverage: float | Floats) -> tuple[Floats, Floats]:
        """Factors on the median, low and high, shape (n,) each; continuous in all that it is given.

        Args:
            features: Shape (n, n_features).
            novelty: Distance to the nearest measured run by kind, shape (n, kinds).
            coverage: Probability that the interval holds, 0..1; one for all or shape (n,).
        """
        return self.bounds(self.expected_error(features, novelty), novelty, coverage)

    def bounds(self, scale: Floats, novelty: Floats, coverage: float | Floats) -> tuple[Floats, Floats]:
        """The same, from expected errors, shape (n,)."""
        new = novel_share(novelty)
        low, high = (
            (1.0 - new) * np.interp(level, _GRID, self.quantiles["seen"])
            + new * np.interp(level, _GRID, self.quantiles["new"])
            for level in ((1.0 - coverage) / 2.0, (1.0 + coverage) / 2.0)
        )
        return np.exp(np.minimum(low, 0.0) * scale), np.exp(np.maximum(high, 0.0) * scale)

    def point(self, scale: Floats, novelty: Floats) -> Floats:
        """Factors on the median of the times that err least, from expected errors, shape (n,)."""
        return least_error(1.0, *self.bounds(scale, novelty, WIDTH_COVERAGE))

    def expected_error(self, features: Floats, novelty: Floats) -> Floats:
        """Expected |log(measured / predicted)|, shape (n,)."""
        return self.scale_of(self.scale.predict(features), novelty)

    def scale_of(self, trees: Floats, novelty: Floats) -> Floats:
        """The same, from what the trees say."""
        log_scale = sum_in_order(_regressors(trees, novelty) * self.growth)
        scale: Floats = np.maximum(np.exp(log_scale), _MIN_SCALE)
        return scale

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for the predictor's file."""
        named = {f"interval.{name}": values for name, values in self.quantiles.items()}
        return self.scale.to_arrays("scale") | named | {"interval.growth": self.growth}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> IntervalModel:
        """The model that `to_arrays` wrote."""
        return cls(
            scale=TreeEnsemble.from_arrays(arrays, "scale"),
            growth=arrays["interval.growth"],
            quantiles={name: arrays[f"interval.{name}"] for name in CLASSES},
        )


def least_error(median_s: Number, low_s: Floats, high_s: Floats) -> Floats:
    """The times that err least in percent: what is answered, shape (n,).

    A time that turns out to be half as long is missed by 100 %, one twice as long by 50 %: the least expected
    |answer / measured - 1| lies below the median, the more the wider what is expected. Reference: Gneiting,
    Making and Evaluating Point Forecasts, JASA 106 (2011), the (-1)-median.

    Args:
        median_s: Of what is expected.
        low_s: Lower ends of the intervals of coverage WIDTH_COVERAGE, shape (n,).
        high_s: Upper ends.
    """
    below: Floats = _BELOW_MEDIAN * np.log(median_s / low_s) * np.log(high_s / median_s)
    found: Floats = median_s * np.exp(-below)
    return np.maximum(found, low_s)


def novel_share(novelty: Floats) -> Floats:
    """How far the quantiles of jobs of which something is new apply, 0..1, shape (n,)."""
    share: Floats = np.minimum(np.log1p(novelty).sum(axis=1) / _NEW_AT, 1.0)
    return share


def fit_growth(trees: Floats, novelty: Floats, errors: Floats, weights: Floats) -> Floats:
    """Least squares of log errors on the trees' and on the novelty; no kind of novelty makes an error less.

    Args:
        trees: log of the error expected among measured runs, shape (n,).
        novelty: Shape (n, kinds).
        errors: Out-of-fold |log(measured / predicted)|, shape (n,).
        weights: Shape (n,).
    """
    columns, target = _regressors(trees, novelty), np.log(errors + _LEAST_ERROR)
    growth = np.zeros(columns.shape[1])
    used = np.ones(columns.shape[1], dtype=bool)
    root = np.sqrt(weights)[:, None]
    while True:
        growth[:] = 0.0
        growth[used] = np.linalg.lstsq(columns[:, used] * root, target * root[:, 0], rcond=None)[0]
        negative = growth < 0.0
        negative[0] = False
        if not negative.any():
            return growth
        used &= ~negative


def _regressors(trees: Floats, novelty: Floats) -> Floats:
    return np.concatenate([np.ones((len(trees), 1)), trees[:, None], np.log1p(novelty)], axis=1)


def fit_quantiles(scaled_residuals: Floats, weights: Floats) -> Floats:
    """Weighted quantiles of scaled residuals at the grid's levels."""
    order = np.argsort(scaled_residuals)
    cumulative = np.cumsum(weights[order])
    levels = (cumulative - 0.5 * weights[order]) / cumulative[-1]
    quantiles: Floats = np.interp(_GRID, levels, scaled_residuals[order])
    return quantiles
