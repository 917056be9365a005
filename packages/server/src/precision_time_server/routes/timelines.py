"""Timelines: a predicted step over time, to be drawn."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.predict.headline import Interval
from precision_time.predict.prediction import Prediction
from precision_time.request.request import Request

from ..bodies import json_object, json_response
from ..drawing import step_drawing
from ..jobs import request_of
from ..openapi import EXAMPLE_JOB, body, job_reference, part
from ..problems import PROBLEMS
from ..service import ServiceDependency

router = APIRouter(prefix="/v1/timelines", tags=["timelines"])
_SECONDS = {"type": "number", "minimum": 0}
_SEGMENTS = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "kind": {
                "type": "string",
                "description": "forward, backward, weight, recompute, bubble, overlapped, or the name of a "
                "term without _s: optimizer, data_exposed ...",
            },
            "stream": {"enum": ["compute", "exposed communication", "overlapped communication"]},
            "start_s": _SECONDS,
            "end_s": _SECONDS,
            "micro_batch": {"type": ["integer", "null"]},
        },
        "required": ["name", "kind", "stream", "start_s", "end_s", "micro_batch"],
    },
}
_NUMBERS = {"type": "object", "additionalProperties": {"type": "number"}}
_ANSWER = {
    "type": "object",
    "properties": {
        "model": {"type": "string"},
        "device": {"type": "string"},
        "gpus": {"type": "integer"},
        "precision": {"type": "string"},
        "layout": {"type": "string", "description": "In a few words."},
        "schedule": {"type": "string", "description": "none without a pipeline."},
        "pipeline_stages": {"type": "integer"},
        "micro_batches": {"type": "integer"},
        "step_time_s": _SECONDS,
        "interval": part(Interval),
        "terms": _NUMBERS,
        "simulated": {
            "type": "boolean",
            "description": "Whether each pass stands by itself, in the order of a simulated schedule; else "
            "each kind of segment is a sum over the step, and stages is empty.",
        },
        "meaning": {"type": "string", "description": "What of it is simulated and what is a sum, in words."},
        "segments": {
            **_SEGMENTS,
            "description": "Of a device of the first stage: without overlapped communication, they follow "
            "each other from 0 to the step time.",
        },
        "seconds_by_kind": {**_NUMBERS, "description": "Of segments; they add up to the step time."},
        "stages": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"stage": {"type": "integer"}, "segments": _SEGMENTS},
                "required": ["stage", "segments"],
            },
        },
        "memory": {
            "anyOf": [{"type": "object"}, {"type": "null"}],
            "description": "Bytes by term over the step, on the fullest stage: held_bytes between times_s.",
        },
    },
}
_ANSWER["required"] = [*_ANSWER["properties"]]


@router.post(
    "",
    summary="Draw a step over time",
    responses={
        200: {
            "description": "The step.",
            "content": {"application/json": {"schema": _ANSWER}},
        },
        **PROBLEMS,
    },
    openapi_extra=body(
        job_reference(),
        resnet50=EXAMPLE_JOB,
        pipeline={
            "model": "llama3-8b", "device": "H100-SXM5-80GB", "gpus": 8, "pp": 4, "tp": 2,
            "global_batch_size": 16,
        },
    ),
)  # fmt: skip
async def draw(request: HttpRequest, service: ServiceDependency) -> Response:
    """Forward and backward passes, exposed communication, bubble and update as segments over time.

    The segments of a device add up to the predicted step term by term. The order of the micro batches on the
    stages is a simulation of the schedule with equal stages; `meaning` says so.
    """
    asked = await request_of(await json_object(request), service)
    found = await service.predictions.predict(asked)
    return await to_thread.run_sync(_drawn, asked, found)


def _drawn(asked: Request, found: Prediction) -> Response:
    return json_response(step_drawing(asked.resolve(), found))
