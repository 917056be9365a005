"""`predict_time`: one call from a request to a prediction."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ..barrier import check_may_read
from ..cost.job import Job
from ..diagnostics import OWN_PREDICTOR, Diagnostic, Severity
from ..errors import PrecisionTimeError
from ..learn.artifact import TrainedPredictor, chosen_predictor
from ..learn.calibration.calibration import Calibration, as_calibration
from ..request.request import Request
from ..request.signature import takes_request_fields
from .anchors import anchored
from .prediction import Prediction
from .predictor import RunLength, predict_jobs
from .remedies import suggest_fit

FEW = 16
"""Of more requests than this, those that do not fit come without what to ask for instead."""
_AT_ONCE = 2048
"""Requests that are answered together: their tables stay small."""


@takes_request_fields()
def predict_time(model: Any, **options: Any) -> Prediction:
    """How long one training step, one epoch and the whole run take.

    Args:
        model: Known name (`precision-time list models`), timm or Hugging Face name, `module:function`, path
            of a config.json, .onnx or .pt2 file, an `nn.Module` (with `example_inputs`), a Hugging
            Face config object, an exported program, an operator graph; or a `Request`.
        options: Fields of `Request`, all optional; whatever is not given is filled in and reported.

    Returns:
        Step time as a sum of named terms, interval, epoch and total time, throughput, MFU, memory,
        the nearest measured runs, and what was assumed.

    Raises:
        UnknownNameError: Model, device, precision or stack that no catalog holds.
        ConfigError: Counts, batches, lengths or a precision that do not fit together.
        CaptureError: A model that cannot be turned into an operator graph.
    """
    return predict(as_request(model, options))


def predict(request: Request, *, predictor: TrainedPredictor | None = None) -> Prediction:
    """The answer to one request.

    Args:
        request: What is asked.
        predictor: The trained predictor; None for the one that the request names, else the one that ships.
    """
    trained, job = predictor or chosen_predictor(request.predictor), request.resolve()
    [answer] = _answers([request], [job], trained)
    return _with_remedy(answer, request, job, trained)


def _with_remedy(answer: Prediction, request: Request, job: Job, predictor: TrainedPredictor) -> Prediction:
    """The answer, with what to ask for instead where the job does not fit."""
    if answer.fits:
        return answer
    remedy = Diagnostic("memory", Severity.WARNING, suggest_fit(request, job, predictor))
    return replace(answer, diagnostics=(*answer.diagnostics, remedy))


def predict_each(
    requests: Sequence[Request],
    *,
    predictor: TrainedPredictor | None = None,
    remedies: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Prediction | PrecisionTimeError]:
    """The answer to each request, or why it has none: as `predict`, but what requests share is done once.

    Equal requests are priced once and have one answer.

    Args:
        requests: What is asked.
        predictor: The trained predictor; None for those that the requests name, else the one that ships.
        remedies: Whether a few that do not fit come with what to ask for instead.
        progress: Told how many of the different requests are looked up, before they are priced together.
    """
    few = remedies and len(requests) <= FEW
    if len(requests) == 1:
        return _each(requests, predictor=predictor, remedies=few, progress=progress)
    first: dict[Hashable, int] = {}
    same = [
        first.setdefault(_plain_key(request) or number, number) for number, request in enumerate(requests)
    ]
    places = {number: place for place, number in enumerate(first.values())}
    once = [requests[number] for number in places]
    answers = _each(once, predictor=predictor, remedies=few, progress=progress)
    return [answers[places[number]] for number in same]


def _plain_key(request: Request) -> str | None:
    """Equal for equal requests; None for one with what only Python can give."""
    try:
        return json.dumps(request.given(), sort_keys=True)
    except (TypeError, ValueError):
        return None


def _each(
    requests: Sequence[Request],
    *,
    predictor: TrainedPredictor | None,
    remedies: bool,
    progress: Callable[[int, int], None],
) -> list[Prediction | PrecisionTimeError]:
    """As `predict_each`, each request by itself."""
    found: list[Prediction | PrecisionTimeError | None] = [None] * len(requests)
    jobs: dict[int, Job] = {}
    for index, request in enumerate(requests):
        progress(index, len(requests))
        try:
            jobs[index] = request.resolve()
        except PrecisionTimeError as error:
            found[index] = error
    together: dict[Hashable, list[int]] = {}
    for index in jobs:
        asked = requests[index]
        # Own measured steps move the answers that they come with, and no others.
        given = asked.calibration
        shared = given if isinstance(given, Calibration) else str(given or "")
        alone = asked.anchors or not isinstance(given, Calibration | str | Path | None)
        measured: Hashable = index if alone else shared
        together.setdefault((measured, asked.predictor), []).append(index)
    for rows in together.values():
        try:
            trained = predictor or chosen_predictor(requests[rows[0]].predictor)
        except PrecisionTimeError as error:
            found = [error if index in rows else each for index, each in enumerate(found)]
            continue
        for start in range(0, len(rows), _AT_ONCE):
            some = rows[start : start + _AT_ONCE]
            try:
                answers = _answers([requests[row] for row in some], [jobs[row] for row in some], trained)
            except PrecisionTimeError as error:  # of the measured steps that all of them share
                found = [error if index in some else each for index, each in enumerate(found)]
                continue
            for row, answer in zip(some, answers, strict=True):
                found[row] = _with_remedy(answer, requests[row], jobs[row], trained) if remedies else answer
    return [each for each in found if each is not None]


def _answers(
    requests: Sequence[Request], jobs: Sequence[Job], predictor: TrainedPredictor
) -> list[Prediction]:
    """The answers to requests with the same measured steps, those of the first."""
    first = requests[0]
    calibration = _calibration(first.calibration, predictor)
    answers = predict_jobs(
        jobs,
        predictor,
        lengths=[
            RunLength(
                dataset=request.dataset,
                dataset_samples=request.samples,
                epochs=request.epochs,
                steps=request.steps,
                tokens=request.tokens,
                input_samples_per_s=request.input_rate,
            )
            for request in requests
        ],
        coverages=[request.coverage for request in requests],
        calibration=anchored(first, predictor, calibration),
    )
    said = diagnostics_of(predictor, calibration)
    return [
        replace(answer, request=request.to_dict(), diagnostics=(*said, *answer.diagnostics))
        for answer, request in zip(answers, requests, strict=True)
    ]


def diagnostics_of(
    predictor: TrainedPredictor, calibration: Calibration | None = None
) -> tuple[Diagnostic, ...]:
    """That an answer is not of the predictor that ships, and that its calibration is of another one."""
    card, found = predictor.model_card, []
    if predictor.origin:
        own = len(predictor.measurements.own)
        text = (
            f"Predictor of {predictor.origin}: fitted on {card['rows']:,} measured runs, {own:,} of your own."
        )
        found.append(Diagnostic(OWN_PREDICTOR, Severity.ASSUMPTION, text))
    made_with = "" if calibration is None else calibration.card.get("predictor", "")
    if made_with and made_with != card["corpus"]:
        text = "The calibration was made with another predictor, and moves answers away from that one's. To "
        text += "fix: precision-time calibrate with the same --predictor."
        found.append(Diagnostic("calibration", Severity.WARNING, text))
    return tuple(found)


def as_request(model: Any, options: Mapping[str, Any]) -> Request:
    """The request of a call: a model and options, or a request and changes of it."""
    if isinstance(model, Request):
        return model.with_(**options) if options else model
    return Request.of({"model": model, **options})


def _calibration(given: Any, predictor: TrainedPredictor) -> Calibration | None:
    """A calibration is read once as long as its file stays the same."""
    if not isinstance(given, str | Path):
        return as_calibration(given)
    check_may_read(given)
    path = Path(given)
    if not os.path.isfile(path):
        return as_calibration(path)
    return _calibration_of(path, path.stat().st_mtime_ns, predictor)


@lru_cache(maxsize=16)
def _calibration_of(path: Path, changed_ns: int, predictor: TrainedPredictor) -> Calibration | None:
    """Of a calibration, or of a file of measured steps."""
    del changed_ns
    from ..corpus.own import is_measured_file

    if not is_measured_file(path):
        return as_calibration(path)
    from ..learn.calibration.fit import calibrate_file

    return calibrate_file(path, predictor).calibration
