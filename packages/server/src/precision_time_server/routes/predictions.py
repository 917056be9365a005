"""Predictions: one job, or many at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from anyio import to_thread
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.diagnostics import Diagnostic, Severity
from precision_time.errors import ConfigError, PrecisionTimeError, shown
from precision_time.predict.prediction import Prediction
from precision_time.request.request import Request

from ..batching import WITHOUT_REMEDY
from ..bodies import json_bytes, json_object, json_response, json_text
from ..jobs import UPLOADS, request_of
from ..metrics import PREDICTIONS
from ..openapi import EXAMPLE_JOB, answer, body, job_reference
from ..problems import PROBLEMS, TooLargeError, problem_of
from ..service import Service, ServiceDependency

router = APIRouter(prefix="/v1/predictions", tags=["predictions"])
_BATCH_SCHEMA = {
    "type": "object",
    "properties": {
        "jobs": {
            "type": "array",
            "items": {"type": "object"},
            "minItems": 1,
            "description": "Their own fields.",
        },
        "shared": {"type": "object", "description": "Fields of every job that does not say otherwise."},
    },
    "required": ["jobs"],
    "additionalProperties": False,
}
_ANSWERS = {
    "type": "object",
    "properties": {
        "answers": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"prediction": {"type": "object"}, "problem": {"type": "object"}},
                "minProperties": 1,
                "maxProperties": 1,
            },
        }
    },
    "required": ["answers"],
}


@router.post(
    "",
    summary="Predict one job",
    responses={200: answer(Prediction, "The prediction."), **PROBLEMS},
    openapi_extra=body(job_reference(), resnet50=EXAMPLE_JOB),
)
async def predict(
    request: HttpRequest, service: ServiceDependency, why: bool = False, batch_assumed: bool = False
) -> Response:
    """Seconds of a step, an epoch and the run, as a sum of named terms, with an interval and assumptions.

    With `why=true`, in `why`: how much each assumption matters, and the page that the command line prints.
    With `batch_assumed=true` the batch of the job counts as an assumption: jobs that are compared have one.
    """
    fields = await json_object(request)
    key = None if why else remembered_as(fields)
    known = None if key is None else service.answered.get(key)
    if known is not None:
        PREDICTIONS.inc()
        return json_bytes(known)
    asked = await request_of(fields, service)
    found = await service.predictions.predict(asked)
    PREDICTIONS.inc()
    said = as_asked(found, fields)
    if not why:
        text = json_text(said.to_dict())  # with the members that it derives, such as money
        if key is not None and found.diagnostics[-1:] != (WITHOUT_REMEDY,):
            service.answered.keep(key, text)
        return json_bytes(text)
    batch = Diagnostic("default-batch", Severity.ASSUMPTION, "Batch size not given.")
    weighed = replace(found, diagnostics=(*found.diagnostics, batch)) if batch_assumed else found
    return json_response({**said.to_dict(), "why": await to_thread.run_sync(_why, weighed, asked)})


@router.post(
    "/batch",
    summary="Predict many jobs",
    responses={
        200: {
            "description": "One answer for each job.",
            "content": {"application/json": {"schema": _ANSWERS}},
        },
        **PROBLEMS,
    },
    openapi_extra=body(
        _BATCH_SCHEMA,
        precisions={"shared": EXAMPLE_JOB, "jobs": [{"precision": "tf32"}, {"precision": "bf16-mixed"}]},
    ),
)
async def predict_batch(request: HttpRequest, service: ServiceDependency) -> Response:
    """The answers in the order of the jobs; a job that has none gets a problem in its place."""
    given = await json_object(request)
    jobs = jobs_of(given, service)
    asked = [await _asked(job, service) for job in jobs]
    found = iter(
        await service.predictions.predict_each([each for each in asked if isinstance(each, Request)])
    )
    answers = [next(found) if isinstance(each, Request) else each for each in asked]
    PREDICTIONS.inc(sum(isinstance(each, Prediction) for each in answers))
    body = {
        "answers": [
            {"prediction": as_asked(each, job)}
            if isinstance(each, Prediction)
            else {"problem": problem_of(each)}
            for each, job in zip(answers, jobs, strict=True)
        ]
    }
    return await to_thread.run_sync(json_response, body)


def remembered_as(fields: Mapping[str, Any]) -> str | None:
    """What an answer is remembered under; None where it depends on what is stored."""
    names_upload = any(isinstance(value, str) and value.startswith(UPLOADS) for value in fields.values())
    return None if "cluster" in fields or names_upload else json.dumps(fields)


def jobs_of(given: Mapping[str, Any], service: Service) -> list[dict[str, Any]]:
    """The jobs of a call with what they share.

    Raises:
        ConfigError: If the call holds no list of jobs, or something else beside it.
        TooLargeError: If there are too many.
    """
    jobs, shared = given.get("jobs"), given.get("shared", {})
    unknown = given.keys() - {"jobs", "shared"}
    if unknown or not isinstance(jobs, list) or not jobs or not isinstance(shared, Mapping):
        what = (
            f"the unknown key {shown(min(unknown))}"
            if unknown
            else f"jobs={shown(jobs)}, shared={shown(shared)}"
        )
        raise ConfigError(
            f"The body has {what}. The rule: a list of jobs, and maybe an object of fields that they share. "
            'To fix: send {"jobs": [{"model": "resnet50"}], "shared": {"gpus": 8}}.'
        )
    if len(jobs) > service.settings.max_jobs:
        raise TooLargeError(
            f"{len(jobs)} jobs in one call. The rule: at most {service.settings.max_jobs}. To fix: send "
            "several calls, or let the operator raise the limit (--limit jobs=N)."
        )
    for job in jobs:
        if not isinstance(job, Mapping):
            raise ConfigError(f"jobs holds {shown(job)}. The rule: objects of fields. To fix: correct it.")
    return [{**shared, **job} for job in jobs]


async def _asked(job: Mapping[str, Any], service: Service) -> Request | PrecisionTimeError:
    await asyncio.sleep(0)  # other calls come between the jobs of this one
    try:
        return await request_of(job, service)
    except PrecisionTimeError as error:
        return error


def as_asked(found: Prediction, fields: Mapping[str, Any]) -> Prediction:
    """A prediction whose request is what the call said."""
    return replace(found, request=fields)


def _why(found: Prediction, asked: Request) -> dict[str, Any]:
    """What the answer depends on, and the page of the command line."""
    from precision_time.predict.changes import what_matters

    return {"matters": [asdict(each) for each in what_matters(found, request=asked)], "page": str(found)}
