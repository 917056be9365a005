"""Prediction intervals: conformal, scaled by expected error, calibrated by the distance to the training set.

The residuals are out of fold. For a job within the training set the folds are of configurations; for one
farther away, of whole models and whole sources. So a job unlike any measured run gets the width of the errors
that such jobs had.

References: Lei et al., JASA 113 (2018), locally weighted split conformal prediction; Vovk,
Mondrian conformal prediction (2005).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .distance import LOCAL_RADIUS, MODERATE_RADIUS
from .trees import TreeEnsemble

Floats = NDArray[np.float64]

EXTRAPOLATION = ("none", "moderate", "strong")
"""How far a job is from the training set: within it, near it, unlike any measured run."""
_STORED = dict(zip(EXTRAPOLATION, ("known", "near", "far"), strict=True))
"""Names of the same in the predictor's file."""
_GRID = np.linspace(0.0, 1.0, 401)
_MIN_SCALE = 0.01
"""No run repeats better than this (relative): repeat noise of the quietest sources."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IntervalModel:
    """Scale of the error by features, and quantiles of the scaled residuals by extrapolation."""

    scale: TreeEnsemble
    """log of the expected |log(measured / predicted)|."""
    quantiles: Mapping[str, Floats]
    """Extrapolation to the quantiles of log(measured / predicted) / scale at a grid of 401 levels."""

    def factors(self, features: Floats, classes: NDArray[np.intp], coverage: float) -> tuple[Floats, Floats]:
        """Factors on the predicted time, low and high, shape (n,) each.

        Args:
            features: Shape (n, n_features).
            classes: Index into EXTRAPOLATION, shape (n,).
            coverage: Probability that the interval holds, 0..1.
        """
        scale = self.expected_error(features)
        tail = (1.0 - coverage) / 2.0
        low, high = np.empty(len(scale)), np.empty(len(scale))
        for index, name in enumerate(EXTRAPOLATION):
            rows = classes == index
            low[rows] = np.interp(tail, _GRID, self.quantiles[name])
            high[rows] = np.interp(1.0 - tail, _GRID, self.quantiles[name])
        return np.exp(np.minimum(low, 0.0) * scale), np.exp(np.maximum(high, 0.0) * scale)

    def expected_error(self, features: Floats) -> Floats:
        """Expected |log(measured / predicted)|, shape (n,)."""
        scale: Floats = np.maximum(np.exp(self.scale.predict(features)), _MIN_SCALE)
        return scale

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays for the predictor's `.npz` file."""
        named = {f"interval.{_STORED[name]}": values for name, values in self.quantiles.items()}
        return self.scale.to_arrays("scale") | named

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> IntervalModel:
        """The model that `to_arrays` wrote."""
        return cls(
            scale=TreeEnsemble.from_arrays(arrays, "scale"),
            quantiles={name: arrays[f"interval.{_STORED[name]}"] for name in EXTRAPOLATION},
        )


def extrapolation(distance: Floats) -> NDArray[np.intp]:
    """Index into EXTRAPOLATION of jobs at a distance to the training set.

    >>> extrapolation(np.array([0.0, 1.5, 7.0])).tolist()
    [0, 1, 2]
    """
    return np.where(distance <= LOCAL_RADIUS, 0, np.where(distance <= MODERATE_RADIUS, 1, 2)).astype(np.intp)


def fit_quantiles(scaled_residuals: Floats, weights: Floats) -> Floats:
    """Weighted quantiles of scaled residuals at the grid's levels."""
    order = np.argsort(scaled_residuals)
    cumulative = np.cumsum(weights[order])
    levels = (cumulative - 0.5 * weights[order]) / cumulative[-1]
    quantiles: Floats = np.interp(_GRID, levels, scaled_residuals[order])
    return quantiles
