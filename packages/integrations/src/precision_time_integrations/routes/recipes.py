"""Recipes of other projects: their text in, the report and the fields of the job out."""

from __future__ import annotations

from functools import partial

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import ConfigError, shown
from precision_time_server.routing import (
    PROBLEMS,
    ServiceDependency,
    body,
    checked,
    json_object,
    json_response,
)

from ..recipes.sent import SENT, read_sent

router = APIRouter(prefix="/v1/recipes", tags=["recipes"])
_READERS = 2
"""Threads that read: a long script takes a second of a core."""
_TEXTS = {"type": "array", "items": {"type": "string"}}
_ANSWER = {
    "type": "object",
    "properties": {
        "project": {"type": "string", "description": "Whose recipe it is, with the version of its defaults."},
        "report": {
            **_TEXTS,
            "description": "Read, assumed, not understood, overridden; lines in this order.",
        },
        "job": {"type": "object", "description": "Fields of a job, as POST /v1/predictions takes them."},
        "missing": {**_TEXTS, "description": "What an answer hangs on and the recipe does not say."},
        "recipe": {"type": "object", "description": "The report, part by part."},
    },
    "required": ["project", "report", "job", "missing", "recipe"],
}
_EXAMPLE = {
    "name": "lora.yml",
    "text": "base_model: NousResearch/Llama-3.2-1B\nadapter: lora\nlora_r: 16\nsequence_len: 2048\n"
    "micro_batch_size: 2\nnum_epochs: 1\nbf16: auto\ndatasets:\n- path: tatsu-lab/alpaca\n",
    "fields": {"device": "A100-SXM4-80GB", "gpus": 8},
}


def _readers() -> CapacityLimiter:
    return CapacityLimiter(_READERS)


@router.post(
    "",
    summary="Read a recipe",
    responses={
        200: {
            "description": "How it is understood.",
            "content": {"application/json": {"schema": _ANSWER}},
        },
        **PROBLEMS,
    },
    openapi_extra=body(SENT, recipe=_EXAMPLE),
)
async def read(request: HttpRequest, service: ServiceDependency) -> Response:
    """What a recipe, a Python script or a shell command of another project trains.

    Nothing of it is run, and no file is opened: those that it names are sent with it. Fields stand in the
    place of what the recipe says.
    """
    sent = await json_object(request)
    unknown = sent.keys() - SENT["properties"].keys()
    if unknown:
        raise ConfigError(
            f"{shown(min(unknown))} is no part of a recipe that is sent. To fix: send name, text, files and "
            "fields."
        )
    fields = sent.get("fields") or {}
    if not isinstance(fields, dict):
        raise ConfigError(f"fields={shown(fields)} is no object. To fix: name and value of each field.")
    reading = partial(read_sent, sent, given=checked(fields))
    found = await to_thread.run_sync(reading, abandon_on_cancel=True, limiter=service.part(_readers))
    return json_response(found)
