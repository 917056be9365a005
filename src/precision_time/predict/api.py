"""`predict_time`: one call from a request to a prediction."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..barrier import check_may_read
from ..cost.job import Jobs
from ..diagnostics import OWN_PREDICTOR, Diagnostic, Severity
from ..errors import PrecisionTimeError
from ..io import once_per_file
from ..learn.artifact import TrainedPredictor, chosen_predictor
from ..learn.calibration.calibration import Calibration, as_calibration
from ..request.request import Request
from ..request.signature import as_request, takes_request_fields
from .anchors import anchored
from .answer import ALL, Answers, RunLength, answer
from .prediction import Prediction
from .view import prediction_of

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
    [(_, found)] = answered([(request, Jobs.of([request.resolve()]))], predictor=predictor, remedies=True)
    if isinstance(found, PrecisionTimeError):
        raise found
    return prediction_of(found, 0)


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
    found: dict[int, Prediction | PrecisionTimeError] = {}
    resolved: dict[int, Jobs] = {}
    for index, request in enumerate(requests):
        progress(index, len(requests))
        try:
            resolved[index] = Jobs.of([request.resolve()])
        except PrecisionTimeError as error:
            found[index] = error
    places = [*resolved]
    asked = [(requests[index], jobs) for index, jobs in resolved.items()]
    for rows, answers in answered(asked, predictor=predictor, remedies=remedies):
        for place, row in enumerate(rows):
            found[places[row]] = prediction_of(answers, place) if isinstance(answers, Answers) else answers
    return [found[index] for index in range(len(requests))]


def answered(
    asked: Sequence[tuple[Request, Jobs]],
    *,
    predictor: TrainedPredictor | None = None,
    remedies: bool = False,
    want: frozenset[str] = ALL,
) -> Iterator[tuple[list[int], Answers | PrecisionTimeError]]:
    """The answers to requests, those with the same predictor and measured steps in one table.

    Args:
        asked: Requests, each with its jobs.
        predictor: Of all; None for the one that each request names, else the one that ships.
        remedies: Of `answer`, as `want`.
        want: The groups of columns.

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
                found = _table([asked[row] for row in some], predictor, remedies, want)
            except PrecisionTimeError as error:
                if len(some) == 1:
                    yield some, error
                    continue
                for row in some:  # each says by itself what is wrong with it
                    again = answered([asked[row]], predictor=predictor, remedies=remedies, want=want)
                    yield from (([row], each) for _, each in again)
                continue
            yield some, found


def _table(
    asked: Sequence[tuple[Request, Jobs]],
    predictor: TrainedPredictor | None,
    remedies: bool,
    want: frozenset[str],
) -> Answers:
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
        want=want,
    )


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
