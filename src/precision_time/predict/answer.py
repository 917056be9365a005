"""From jobs to predictions, a table of n rows; one job is n = 1.

What requests share is done once: those with the same predictor and measured steps are one table.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..arrays import Floats
from ..barrier import check_may_read
from ..cost.job import Jobs
from ..diagnostics import OWN_PREDICTOR, Diagnostic, Severity
from ..errors import PrecisionTimeError
from ..io import once_per_file
from ..learn.artifact import TrainedPredictor, chosen_predictor
from ..learn.calibration.calibration import Calibration, as_calibration
from ..learn.priced import price_jobs
from ..plugins import is_predictor
from ..request.request import Request
from .anchors import anchored
from .columns import ALL, RunLength, calibrated_times, check_peak, columns_of, fed
from .predictions import AnswerBasis, Predictions
from .scenarios import widened

_AT_ONCE = 2048
"""Requests that are answered together: their tables stay small."""


def answer(
    jobs: Jobs,
    predictor: TrainedPredictor,
    *,
    lengths: Sequence[RunLength] = (),
    coverage: float | Floats = 0.9,
    calibration: Calibration | None = None,
    requests: Sequence[Request] = (),
    said: Sequence[Diagnostic] = (),
    remedies: bool = False,
    want: frozenset[str] = ALL,
) -> Predictions:
    """The answers to n jobs; what they share is priced once.

    Args:
        jobs: What is predicted.
        predictor: The trained predictor.
        lengths: Of the run, by group of the jobs; none for steps alone.
        coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
        calibration: The caller's own measured points; None for the predictor as it ships.
        requests: What was asked, by group of the jobs.
        said: Remarks before all others.
        remedies: Say of a job that does not fit what to ask for instead, when that is read.
        want: The groups of columns.

    Raises:
        ConfigError: If measured points make a step shorter than the peak allows.
    """
    lengths = lengths or (RunLength(),) * len(jobs.shared)
    jobs = fed(jobs, lengths)
    priced = price_jobs(jobs)
    if isinstance(coverage, float):
        coverage = np.full(len(jobs), coverage)
    times, shipped = calibrated_times(priced, predictor, coverage, calibration)
    calibrated: dict[int, tuple[str, ...]] = {}
    scenarios = None
    if calibration is not None:
        for row, group in enumerate(jobs.group):
            device = jobs.shared[group].cluster.device.name
            calibrated[row] = calibration.said(times.row(row), shipped.row(row), device)
    elif requests:
        times, scenarios = widened(jobs, requests, times, predictor, coverage=coverage)
    measured = calibration is not None or bool(predictor.measurements.own)
    figures = columns_of(jobs, lengths, priced, times, coverage=coverage, want=want, measured=measured)
    if calibration is not None:
        check_peak(jobs, figures["step_time_s"])
    figures["coverage"] = coverage
    figures["distance"] = times.distance.max(axis=1)
    figures["own_share"] = np.ones(len(jobs)) if scenarios is None else scenarios.weights[:, 0]
    basis = AnswerBasis(
        predictor=predictor,
        times=times,
        groups=jobs.group,
        said=tuple(said),
        calibrated=calibrated,
        scenarios=scenarios,
        remedies=remedies,
    )
    return Predictions(
        jobs=jobs,
        figures=figures,
        lengths=tuple(lengths),
        requests=tuple(requests),
        bases=(basis,) * len(jobs.shared),
        places=np.arange(len(jobs)),
        order=tuple(range(len(jobs))),
    )


def answered(
    asked: Sequence[tuple[Request, Jobs]],
    *,
    predictor: TrainedPredictor | None = None,
    remedies: bool = False,
) -> Iterator[tuple[list[int], Predictions | PrecisionTimeError]]:
    """The answers to requests, those with the same predictor and measured steps in one table.

    Args:
        asked: Requests, each with its jobs.
        predictor: Of all; None for the one that each request names, else the one that ships.
        remedies: Of `answer`.

    Yields:
        Which of the requests are in a table, in the order of its groups, and the table, or why it is none.
    """
    together: dict[Hashable, list[int]] = {}
    for index, (request, _) in enumerate(asked):
        # Own measured steps move the answers that they come with, and no others.
        given = request.calibration
        shared = given if isinstance(given, Calibration) else str(given or "")
        alone = request.anchors or not isinstance(given, Calibration | str | Path | None)
        together.setdefault((index if alone else shared, request.predictor), []).append(index)
    for rows in together.values():
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            try:
                found = _table([asked[row] for row in some], predictor, remedies)
            except PrecisionTimeError as error:
                if len(some) == 1:
                    yield some, error
                    continue
                for row in some:  # each says by itself what is wrong with it
                    again = answered([asked[row]], predictor=predictor, remedies=remedies)
                    yield from (([row], each) for _, each in again)
                continue
            yield some, found


def _table(
    asked: Sequence[tuple[Request, Jobs]],
    predictor: TrainedPredictor | None,
    remedies: bool,
) -> Predictions:
    """The answers to requests with the same predictor and measured steps, those of the first."""
    first = asked[0][0]
    trained = predictor or chosen_predictor(first.predictor)
    calibration = _calibration(first.calibration, trained)
    requests = [request for request, jobs in asked for _ in jobs.shared]
    jobs = Jobs.together([jobs for _, jobs in asked]) if len(asked) > 1 else asked[0][1]
    coverage = np.array([request.coverage for request in requests])[jobs.group]
    return answer(
        jobs,
        trained,
        lengths=[RunLength.of(request) for request in requests],
        coverage=coverage,
        calibration=anchored(first, trained, calibration),
        requests=requests,
        said=diagnostics_of(trained, calibration),
        remedies=remedies,
    )


def diagnostics_of(
    predictor: TrainedPredictor, calibration: Calibration | None = None
) -> tuple[Diagnostic, ...]:
    """That an answer is not of the predictor that ships, and that its calibration is of another one."""
    card, found = predictor.model_card, []
    if predictor.origin:
        own, named = len(predictor.measurements.own), predictor.origin
        text = f"Predictor {named}" if is_predictor(named) else f"Predictor of {named}"
        text += f": fitted on {card['rows']:,} measured runs, {own:,} of your own."
        found.append(Diagnostic(OWN_PREDICTOR, Severity.ASSUMPTION, text))
    made_with = "" if calibration is None else calibration.card.get("predictor", "")
    if made_with and made_with != card["corpus"]:
        text = "The calibration was made with another predictor, and moves answers away from that one's. To "
        text += "fix: precision-time calibrate with the same --predictor."
        found.append(Diagnostic("calibration", Severity.WARNING, text))
    return tuple(found)


def calibration_of(request: Request, predictor: TrainedPredictor) -> Calibration | None:
    """What a request brings to move its answer: its calibration, and the steps that it measured."""
    return anchored(request, predictor, _calibration(request.calibration, predictor))


def _calibration(given: Any, predictor: TrainedPredictor) -> Calibration | None:
    """A calibration is read once as long as its file stays the same."""
    if not isinstance(given, str | Path):
        return as_calibration(given)
    check_may_read(given)
    path = Path(given)
    if not os.path.isfile(path):
        return as_calibration(path)
    return once_per_file(_calibration_of, path, predictor)


def _calibration_of(path: Path, predictor: TrainedPredictor) -> Calibration | None:
    """Of a calibration, or of a file of measured steps."""
    from ..corpus.own import is_measured_file

    if not is_measured_file(path):
        return as_calibration(path)
    from ..learn.calibration.fit import calibrate_file

    return calibrate_file(path, predictor).calibration
