"""What is known before the first point: how much sources of the corpus differ from the shipped predictor.

Each source of the corpus is a cluster that a predictor fitted without it has predicted. The standard
deviations of the effects are those under which the logarithms of measured over predicted time are most likely
(a Gaussian model with variance components; Searle, Casella, McCulloch, Variance Components, 1992, ch. 6).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .effects import KINDS, NAMED, Place

Floats = NDArray[np.float64]

_LEAST, _MOST = 0.005, 2.0
"""Bounds of a standard deviation."""
_START = 0.15
CAUTION = 0.65
"""Share of the likeliest deviations that is taken. They are those of squared logarithms, in which a few odd
sources weigh most; percentage errors punish an answer that is too long more than one that is too short.
Chosen on the clusters of `evaluation` among 1, 0.8, 0.65 and 0.5; 0.5 to 0.8 do about as well."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """Standard deviations of the effects, by kind, and of what is left, all of logarithms."""

    sd: Mapping[str, float]
    noise_sd: float
    card: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {"sd": dict(self.sd), "noise_sd": self.noise_sd, "card": dict(self.card)}

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any]) -> Prior:
        """The prior that `to_dict` wrote."""
        return cls(
            sd={kind: float(stated["sd"][kind]) for kind in KINDS},
            noise_sd=float(stated["noise_sd"]),
            card=dict(stated["card"]),
        )


@cache
def shipped_prior() -> Prior:
    """The prior of the corpus; written by scripts/ray_models.py."""
    text = files("precision_time.learn.calibration").joinpath("data/prior.json").read_text(encoding="utf-8")
    return Prior.from_dict(json.loads(text))


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceResiduals:
    """Points of one source and log(measured / predicted) by a predictor that has not seen it."""

    source: str
    places: tuple[Place, ...]
    residuals: Floats


def fit_prior(sources: Sequence[SourceResiduals], card: Mapping[str, Any] | None = None) -> Prior:
    """Standard deviations of greatest likelihood, times CAUTION. Needs scipy.

    Args:
        sources: At least two, each with several points; large ones sampled, so that none decides alone.
        card: What to note with the figures.
    """
    from scipy.optimize import minimize

    blocks = [(item.residuals, _likeness(item.places)) for item in sources]
    start = np.log(np.full(len(KINDS) + 1, _START))
    bounds = [(np.log(_LEAST), np.log(_MOST))] * len(start)
    found = minimize(_loss, start, args=(blocks,), jac=True, method="L-BFGS-B", bounds=bounds)
    sds = np.exp(found.x)
    sds[:-1] *= CAUTION
    return Prior(
        sd={kind: round(float(sd), 4) for kind, sd in zip(KINDS, sds[:-1], strict=True)},
        noise_sd=round(float(sds[-1]), 4),
        card=dict(card or {}),
    )


def _likeness(places: Sequence[Place]) -> list[Floats]:
    """For each kind, the covariance of points under a unit variance of its effects, shape (n, n)."""
    share = np.array([place.exposed_share for place in places])
    length = np.array([place.length for place in places])
    named = [place.names() for place in places]
    matrices: list[Floats] = [np.ones((len(places), len(places)))]
    for kind in NAMED:
        words = np.array([names[kind] for names in named])
        matrices.append((words[:, None] == words[None, :]).astype(np.float64))
    return [*matrices, np.outer(length, length), np.outer(share, share)]


def _loss(logs: Floats, blocks: Sequence[tuple[Floats, Sequence[Floats]]]) -> tuple[float, Floats]:
    """Negative log likelihood, up to a constant, and its gradient in the logarithms of the deviations."""
    variances = np.exp(2.0 * logs)
    total, gradient = 0.0, np.zeros(len(logs))
    for residuals, matrices in blocks:
        eye = np.eye(len(residuals))
        parts = [*matrices, eye]
        covariance = np.sum([v * part for v, part in zip(variances, parts, strict=True)], axis=0)
        inverse = np.linalg.inv(covariance)
        weighted = inverse @ residuals
        total += 0.5 * float(residuals @ weighted) + 0.5 * float(np.linalg.slogdet(covariance)[1])
        slope = inverse - np.outer(weighted, weighted)
        gradient += np.array([np.sum(slope * part) for part in parts]) * variances
    return total, gradient
