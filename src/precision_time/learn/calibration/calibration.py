"""A calibration: measured points of a user, in a small JSON file, and what they make of a prediction."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError, CorpusError, shown
from ...forks import cached_property
from ...io import read_input, write_atomically
from ...records import dataclass
from ..intervals import least_error
from ..predictor import Times
from .places import PARAMETER_OF, PARAMETERS, Places, places_of
from .process import Conditioned, Moved, Process

Floats = NDArray[np.float64]

FORMAT = "precision-time calibration"
SCHEMA_VERSION = 3
_MOST_CHANGE = np.log(1e6)
"""Of a time by measured points: more is an error of the points."""
_TAIL = 1.6448536269514722
"""90 % of a normal distribution lie within this many standard deviations."""
_NARROWEST = 0.1
"""Of an interval, relative to that without points, as logarithms."""
_EXPOSED = np.array([name in ("links", "waits") for name in PARAMETERS])


def places_of_times(times: Times) -> Places:
    """The places of predicted jobs.

    Args:
        times: With intervals of coverage WIDTH_COVERAGE.
    """
    width = np.log(times.high_s / times.low_s) / (2.0 * _TAIL)
    share = times.exposed_s / times.step_time_s
    return places_of(times.jobs, share, width)


def checksum(body: Mapping[str, Any]) -> str:
    """SHA-256 of the content of a calibration's file, the checksum in it aside."""
    content = {name: value for name, value in body.items() if name != "sha256"}
    import hashlib

    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, kw_only=True, eq=False)
class Calibration:
    """Measured points, and the process that takes them to other jobs; equal only to itself."""

    places: Places
    log_ratios: Floats
    """log(measured / predicted) of each point, shape (n,)."""
    devices: frozenset[str]
    """Names of the devices that points were measured on."""
    process: Process
    card: Mapping[str, Any] = field(default_factory=dict)
    """Origin and number of points, errors before and after."""

    @cached_property
    def conditioned(self) -> Conditioned:
        """The process that has seen the points."""
        return Conditioned.on(self.process, self.places, self.log_ratios)

    @classmethod
    def together(cls, parts: Sequence[Calibration]) -> Calibration:
        """The points of several; process and card of the first."""
        return replace(
            parts[0],
            places=Places.together([part.places for part in parts]),
            log_ratios=np.concatenate([part.log_ratios for part in parts]),
            devices=frozenset[str]().union(*(part.devices for part in parts)),
        )

    def moved(self, usual: Times) -> Moved:
        """What the points make of predicted jobs.

        Args:
            usual: With intervals of coverage WIDTH_COVERAGE.
        """
        return self.conditioned.at(places_of_times(usual))

    def apply(self, times: Times, usual: Times) -> Times:
        """The step times after the points.

        Every term is multiplied by the factor of its parameter and by that of the residual, so that terms
        still add up. The interval keeps its shape; its width, as logarithm, is multiplied by the standard
        deviation of the error with the points over that without.

        Args:
            times: As predicted, at any coverage.
            usual: The same with intervals of coverage WIDTH_COVERAGE.
        """
        places = places_of_times(usual)
        moved = self.conditioned.at(places)
        factors = np.exp(moved.parameters + moved.residual[:, None])
        parts = places.shares * factors
        median_s = times.median_s * np.exp(moved.log_factor)
        changed = np.abs(np.column_stack([moved.parameters, moved.residual, moved.log_factor]))
        if not (changed <= _MOST_CHANGE).all():
            raise CorpusError(
                f"The measured steps say that this takes {np.exp(moved.log_factor).max():.3g} times what is "
                "predicted. The rule: a million times longer or shorter is no measurement. To fix: check the "
                "step times of the file."
            )
        width = np.clip(moved.sd / moved.sd_before, _NARROWEST, 1.0)

        def moved_from(bound_s: Floats) -> Floats:
            found: Floats = median_s * (bound_s / times.median_s) ** width
            return found

        step_time_s = least_error(median_s, moved_from(usual.low_s), moved_from(usual.high_s))
        return replace(
            times,
            step_time_s=step_time_s,
            median_s=median_s,
            low_s=np.minimum(moved_from(times.low_s), step_time_s),
            high_s=moved_from(times.high_s),
            exposed_s=step_time_s * parts[:, _EXPOSED].sum(axis=1) / parts.sum(axis=1),
            term_factors={
                name: factors[:, PARAMETERS.index(parameter)] for name, parameter in PARAMETER_OF.items()
            },
        )

    def said(self, times: Times, before: Times, device: str) -> tuple[str, ...]:
        """What to say with the first answer."""
        factor = float(times.step_time_s[0] / before.step_time_s[0])
        width = float(np.log(times.high_s[0] / times.low_s[0]) / np.log(before.high_s[0] / before.low_s[0]))
        count = len(self.log_ratios)
        lines = [
            f"Conditioned on {count} measured step{'s' * (count > 1)} of your own: step time x "
            f"{factor:.3g}, interval x {width:.2g} (as logarithm)."
        ]
        before_percent, after_percent = (
            self.card.get(f"{when}_mape_percent") for when in ("before", "after")
        )
        if before_percent is not None and after_percent is not None and after_percent >= before_percent:
            lines.append(
                f"They help little: held out in turn, they are predicted to {after_percent:.3g} % with the "
                f"others and to {before_percent:.3g} % without."
            )
        if device not in self.devices:
            lines.append(
                f"None of them is on {device}: only what devices have in common is taken over from them."
            )
        return tuple(lines)

    def to_dict(self) -> dict[str, Any]:
        """The content of its file, ready for JSON."""
        body: dict[str, Any] = {
            "format": FORMAT,
            "schema_version": SCHEMA_VERSION,
            "points": self.places.to_dict(),
            "log_ratios": self.log_ratios.tolist(),
            "devices": sorted(self.devices),
            "process": self.process.to_dict(),
            "card": dict(self.card),
        }
        return {**body, "sha256": checksum(body)}

    def save(self, path: str | Path) -> None:
        """Write the calibration as JSON, atomically."""
        write_atomically(Path(path), json.dumps(self.to_dict(), indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Calibration:
        """The calibration of a file.

        Raises:
            CorpusError: If there is none, or it is damaged, something else, or of another version.
        """
        try:
            stated = json.loads(read_input(path))
        except FileNotFoundError as error:
            raise CorpusError(f"There is no calibration at {path}. To fix: check the path.") from error
        except (OSError, ValueError, RecursionError) as error:
            raise _unreadable(str(path), error) from error
        return cls.from_dict(stated, str(path))

    @classmethod
    def from_dict(cls, stated: Mapping[str, Any], origin: str) -> Calibration:
        """The calibration whose file holds `stated`.

        Args:
            stated: What `to_dict` wrote.
            origin: What it is called in an error.

        Raises:
            CorpusError: If it is damaged, something else, or of another version.
        """
        try:
            if stated["format"] != FORMAT:
                raise ValueError("another format")
            if stated["schema_version"] != SCHEMA_VERSION:
                raise CorpusError(
                    f"{origin} has calibration version {shown(stated['schema_version'])}, this release reads "
                    f"{SCHEMA_VERSION}. To fix: calibrate again with `precision-time calibrate`, or upgrade "
                    "precision-time."
                )
            if stated["sha256"] != checksum(stated):
                raise ValueError("it was changed after it was written: its SHA-256 is another one")
            places = Places.from_dict(stated["points"])
            log_ratios = np.array(stated["log_ratios"], dtype=np.float64)
            if log_ratios.shape != (len(places),) or not np.isfinite(log_ratios).all():
                raise ValueError("points and places do not fit together")
            return cls(
                places=places,
                log_ratios=log_ratios,
                devices=frozenset(map(str, stated["devices"])),
                process=Process.from_dict(stated["process"]),
                card=_card(stated["card"]),
            )
        except (ValueError, OverflowError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(origin, error) from error


def _card(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The card, whose errors are finite numbers.

    Raises:
        ValueError: If one is something else.
    """
    errors = [stated.get(f"{when}_mape_percent") for when in ("before", "after")]
    if not all(
        error is None or (type(error) in (int, float) and np.isfinite(float(error))) for error in errors
    ):
        raise ValueError("an error on its card is no number")
    return dict(stated)


def _unreadable(origin: str, error: Exception) -> CorpusError:
    return CorpusError(
        f"{origin} is not a readable calibration ({error}). To fix: make it again with "
        "`precision-time calibrate --out`."
    )


def as_calibration(given: Calibration | str | Path | None) -> Calibration | None:
    """A calibration as callers give it: the object, its file, or none.

    Raises:
        ConfigError: If it is none of these.
        CorpusError: If the file cannot be read as one.
    """
    if isinstance(given, str | Path):
        return Calibration.load(given)
    if given is None or isinstance(given, Calibration):
        return given
    raise ConfigError(
        f"calibration={shown(given)} is no calibration. To fix: name its file, or a file of measured steps."
    )
