"""`predict_time`: one call from a request to a prediction; and many requests at once."""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any

from ..cost.job import Jobs
from ..errors import PrecisionTimeError
from ..learn.artifact import TrainedPredictor
from ..request.request import Request
from ..request.signature import as_request, takes_request_fields
from .answer import answered
from .prediction import Prediction, Skipped
from .predictions import Predictions

FEW = 16
"""Of more requests than this, those that do not fit come without what to ask for instead."""


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
    [found] = predict_each([request], predictor=predictor)
    if isinstance(found, PrecisionTimeError):
        raise found
    return found


def answers_to(
    requests: Sequence[Request],
    *,
    predictor: TrainedPredictor | None = None,
    remedies: bool = True,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Predictions:
    """The answers to requests: as `predict`, but what they share is done once. Equal ones are one row.

    Args:
        requests: What is asked.
        predictor: The trained predictor; None for those that the requests name, else the one that ships.
        remedies: Whether a few that do not fit come with what to ask for instead.
        progress: Told how many of the different requests are looked up, before they are priced together.
    """
    few = remedies and len(requests) <= FEW
    first: dict[Hashable, int] = {}
    several = len(requests) > 1
    same = [
        first.setdefault((several and _plain_key(request)) or number, number)
        for number, request in enumerate(requests)
    ]
    refused: dict[int, PrecisionTimeError] = {}
    resolved: dict[int, Jobs] = {}
    for done, number in enumerate(first.values()):
        progress(done, len(first))
        try:
            resolved[number] = Jobs.of([requests[number].resolve()])
        except PrecisionTimeError as error:
            refused[number] = error
    numbers, tables = [*resolved], []
    row_of: dict[int, int] = {}
    asked = [(requests[number], jobs) for number, jobs in resolved.items()]
    for some, found in answered(asked, predictor=predictor, remedies=few):
        if isinstance(found, PrecisionTimeError):
            refused |= {numbers[place]: found for place in some}
            continue
        start = len(row_of)
        row_of |= {numbers[place]: start + row for row, place in enumerate(some)}
        tables.append(found)
    order = [
        row_of[number] if number in row_of else Skipped.of(request, refused[number])
        for number, request in zip(same, requests, strict=True)
    ]
    return replace(Predictions.together(tables), order=tuple(order))


def predict_each(
    requests: Sequence[Request], *, predictor: TrainedPredictor | None = None, remedies: bool = True
) -> list[Prediction | PrecisionTimeError]:
    """The answer to each request, or why it has none; arguments as of `answers_to`."""
    answers = answers_to(requests, predictor=predictor, remedies=remedies).answers
    return [each if isinstance(each, Prediction) else each.raised for each in answers]


def _plain_key(request: Request) -> str | None:
    """Equal for equal requests; None for one with what only Python can give."""
    try:
        return json.dumps(request.given(), sort_keys=True)
    except (TypeError, ValueError):
        return None
