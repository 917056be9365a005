"""Whole runs: from the start of the job to its end."""

from __future__ import annotations

from collections.abc import Mapping

from anyio import to_thread
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import ConfigError, shown
from precision_time.planning.run.prediction import RunPrediction
from precision_time.planning.run.schema import RunOptions
from precision_time.request.sweep import PHASES, RUN

from ..arguments import parted
from ..bodies import json_object, json_response
from ..jobs import checked, request_of
from ..long_functions import run_of_call
from ..openapi import EXAMPLE_JOB, answer, arguments_part, body, job_part
from ..problems import PROBLEMS, TooLargeError
from ..service import ServiceDependency

router = APIRouter(prefix="/v1/runs", tags=["runs"])
_REFUSED = {"grid_hours": "it names a file", "start_hour": "it needs grid_hours, which names a file"}
_OPTIONS = {name: schema for name, schema in arguments_part(RunOptions).items() if name not in _REFUSED}
_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["model"],
    "properties": {
        **job_part(),
        **_OPTIONS,
        RUN: {
            "type": "object",
            "properties": _OPTIONS,
            "additionalProperties": False,
            "description": "The same options, as a job file has them.",
        },
        PHASES: {
            "type": "array",
            "items": {"type": "object"},
            "minItems": 1,
            "description": "Parts of the run: fields that differ, and a length (steps, epochs, tokens, "
            "samples, share).",
        },
    },
}


@router.post(
    "",
    summary="Predict a whole run",
    responses={200: answer(RunPrediction, "The run."), **PROBLEMS},
    openapi_extra=body(
        _SCHEMA,
        epochs={**EXAMPLE_JOB, "epochs": 90, "checkpoint_interval": "1h"},
        phases={
            "model": "bert-large", "device": "A100-SXM4-80GB", "gpus": 64, "global_batch_size": 8192,
            "phases": [{"seq_len": 128, "steps": 7038}, {"seq_len": 512, "steps": 1563}],
        },
    ),
)  # fmt: skip
async def predict_run(request: HttpRequest, service: ServiceDependency) -> Response:
    """Expected seconds as a sum of named terms, with quantiles, failures, checkpoints, cost and energy."""
    fields = await json_object(request)
    nested = fields.pop(RUN, None)
    if nested is not None and not isinstance(nested, Mapping):
        raise ConfigError(
            f'run={shown(nested)} is no object. To fix: such as {{"checkpoint_interval": "1h"}}.'
        )
    inner, unknown = parted(nested or {}, RunOptions, _REFUSED)
    RunOptions.of(unknown)  # refuses what is no option
    outer, job = parted(fields, RunOptions, _REFUSED)
    twice = sorted(name for name in inner if outer.get(name) is not None and inner[name] is not None)
    if twice:
        raise ConfigError(f"{twice[0]} is given twice, once in run. To fix: give one of them.")
    options = {**{name: value for name, value in outer.items() if value is not None}, **inner}
    phases = job.pop(PHASES, None)
    if isinstance(phases, list) and len(phases) > service.settings.max_jobs:
        raise TooLargeError(
            f"{len(phases):,} phases. The rule: at most {service.settings.max_jobs:,} of one call. To fix: "
            "name fewer, or let the operator raise the limit (--limit jobs=N)."
        )
    for phase in phases if isinstance(phases, list) else ():
        if isinstance(phase, Mapping):
            checked(phase)
    asked = await request_of(job, service)
    arguments = (asked, options, phases, service.settings.max_jobs)
    if phases is None:
        found = await to_thread.run_sync(run_of_call, *arguments)
    else:
        found = await service.long_work.run(run_of_call, *arguments)
    return await to_thread.run_sync(json_response, {**found, "request": job | options})
