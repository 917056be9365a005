"""A calibration: effects of a user's cluster, in a small JSON file, and what they make of a prediction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cost.job import Job
from ...errors import CorpusError
from ...io import write_atomically
from ..serving import StepTimes
from .effects import kind_of, places_of
from .posterior import Posterior, factors
from .prior import Prior

Floats = NDArray[np.float64]

FORMAT = "precision-time calibration"
SCHEMA_VERSION = 1
_NARROWEST, _WIDEST = 0.25, 2.0
"""Of an interval, relative to that of the shipped predictor, as logarithms."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """Effects of a cluster and how sure they are."""

    posterior: Posterior
    prior: Prior
    card: Mapping[str, Any] = field(default_factory=dict)
    """Origin and number of points, errors before and after."""

    def apply(self, times: StepTimes, jobs: Sequence[Job]) -> StepTimes:
        """The step times as this cluster would show them.

        Compute and waiting are scaled each by its factor, so that terms still add up. The interval keeps its
        shape; its width, as logarithm, is multiplied by the standard deviation of the error with the points
        over that without any: below 1 where points support the answer, above where they scatter widely.
        """
        places = places_of(jobs, times.jobs)
        log_common, after, before = factors(places, self.posterior, self.prior)
        share = np.array([place.exposed_share for place in places])
        on_waiting = np.exp(log_common) * self.communication_factor
        whole = (1.0 - share) * np.exp(log_common) + share * on_waiting
        step_time_s = times.step_time_s * whole
        corrected = times.corrected
        compute_s, exposed_s = corrected.compute_s * np.exp(log_common), corrected.exposed_s * on_waiting
        fitting = step_time_s / (compute_s + exposed_s)
        width = np.clip(after / before, _NARROWEST, _WIDEST)
        return replace(
            times,
            step_time_s=step_time_s,
            low_s=step_time_s * (times.low_s / times.step_time_s) ** width,
            high_s=step_time_s * (times.high_s / times.step_time_s) ** width,
            corrected=replace(
                corrected,
                compute_s=compute_s * fitting,
                exposed_s=exposed_s * fitting,
                step_time_s=step_time_s,
            ),
        )

    @property
    def communication_factor(self) -> float:
        """On the part of a step that waits for communication, next to the factors on the whole."""
        return float(np.exp(self.posterior.mean[self.posterior.names.index("communication")]))

    @property
    def devices(self) -> frozenset[str]:
        """Devices that points were measured on."""
        names = (name.split(" ", 1)[1] for name in self.posterior.names if kind_of(name) == "device")
        return frozenset(names)

    def said(self, times: StepTimes, before: StepTimes, job: Job) -> tuple[str, ...]:
        """What to say with the first answer."""
        factor = float(times.step_time_s[0] / before.step_time_s[0])
        width = float(np.log(times.high_s[0] / times.low_s[0]) / np.log(before.high_s[0] / before.low_s[0]))
        points = self.card.get("configurations", 0)
        lines = [
            f"Calibrated by {points} configurations of your own: step time x {factor:.3g}, "
            f"interval x {width:.2g} (as logarithm)."
        ]
        device = job.cluster.device.name
        if device not in self.devices:
            lines.append(
                f"None of them is on {device}: only what all your points have in common is taken over."
            )
        return tuple(lines)

    def save(self, path: str | Path) -> None:
        """Write the calibration as JSON, atomically."""
        target = Path(path)
        body = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "effects": [
                {"name": name, "log_factor": float(mean), "sd": float(sd)}
                for name, mean, sd in zip(
                    self.posterior.names,
                    self.posterior.mean,
                    np.sqrt(np.diag(self.posterior.covariance)),
                    strict=True,
                )
            ],
            "covariance": self.posterior.covariance.tolist(),
            "noise_sd": self.posterior.noise_sd,
            "prior": self.prior.to_dict(),
            "card": dict(self.card),
        }
        write_atomically(target, json.dumps(body, indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """The calibration of a file.

        Raises:
            CorpusError: If there is none, or it is damaged, something else, or of a newer version.
        """
        try:
            stated = json.loads(Path(path).read_text(encoding="utf-8"))
            if stated["format"] != FORMAT:
                raise ValueError("another format")
            if stated["schema_version"] > SCHEMA_VERSION:
                raise CorpusError(
                    f"{path} has calibration version {stated['schema_version']}, this release reads up to "
                    f"{SCHEMA_VERSION}. To fix: upgrade precision-time, or calibrate again."
                )
            return cls(
                posterior=_posterior(stated), prior=Prior.from_dict(stated["prior"]), card=stated["card"]
            )
        except FileNotFoundError as error:
            raise CorpusError(f"There is no calibration at {path}. To fix: check the path.") from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorpusError(
                f"{path} is not a readable calibration ({error}). To fix: make it again with "
                "`precision-time calibrate --out`."
            ) from error


def _posterior(stated: Mapping[str, Any]) -> Posterior:
    names = tuple(str(item["name"]) for item in stated["effects"])
    mean = np.array([float(item["log_factor"]) for item in stated["effects"]])
    covariance = np.array(stated["covariance"], dtype=np.float64)
    finite = np.isfinite(mean).all() and np.isfinite(covariance).all()
    if covariance.shape != (len(names), len(names)) or not finite or "communication" not in names:
        raise ValueError("effects and covariance do not fit together")
    return Posterior(names=names, mean=mean, covariance=covariance, noise_sd=float(stated["noise_sd"]))


def as_calibration(given: Calibration | str | Path | None) -> Calibration | None:
    """A calibration as callers give it: the object, its file, or none."""
    return Calibration.load(given) if isinstance(given, str | Path) else given
