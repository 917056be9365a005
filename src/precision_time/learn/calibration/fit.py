"""`precision-time calibrate`: points of a user's own in, what they move and their worth out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...corpus.jobs import job_of
from ...corpus.measurement import Measurement
from ...corpus.own import PricedStep, read_priced_steps
from ...cost.job import Job
from ...errors import ConfigError
from ...records import dataclass
from ..artifact import TrainedPredictor
from ..intervals import WIDTH_COVERAGE
from ..measured import measured_table
from ..metrics import ErrorSummary, summarize
from ..priced import predict_step_times
from .calibration import Calibration, places_of_times
from .places import Places
from .process import Conditioned, Process

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

_MOST_LEFT_OUT_SINGLY = 30
_FOLDS = 10


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnPoints:
    """One entry per configuration: the median of its repeats, and the prediction of the shipped predictor."""

    places: Places
    devices: frozenset[str]
    measured_s: Floats
    predicted_s: Floats
    rows: int
    rejected: Mapping[str, int]

    @property
    def residuals(self) -> Floats:
        """log(measured / predicted), shape (n,)."""
        return np.log(self.measured_s / self.predicted_s)


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibrated:
    """A calibration and the errors on points held out in turn, before and after."""

    calibration: Calibration
    points: OwnPoints
    left_out: str
    """How they were held out, in words."""
    before: ErrorSummary | None
    """Errors of the shipped predictor."""
    after: ErrorSummary | None
    """Errors of calibrated predictions, none of which knows its configuration; None with only one."""
    held_out_s: Floats | None = None
    """Those predictions, in the order of the points."""

    @property
    def helps(self) -> bool:
        """Whether held-out points are predicted better with a calibration than without."""
        if self.before is None or self.after is None:
            return True
        return self.after.mape_percent < self.before.mape_percent


def calibrate(
    measurements: Sequence[Measurement], predictor: TrainedPredictor, *, origin: str = ""
) -> Calibrated:
    """The predictor conditioned on measured points.

    Args:
        measurements: Own runs; those that cannot be priced are counted.
        predictor: The shipped predictor.
        origin: Where the points came from, for the file.

    Raises:
        ConfigError: If no measurement can be priced.
    """
    return _calibrated(own_points(measurements, predictor), predictor, origin)


def calibrate_file(
    path: str | Path, predictor: TrainedPredictor, *, device: str | None = None, origin: str = ""
) -> Calibrated:
    """The predictor conditioned on the measured steps of a file.

    Args:
        path: As for `read_own_steps`.
        predictor: The shipped predictor.
        device: What the steps ran on, where the file spells it otherwise.
        origin: Where they came from, if not from that file.

    Raises:
        CorpusError: If the file is none of measured steps, or holds none.
        ConfigError: If no step of it can be priced.
    """
    name = origin or Path(path).name
    steps, rejected = read_priced_steps(path, device=device, origin=name)
    return calibrate_steps(steps, predictor, rejected=rejected, origin=name)


def calibrate_steps(
    steps: Sequence[PricedStep], predictor: TrainedPredictor, *, rejected: Mapping[str, int], origin: str
) -> Calibrated:
    """The predictor conditioned on measured steps.

    Args:
        steps: At least one, each with its job.
        predictor: The shipped predictor.
        rejected: How many rows were left out, by reason.
        origin: Where the steps came from.
    """
    measured_s = np.array([step.measured_s for step in steps])
    keys = [step.key for step in steps]
    points = _points([step.job for step in steps], measured_s, keys, rejected, predictor)
    return _calibrated(points, predictor, origin)


def _calibrated(points: OwnPoints, predictor: TrainedPredictor, origin: str) -> Calibrated:
    """What points move, and what that is worth on those that are held out."""
    held_out_s, left_out = _cross_validate(points, predictor.process)
    before = summarize(points.measured_s, points.predicted_s)
    after = None if held_out_s is None else summarize(points.measured_s, held_out_s)
    card: dict[str, Any] = {
        "origin": origin,
        "rows": points.rows,
        "configurations": len(points.places),
        "predictor": predictor.model_card.get("corpus", ""),
        "held_out": left_out,
        "before_mape_percent": None if before is None else before.mape_percent,
        "after_mape_percent": None if after is None else after.mape_percent,
        "rejected": dict(points.rejected),
    }
    calibration = Calibration(
        places=points.places,
        log_ratios=points.residuals,
        devices=points.devices,
        process=predictor.process,
        card=card,
    )
    return Calibrated(
        calibration=calibration,
        points=points,
        left_out=left_out,
        before=before,
        after=after,
        held_out_s=held_out_s,
    )


def own_points(measurements: Sequence[Measurement], predictor: TrainedPredictor) -> OwnPoints:
    """Priced configurations of own measurements."""
    table = measured_table(measurements)
    if not len(table):
        reasons = "; ".join(f"{reason} ({count})" for reason, count in table.rejected.items())
        raise ConfigError(
            f"None of {len(measurements)} measured rows can be priced: {reasons or 'there are none'}. "
            "To fix: state model, device and batch in words that `precision-time list models` and "
            "`devices` know."
        )
    jobs = [job_of(row) for row in table.measurements]
    keys = [row.configuration_key for row in table.measurements]
    return _points(jobs, table.measured_s, keys, table.rejected, predictor)


def _points(
    jobs: Sequence[Job],
    measured_s: Floats,
    keys: Sequence[str],
    rejected: Mapping[str, int],
    predictor: TrainedPredictor,
) -> OwnPoints:
    """One entry per configuration of priced rows."""
    rows: dict[str, list[int]] = defaultdict(list)
    for index, key in enumerate(keys):
        rows[key or str(index)].append(index)
    chosen = [jobs[group[0]] for group in rows.values()]
    times = predict_step_times(chosen, predictor, coverage=WIDTH_COVERAGE)
    return OwnPoints(
        places=places_of_times(times),
        devices=frozenset(job.cluster.device.name for job in chosen),
        measured_s=np.array([np.median(measured_s[group]) for group in rows.values()]),
        predicted_s=times.median_s,
        rows=len(jobs),
        rejected=dict(rejected),
    )


def _cross_validate(points: OwnPoints, process: Process) -> tuple[Floats | None, str]:
    """Calibrated step times of configurations held out, and how they were."""
    count = len(points.places)
    if count < 2:
        return None, "one configuration: nothing can be held out"
    times = np.empty(count)
    for outside in _folds(count):
        inside = np.setdiff1d(np.arange(count), outside)
        known = Conditioned.on(process, points.places.take(inside), points.residuals[inside])
        moved = known.at(points.places.take(outside))
        times[outside] = points.predicted_s[outside] * np.exp(moved.log_factor)
    singly = count <= _MOST_LEFT_OUT_SINGLY
    return times, "each configuration left out in turn" if singly else f"{_FOLDS} folds of configurations"


def _folds(count: int) -> Iterator[Ints]:
    if count <= _MOST_LEFT_OUT_SINGLY:
        yield from (np.array([index]) for index in range(count))
        return
    shuffled = np.random.default_rng(0).permutation(count)
    yield from (np.sort(shuffled[fold::_FOLDS]) for fold in range(_FOLDS))
