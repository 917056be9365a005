r"""How measured points move a prediction: parameters of the step with priors, and a process of what is left.

log(measured / predicted) of a job = log(sum of shares x exp(parameters)) + residual + noise. A parameter is
the logarithm of how much longer one part of the step takes (`places.PARAMETERS`); it is a Gaussian process
over the kinds of jobs, so that a slow link speaks for every precision, and a slow product mostly for its own.
The residual is one over all differences. Every covariance is

$$\sigma^2 (w w')^p \exp(-\sum_d r_d |d - d'|)$$

with w the error that the predictor expects of the job and r how fast likeness is lost along a difference.
The points are conditioned on by Gauss-Newton steps: the sum is linearised at the parameters found so far.

References: Rasmussen, Williams, Gaussian Processes for Machine Learning (2006), chapters 2 and 5;
leave-one-out residuals, section 5.4.2; Huber, Robust Statistics (1981), for points far off.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...forks import cached_property
from ...records import dataclass
from .places import DIFFERENCES, KINDS, PARAMETERS, Places

Floats = NDArray[np.float64]

PROCESSES = (*PARAMETERS, "residual")
_ROUNDS = 8
_LARGEST = 2.5
"""Of a parameter: no part is believed to take more than twelve times as long, or as short."""
_ODD = 2.5
"""A point whose leave-one-out error is more standard deviations than that is believed less."""
_LEAST_FOR_ODD = 3
USUAL_WIDTH = 0.25
"""Expected error at which deviations are stated."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Process:
    """What is known before the first point; fitted by `fitting.fit_process`."""

    sd: Floats
    """Standard deviations at the usual width, in the order of PROCESSES."""
    rates: Floats
    """Likeness lost per difference, shape (len(PROCESSES), len(DIFFERENCES)); a parameter has only KINDS."""
    power: float
    """With which deviations grow with the expected error of a job."""
    noise_sd: float
    """Of a measurement and of what no column shows."""
    card: Mapping[str, Any] = field(default_factory=dict)

    def scale(self, places: Places) -> Floats:
        """What the expected error makes of the deviations of jobs, shape (n,)."""
        scaled: Floats = (places.width / USUAL_WIDTH) ** self.power
        return scaled

    def likeness(self, places: Places, others: Places) -> Floats:
        """Covariance of each process but for the shares, shape (len(PROCESSES), n, n_others)."""
        differences = places.differences(others)
        lost = np.tensordot(self.rates, differences, axes=1)
        scales = self.scale(places)[:, None] * self.scale(others)[None, :]
        covariance: Floats = np.square(self.sd)[:, None, None] * scales * np.exp(-lost)
        return covariance

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "sd": dict(zip(PROCESSES, self.sd.tolist(), strict=True)),
            "rates": {
                name: dict(zip(DIFFERENCES, row, strict=True))
                for name, row in zip(PROCESSES, self.rates.tolist(), strict=True)
            },
            "power": self.power,
            "noise_sd": self.noise_sd,
            "card": dict(self.card),
        }

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> Process:
        """The process that `to_dict` wrote.

        Raises:
            ValueError: If a figure is infinite, or negative where it cannot be.
        """
        found = cls(
            sd=np.array([float(stated["sd"][name]) for name in PROCESSES]),
            rates=np.array(
                [[float(stated["rates"][name][kind]) for kind in DIFFERENCES] for name in PROCESSES]
            ),
            power=float(stated["power"]),
            noise_sd=float(stated["noise_sd"]),
            card=dict(stated["card"]),
        )
        figures = np.concatenate([found.sd, found.rates.ravel(), [found.noise_sd, found.power]])
        if not np.isfinite(figures).all() or (figures[:-1] < 0.0).any() or found.noise_sd == 0.0:
            raise ValueError("a figure of the process is infinite or negative")
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Moved:
    """What the points make of n jobs."""

    parameters: Floats
    """Logarithms of the factors on the parts, shape (n, len(PARAMETERS))."""
    residual: Floats
    """Logarithm of the factor on the whole, shape (n,)."""
    log_factor: Floats
    """Of the step time, both together, shape (n,)."""
    sd: Floats
    """Standard deviation of log(measured / answer), shape (n,)."""
    sd_before: Floats
    """The same without any point."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Conditioned:
    """A process that has seen some points."""

    process: Process
    places: Places
    log_ratios: Floats
    """log(measured / predicted) of the points, shape (n,)."""
    slopes: Floats
    """Shares of the parts after the points, shape (n, len(PARAMETERS))."""
    noise: Floats
    """Variance of each point, larger for odd ones, shape (n,)."""
    weights: Floats
    """What the covariance with a point is multiplied by, shape (n,)."""

    @classmethod
    def on(cls, process: Process, places: Places, log_ratios: Floats) -> Conditioned:
        """The process given measured points.

        Args:
            process: The prior.
            places: Of the points; none changes nothing.
            log_ratios: log(measured / predicted), shape (n,).
        """
        likeness = process.likeness(places, places)
        noise = np.full(len(places), process.noise_sd**2)
        parameters = np.zeros((len(places), len(PARAMETERS)))
        slopes, weights = places.shares, np.zeros(len(places))
        for _ in range(_ROUNDS if len(places) else 0):
            summed, slopes = _summed(places.shares, parameters)
            covariance = _joined(likeness, slopes, slopes)
            aim = log_ratios - summed + (slopes * parameters).sum(axis=1)
            inverse = np.linalg.inv(covariance + np.diag(noise))
            weights = inverse @ aim
            if len(places) >= _LEAST_FOR_ODD:
                noise = _noise(noise, weights, np.diag(inverse), process.noise_sd**2)
            parameters = _parameters(likeness, slopes, weights)
        return cls(
            process=process,
            places=places,
            log_ratios=log_ratios,
            slopes=slopes,
            noise=noise,
            weights=weights,
        )

    @cached_property
    def _inverse(self) -> Floats:
        """Of the covariance of the points with their noise, shape (n, n): of all answers, found once."""
        own = _joined(self.process.likeness(self.places, self.places), self.slopes, self.slopes)
        return np.linalg.inv(own + np.diag(self.noise)).astype(np.float64, copy=False)

    def at(self, places: Places) -> Moved:
        """What the points make of other jobs."""
        process = self.process
        likeness = process.likeness(places, self.places)
        parameters = _parameters(likeness, self.slopes, self.weights)
        residual = likeness[-1] @ self.weights
        summed, slopes = _summed(places.shares, parameters)
        across = _joined(likeness, slopes, self.slopes)
        explained = np.zeros(len(places))
        if len(self.places):
            explained = ((across @ self._inverse) * across).sum(axis=1)
        scale = np.square(process.scale(places))
        before, now = (
            scale * (np.square(shares) @ np.square(process.sd[:-1]) + process.sd[-1] ** 2)
            for shares in (places.shares, slopes)
        )
        left = np.maximum(now - explained, 0.0)
        return Moved(
            parameters=parameters,
            residual=residual,
            log_factor=summed + residual,
            # Points only tell: a part that grew does not make an answer less sure than it was.
            sd=np.sqrt(np.minimum(left, before) + process.noise_sd**2),
            sd_before=np.sqrt(before + process.noise_sd**2),
        )


def _summed(shares: Floats, parameters: Floats) -> tuple[Floats, Floats]:
    """Logarithm of the step after the parameters, and the shares of its parts then."""
    parts = shares * np.exp(parameters)
    whole = parts.sum(axis=1)
    return np.log(whole), parts / whole[:, None]


def _joined(likeness: Floats, slopes: Floats, others: Floats) -> Floats:
    """Covariance of log step times, linearised: parameters by their shares, and the residual."""
    joined: Floats = likeness[-1] + np.einsum("pij,ip,jp->ij", likeness[:-1], slopes, others)
    return joined


def _parameters(likeness: Floats, slopes: Floats, weights: Floats) -> Floats:
    """Posterior means of the parameters of jobs, shape (n, len(PARAMETERS))."""
    found: Floats = np.einsum("pij,jp,j->ip", likeness[:-1], slopes, weights)
    return np.clip(found, -_LARGEST, _LARGEST)


def _noise(noise: Floats, weights: Floats, precisions: Floats, least: float) -> Floats:
    """Variances under which no point is farther off than `_ODD` from what the others say of it."""
    variance, error = 1.0 / precisions, weights / precisions
    wanted = np.square(error / _ODD)
    grown: Floats = np.maximum(noise + wanted - variance, least)
    return grown


def rates_of(process: Process) -> dict[str, dict[str, float]]:
    """Correlation across each kind, by process: what `fit_process` found, to be read.

    >>> KINDS
    ('model', 'device', 'precision', 'software')
    """
    shown = np.exp(-process.rates[:, : len(KINDS)])
    return {
        name: dict(zip(KINDS, row, strict=True)) for name, row in zip(PROCESSES, shown.tolist(), strict=True)
    }
