"""Calibrations of a cluster: made of its measurements or uploaded, each kept as a version."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Path, Query
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import ConfigError, shown
from precision_time.learn.calibration.calibration import FORMAT

from ..bodies import json_object, json_response
from ..clusters import add_version, check_upload, document_of, keep, learned
from ..learning import Activate
from ..openapi import body
from ..problems import NotFoundError
from ..service import ServiceDependency
from ..store.store import Store
from .clusters import answers

router = APIRouter(prefix="/v1/clusters/{name}/calibrations", tags=["clusters"])
_EXAMPLE_CARD = {
    "origin": "cluster a100-pod",
    "rows": 24,
    "configurations": 24,
    "held_out": "each configuration left out in turn",
    "before_mape_percent": 24.1,
    "after_mape_percent": 6.3,
}
_EXAMPLE = {"id": 1, "created": "2026-05-01T12:00:00+00:00", "active": True, "card": _EXAMPLE_CARD}
_ACTIVE = {
    "type": "object",
    "properties": {"id": {"type": ["integer", "null"]}},
    "required": ["id"],
    "additionalProperties": False,
}


def _versions(name: str, store: Store) -> list[dict[str, Any]]:
    document_of(name, store)
    return [
        {"id": each.id, "created": each.created.isoformat(), "active": each.active, "card": dict(each.card)}
        for each in store.calibrations(name)
    ]


@router.get(
    "",
    summary="List the calibrations of a cluster",
    responses=answers("Every version.", {"type": "object"}, {"calibrations": [_EXAMPLE]}),
)
async def list_calibrations(name: str, service: ServiceDependency) -> Response:
    """Every version with its card: where it came from, its points, errors without and with it."""
    return json_response({"calibrations": await to_thread.run_sync(_versions, name, service.store)})


@router.post(
    "",
    summary="Make a calibration, or upload one",
    status_code=201,
    responses=answers(
        "The version, and what it is worth.",
        {"type": "object"},
        {"calibration": {"id": 1, "active": False, "why": "Not asked to be active."}, "learned": {}},
        status=201,
    ),
    openapi_extra=body(
        {"type": "object", "description": "{}, or the content of a file of `precision-time calibrate`."},
        fit={},
    ),
)
async def make_calibration(
    name: str,
    request: HttpRequest,
    service: ServiceDependency,
    activate: Annotated[Activate, Query(description="Whether it moves answers from now on.")] = "never",
) -> Response:
    """Of the stored measurements where the body is `{}`; else of the file that the body is."""
    given = await json_object(request)
    await to_thread.run_sync(document_of, name, service.store)
    if not given:
        result = await learned(name, service)
        kept = await to_thread.run_sync(keep, name, result, activate, service.store)
        return json_response({"calibration": kept.to_dict(), "learned": result.to_dict()}, status=201)
    if given.get("format") != FORMAT:
        raise ConfigError(
            f"The body is {shown(given)}. The rule: {{}} makes a calibration of what is stored, else it is "
            "a file of precision-time calibrate. To fix: send one of these."
        )
    if activate == "if-better":
        raise ConfigError(
            "activate=if-better with an uploaded calibration. The rule: it asks for errors on steps that a "
            "calibration has not seen, and nobody knows what this one has. To fix: activate=always, or make "
            "one of measurements."
        )

    def write() -> dict[str, Any]:
        check_upload(given)
        number = add_version(name, given, service.store)
        if activate == "always":
            service.store.activate(name, number)
        why = "As asked." if activate == "always" else "Not asked to be active."
        return {"id": number, "active": activate == "always", "why": why}

    return json_response({"calibration": await to_thread.run_sync(write), "learned": None}, status=201)


@router.put(
    "/active",
    summary="Choose the calibration that moves answers",
    responses=answers("Every version.", {"type": "object"}, {"calibrations": [_EXAMPLE]}),
    openapi_extra=body(_ACTIVE, back={"id": 1}, none={"id": None}),
)
async def activate_calibration(name: str, request: HttpRequest, service: ServiceDependency) -> Response:
    """Any version, to go back to one before; null for the predictor as it ships."""
    given = await json_object(request)
    number = given.get("id")
    if given.keys() != {"id"} or not (number is None or type(number) is int):
        raise ConfigError(f'The body is {shown(given)}. The rule: id, a number or null. To fix: {{"id": 1}}.')

    def write() -> list[dict[str, Any]]:
        if number is not None and all(each["id"] != number for each in _versions(name, service.store)):
            raise _unknown(name, number)
        document_of(name, service.store)
        service.store.activate(name, number)
        return _versions(name, service.store)

    return json_response({"calibrations": await to_thread.run_sync(write)})


@router.get(
    "/{number}",
    summary="Download a calibration",
    responses=answers(
        "The file, as precision-time predict --calibration reads it.", {"type": "object"}, {"format": FORMAT}
    ),
)
async def download_calibration(
    name: str, number: Annotated[int, Path(ge=0, le=2**62)], service: ServiceDependency
) -> Response:
    """The content of its file."""
    found = await to_thread.run_sync(service.store.calibration, name, number)
    if found is None:
        raise _unknown(name, number)
    return json_response(found)


def _unknown(name: str, number: int) -> NotFoundError:
    return NotFoundError(
        f"There is no calibration {number} of cluster {name}. To fix: GET /v1/clusters/{name}/calibrations "
        "lists them."
    )
