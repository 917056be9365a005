"""Effects of a cluster from its measured points: the more of them, the further from the prior.

Maximum a posteriori by Gauss-Newton (only `communication` is not linear) under Student's t, so that one odd
point does not speak for a cluster; the covariance is that of the last linear model. The noise starts from
the prior's and follows the points as they come to outweigh it.

Reference: Lange, Little, Taylor, Robust statistical modeling using the t distribution, JASA 84 (1989).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .effects import Place, design, effect_names, kind_of, waiting
from .prior import Prior

Floats = NDArray[np.float64]

_ROUNDS = 20
_FREEDOM = 4.0
"""Degrees of freedom of Student's t."""
_PRIOR_POINTS = 4.0
"""How many points the prior's noise counts for."""
_LARGEST = 3.0
"""Of the logarithm of the communication factor."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Posterior:
    """Means and covariance of the effects, and the noise, all of logarithms."""

    names: tuple[str, ...]
    mean: Floats
    covariance: Floats
    noise_sd: float


def fit_effects(places: Sequence[Place], residuals: Floats, prior: Prior) -> Posterior:
    """The effects under which the points and the prior are most likely.

    Args:
        places: Of the points, one per configuration.
        residuals: log(measured / predicted), shape (n,).
        prior: What is known without them.
    """
    names = effect_names(places)
    matrix = design(places, names)
    shares = np.array([place.exposed_share for place in places])
    last = names.index("communication")
    precision = np.diag([1.0 / prior.sd[kind_of(name)] ** 2 for name in names])
    noise = prior.noise_sd**2
    mean = np.zeros(len(names))
    covariance: Floats = np.linalg.inv(precision).astype(np.float64)
    for _ in range(_ROUNDS):
        waits, slope = waiting(shares, float(mean[last]))
        linear = matrix.copy()
        linear[:, last] = slope
        left = residuals - matrix @ mean - waits
        weights = (_FREEDOM + 1.0) / (_FREEDOM + np.square(left) / noise)
        aim = residuals - waits + slope * mean[last]
        weighted = linear.T * weights / noise
        covariance = np.linalg.inv(weighted @ linear + precision).astype(np.float64)
        mean = covariance @ (weighted @ aim)
        mean[last] = float(np.clip(mean[last], -_LARGEST, _LARGEST))
        left = residuals - matrix @ mean - waiting(shares, float(mean[last]))[0]
        spread = _PRIOR_POINTS * prior.noise_sd**2 + float(weights @ np.square(left))
        noise = spread / (_PRIOR_POINTS + len(left))
    return Posterior(names=names, mean=mean, covariance=covariance, noise_sd=float(np.sqrt(noise)))


def factors(places: Sequence[Place], posterior: Posterior, prior: Prior) -> tuple[Floats, Floats, Floats]:
    """What the effects make of jobs, shape (n,) each.

    Returns:
        Logarithm of the factor on the whole step but for communication; standard deviation of log(measured /
        calibrated); and that of log(measured / predicted) before any point.
    """
    matrix = design(places, posterior.names)
    last = posterior.names.index("communication")
    shares = np.array([place.exposed_share for place in places])
    _, slope = waiting(shares, float(posterior.mean[last]))
    known = {*posterior.names}
    new = np.array(
        [
            sum(prior.sd[kind] ** 2 for kind, name in place.names().items() if name not in known)
            for place in places
        ]
    )
    common = matrix @ posterior.mean
    matrix[:, last] = slope
    spread = np.einsum("ij,jk,ik->i", matrix, posterior.covariance, matrix) + new + posterior.noise_sd**2
    lengths = np.array([place.length for place in places])
    named = prior.sd["cluster"] ** 2 + sum(prior.sd[kind] ** 2 for kind in places[0].names())
    before = (
        named
        + np.square(prior.sd["length"] * lengths)
        + np.square(prior.sd["communication"] * shares)
        + prior.noise_sd**2
    )
    return common, np.sqrt(spread), np.sqrt(before)
