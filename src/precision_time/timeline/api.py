"""`memory_timeline`, and the step of an answer in order."""

from __future__ import annotations

from typing import Any

from ..predict.api import predict
from ..predict.prediction import Prediction
from ..request.request import Request
from ..request.signature import as_request, takes_request_fields
from .memory import MemoryTimeline, memory_of_step
from .step import StepTimeline, step_timeline


@takes_request_fields()
def memory_timeline(model: Any, **options: Any) -> MemoryTimeline:
    """What the fullest device holds over one step: bytes by term, over time.

    Args:
        model: As `predict_time` takes it, or a `Request`.
        options: Fields of `Request`, all optional.

    Returns:
        The memory over the step; its peak is the memory per device that `predict_time` gives, term by term.

    Raises:
        UnknownNameError: Model, device, precision or stack that no catalog holds.
        ConfigError: Counts, batches, lengths or a precision that do not fit together.
        CaptureError: A model that cannot be turned into an operator graph.
    """
    request = as_request(model, options)
    return step_of_answer(predict(request), request)[1]


def step_of_answer(answer: Prediction, request: Request | None = None) -> tuple[StepTimeline, MemoryTimeline]:
    """The step of an answer in order, and the memory over it."""
    job = (request or Request.of(answer.request or {})).resolve()
    step = step_timeline(job, answer)
    return step, memory_of_step(job, step)
