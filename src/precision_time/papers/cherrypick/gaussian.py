r"""The Gaussian process under CherryPick: a prior over log times or log costs of configurations.

Kernel: Matern 5/2, $k(r) = s^2 (1 + \sqrt5 r/l + 5 r^2 / 3 l^2) \exp(-\sqrt5 r/l)$ with a length per feature,
plus noise; logarithms make the noise of runs multiplicative (Alipourfard et al., CherryPick, NSDI 2017,
sections 3.3 and 3.5).

scikit-learn's regressor does the work. Optuna's GP sampler was the other candidate: it proposes points of a
product of ranges, while here only configurations that exist may be chosen, so its proposals would have to be
moved to the nearest real one and its stop rule rebuilt from outside. Over a finite set the posterior of every
candidate is one call.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import MissingExtraError
from ..contract import Floats

_LENGTHS = (0.1, 10.0)
_VARIANCES = (0.05, 20.0)
_NOISE = (1e-4, 0.2)
_FIRST_NOISE = 1e-2


@dataclass(frozen=True, kw_only=True, slots=True)
class Gaussian:
    """A process conditioned on some values."""

    process: Any
    """scikit-learn's regressor, fitted."""

    def posterior(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the values at points, shape (k,) each.

        Args:
            x: Points, shape (k, n_features).
        """
        mean, deviation = self.process.predict(x, return_std=True)
        return np.asarray(mean, dtype=np.float64), np.asarray(deviation, dtype=np.float64)


def fit_gaussian(x: Floats, y: Floats, *, seed: int) -> Gaussian:
    """Condition the process on values, its kernel fitted by maximum likelihood.

    Args:
        x: Points within the unit cube, shape (k, n_features).
        y: Logarithms of what was measured there, shape (k,).
        seed: Of scikit-learn's optimizer.

    Raises:
        MissingExtraError: If scikit-learn is not installed.
    """
    try:
        from sklearn.exceptions import ConvergenceWarning
        from sklearn.gaussian_process import GaussianProcessRegressor
        from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
    except ImportError as error:
        raise MissingExtraError(
            package="scikit-learn", extra="learners", purpose="search configurations by Bayesian optimisation"
        ) from error
    lengths = np.ones(x.shape[1])
    kernel = ConstantKernel(1.0, _VARIANCES) * Matern(lengths, _LENGTHS, nu=2.5) + WhiteKernel(
        _FIRST_NOISE, _NOISE
    )
    process = GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    with warnings.catch_warnings():
        # A handful of points leaves lengths at their bounds: that is what the bounds are for.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(x, y)
    return Gaussian(process=process)


def unit_cube(features: Floats) -> Floats:
    """Columns brought to 0 .. 1, columns that do not vary left out; shape (k, varying).

    >>> unit_cube(np.array([[1.0, 5.0], [3.0, 5.0], [2.0, 5.0]])).ravel().tolist()
    [0.0, 1.0, 0.5]
    """
    low, high = features.min(axis=0), features.max(axis=0)
    varying = high > low
    scaled: Floats = (features[:, varying] - low[varying]) / (high - low)[varying]
    return scaled if scaled.shape[1] else np.zeros((len(features), 1))
