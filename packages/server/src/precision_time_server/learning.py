"""What a cluster learns from what its jobs really took: a calibration made, its worth tested.

Everything here works on rows and calibrations alone, so that it can run in a process of its own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from precision_time.corpus.own import PricedStep
from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time.learn.artifact import chosen_predictor
from precision_time.learn.calibration.calibration import Calibration, places_of_times
from precision_time.learn.calibration.fit import Calibrated, calibrate_steps
from precision_time.learn.calibration.process import PROCESSES
from precision_time.learn.intervals import WIDTH_COVERAGE
from precision_time.learn.metrics import ErrorSummary
from precision_time.learn.priced import predict_step_times

from .measured_rows import MeasuredRow, Setting, bounded, reason_of, step_of

Activate = Literal["never", "if-better", "always"]
MOST_CONFIGURATIONS = 500
"""That a calibration is made of, the newest: one answer with so many takes 2 ms more."""
LEAST_CONFIGURATIONS = 5
"""Fewer tell nothing of how well others are predicted."""
_SURE = 3.0
"""Standard errors by which held-out errors must be smaller to be called better."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Since:
    """Errors on what was measured after the active calibration was made: of answers as callers got them."""

    rows: int
    without: ErrorSummary
    """Errors of the shipped predictor."""
    answered: ErrorSummary
    """Errors with the active calibration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """A calibration on the measurements of a cluster, and what it is worth on those held out."""

    rows: int
    configurations: int
    unpriced: Mapping[str, int]
    older_left_out: int
    """Rows that were not used, as there are newer ones of enough configurations."""
    held_out: str
    """How, in words."""
    before: ErrorSummary | None
    """Errors of the shipped predictor."""
    after: ErrorSummary | None
    """Errors with a calibration on the other configurations."""
    gain: float | None
    """Mean over configurations of how much smaller |log(predicted / measured)| is with it."""
    gain_sd: float | None
    """Standard error of that mean."""
    better: bool
    """Whether the gain is more than chance."""
    why: str
    since: Since | None
    """None where nothing was measured since a calibration is active, or where nobody knows."""
    last_measurement: int
    """Number of the last row."""
    factors: Mapping[str, float]
    """On the parts of the step, median of the configurations."""
    body: Mapping[str, Any]
    """The calibration, as `Calibration.to_dict` has it."""

    def to_dict(self) -> dict[str, Any]:
        """Ready for JSON, without the calibration itself."""
        return {
            "rows": self.rows,
            "configurations": self.configurations,
            "unpriced": dict(self.unpriced),
            "older_left_out": self.older_left_out,
            "held_out": self.held_out,
            "before": None if self.before is None else self.before.to_dict(),
            "after": None if self.after is None else self.after.to_dict(),
            "gain": self.gain,
            "gain_standard_error": self.gain_sd,
            "better": self.better,
            "why": self.why,
            "since_active": None if self.since is None else asdict(self.since),
            "factors": dict(self.factors),
            "card": dict(self.body["card"]),
        }


def learn(
    rows: Sequence[tuple[int, MeasuredRow]],
    setting: Setting,
    cluster: str,
    active: tuple[Mapping[str, Any], int] | None = None,
) -> Learned:
    """The calibration that the rows of a cluster make.

    Args:
        rows: Their numbers, ascending, and what they say.
        setting: What they mean.
        cluster: Its name, for the card.
        active: The calibration that moves its answers now, as `Calibration.to_dict` has it, and the number
            of the last row that it has seen.

    Raises:
        ConfigError: If none of them can be priced.
    """
    if not rows:
        raise ConfigError(
            f"{cluster} has no measurements. To fix: POST /v1/clusters/{cluster}/measurements sends some."
        )
    predictor = chosen_predictor(None)
    steps, unpriced, used = _newest(rows, setting)
    if not steps:
        reasons = "; ".join(f"{reason} ({count})" for reason, count in unpriced.most_common(3))
        raise ConfigError(
            f"None of {len(rows)} measured rows of {cluster} can be priced{reasons and ': ' + reasons}. To "
            "fix: send rows whose model, device and batch the catalogs know (GET /v1/catalogs/models)."
        )
    result = calibrate_steps(steps, predictor, rejected=unpriced, origin=f"cluster {cluster}")
    gain, gain_sd, better, why = _worth(result)
    calibration = replace(
        result.calibration,
        card={
            **result.calibration.card,
            "cluster": cluster,
            "older_left_out": len(rows) - used,
            "better": better,
        },
    )
    return Learned(
        rows=len(steps),
        configurations=len(result.points.places),
        unpriced=dict(unpriced),
        older_left_out=len(rows) - used,
        held_out=result.left_out,
        before=result.before,
        after=result.after,
        gain=gain,
        gain_sd=gain_sd,
        better=better,
        why=why,
        since=None if active is None else _since(rows, setting, *active),
        last_measurement=rows[-1][0],
        factors=_factors(result),
        body=calibration.to_dict(),
    )


def _newest(
    rows: Sequence[tuple[int, MeasuredRow]], setting: Setting
) -> tuple[list[PricedStep], Counter[str], int]:
    """The newest steps of at most MOST_CONFIGURATIONS, oldest first, what cannot be priced, and rows read."""
    steps: list[PricedStep] = []
    unpriced: Counter[str] = Counter()
    keys: set[str] = set()
    used = 0
    for number, row in reversed(rows):
        try:
            step = step_of(row, number, setting)
        except PrecisionTimeError as error:  # what was a job once: a catalog or the hardware has changed
            used, unpriced[reason_of(error)] = used + 1, unpriced[reason_of(error)] + 1
            continue
        if step.job is None or step.measured_s is None:
            reason = bounded(step.detail or step.reason)
            used, unpriced[reason] = used + 1, unpriced[reason] + 1
            continue
        if step.key not in keys and len(keys) == MOST_CONFIGURATIONS:
            break
        keys.add(step.key)
        used += 1
        steps.append(PricedStep(row=step.row, job=step.job, measured_s=step.measured_s, key=step.key))
    return steps[::-1], unpriced, used


def _worth(result: Calibrated) -> tuple[float | None, float | None, bool, str]:
    """Mean gain on held-out configurations, its standard error, whether it is more than chance, and why."""
    points = result.points
    count = len(points.places)
    if result.held_out_s is None or result.before is None or result.after is None:
        return None, None, False, f"Not tested: {result.left_out}."
    errors = [np.abs(np.log(times / points.measured_s)) for times in (points.predicted_s, result.held_out_s)]
    gains = errors[0] - errors[1]
    gain, gain_sd = float(gains.mean()), float(gains.std(ddof=1) / math.sqrt(count))
    said = (
        f"Held out, {count} configurations are predicted to {result.before.mape_percent:.3g} % without and "
        f"{result.after.mape_percent:.3g} % with a calibration on the others"
    )
    if count < LEAST_CONFIGURATIONS:
        return gain, gain_sd, False, f"{said}; fewer than {LEAST_CONFIGURATIONS} do not tell."
    if gain <= _SURE * gain_sd or not result.helps:
        return gain, gain_sd, False, f"{said}: no more than chance would give."
    return gain, gain_sd, True, f"{said}: better by more than chance."


def _factors(result: Calibrated) -> dict[str, float]:
    """Factor on each part of the step and on what is left, the median over the points."""
    moved = result.calibration.conditioned.at(result.points.places)
    logs = np.concatenate([moved.parameters, moved.residual[:, None]], axis=1)
    return dict(zip(PROCESSES, np.exp(np.median(logs, axis=0)).tolist(), strict=True))


def _since(
    rows: Sequence[tuple[int, MeasuredRow]], setting: Setting, active: Mapping[str, Any], last: int
) -> Since | None:
    """Errors on the measurements after the last one that the active calibration has seen."""
    steps, _, _ = _newest([(number, row) for number, row in rows if number > last], setting)
    if not steps:
        return None
    times = predict_step_times([step.job for step in steps], chosen_predictor(None), coverage=WIDTH_COVERAGE)
    measured_s = np.array([step.measured_s for step in steps])
    known = Calibration.from_dict(active, "The active calibration").conditioned
    answered_s = times.median_s * np.exp(known.at(places_of_times(times)).log_factor)
    return Since(
        rows=len(steps),
        without=ErrorSummary.of(measured_s, times.median_s),
        answered=ErrorSummary.of(measured_s, answered_s),
    )
