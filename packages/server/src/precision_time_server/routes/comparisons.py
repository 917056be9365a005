"""Comparisons: one job at several precisions, or all combinations of several values."""

from __future__ import annotations

from collections.abc import Sequence

from anyio import to_thread
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import ConfigError, shown
from precision_time.predict.prediction import Prediction, Skipped

from ..bodies import json_object, json_response
from ..combinations import Asked, combinations_of_call
from ..long_functions import answers_of
from ..metrics import PREDICTIONS
from ..openapi import EXAMPLE_JOB, body, job_part, part
from ..problems import PROBLEMS
from ..service import Service, ServiceDependency

router = APIRouter(prefix="/v1", tags=["comparisons"])
_AT_ONCE = 100
"""Jobs that are answered beside single predictions; more go to a process of their own."""
_PRECISIONS = "precisions"
_COMPARISON = {
    "type": "object",
    "additionalProperties": False,
    "required": ["model"],
    "properties": {
        **job_part(),
        _PRECISIONS: {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": ["string", "object"]}, "minItems": 1},
            ],
            "default": "all",
            "description": "Names in any usual spelling, or policies as objects; all: every one there is.",
        },
    },
}
_SWEEP = {
    "type": "object",
    "additionalProperties": False,
    "required": ["model"],
    "properties": {
        **job_part(),
        "model": {
            "anyOf": [
                {"type": "string"},
                {"type": "object"},
                {"type": "array", "items": {"type": ["string", "object"]}, "minItems": 1},
            ],
            "description": "One, or several in a list.",
        },
    },
}
_ANSWERS = {
    "description": "The answers, and the jobs that have none.",
    "content": {
        "application/json": {
            "schema": {
                "type": "object",
                "properties": {
                    "predictions": {"type": "array", "items": part(Prediction)},
                    "skipped": {"type": "array", "items": part(Skipped)},
                },
                "required": ["predictions", "skipped"],
            }
        }
    },
}


@router.post(
    "/comparisons",
    summary="Compare precisions",
    responses={200: _ANSWERS, **PROBLEMS},
    openapi_extra=body(
        _COMPARISON,
        some={"model": "resnet50", "gpus": 8, _PRECISIONS: ["tf32", "fp16-mixed", "bf16-mixed"]},
    ),
)
async def compare(request: HttpRequest, service: ServiceDependency) -> Response:
    """One job at several precisions, at the largest batch that fits all of them where none is given."""
    fields = await json_object(request)
    named = fields.pop(_PRECISIONS, None)
    if fields.pop("precision", None) is not None:
        raise ConfigError(
            "precision and precisions both say at which precision. To fix: leave out precision."
        )
    if named is not None and (not named or not isinstance(named, str | list)):
        raise ConfigError(
            f"precisions={shown(named)} names no precision. To fix: name at least one, such as "
            '["fp16-mixed"], or "all".'
        )
    asked = await combinations_of_call({**fields, "precision": "all" if named is None else named}, service)
    return await _answered(asked, service)


@router.post(
    "/sweeps",
    summary="Predict all combinations of values",
    responses={200: _ANSWERS, **PROBLEMS},
    openapi_extra=body(
        _SWEEP,
        scaling={**EXAMPLE_JOB, "gpus": "1..8", "precision": ["tf32", "fp16-mixed"]},
    ),
)
async def sweep(request: HttpRequest, service: ServiceDependency) -> Response:
    """Each combination of the values of all fields is a job; those that have no answer are in `skipped`.

    Fields that hold a number, a name, a choice or a switch take a list, a text such as `8,16,64`, or a
    range: `16..256` doubles, `16..256:16` goes in steps of 16.
    """
    return await _answered(await combinations_of_call(await json_object(request), service), service)


async def _answered(asked: Sequence[Asked], service: Service) -> Response:
    requests = [each.request for each in asked]
    if len(requests) > _AT_ONCE:
        found = await service.long_work.run(answers_of, requests)
    else:
        found = await to_thread.run_sync(answers_of, requests)
    answers = [{**answer, "request": each.fields} for answer, each in zip(found, asked, strict=True)]
    skipped = [
        {"number": number, **answer} for number, answer in enumerate(answers, start=1) if "reason" in answer
    ]
    PREDICTIONS.inc(len(answers) - len(skipped))
    said = {
        "predictions": [answer for answer in answers if "reason" not in answer],
        "skipped": skipped,
    }
    return await to_thread.run_sync(json_response, said)
