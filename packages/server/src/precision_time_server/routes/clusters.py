"""Named clusters: what is said of their jobs, once for all of them."""

from __future__ import annotations

from typing import Any

from anyio import to_thread
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.request.schema import MOST_ANCHORS

from ..bodies import json_object, json_response
from ..cluster_documents import ClusterDocument, check_name
from ..clusters import document_of
from ..openapi import body
from ..problems import PROBLEMS, NotFoundError
from ..service import ServiceDependency
from ..store.store import Store

router = APIRouter(prefix="/v1/clusters", tags=["clusters"])
EXAMPLE: dict[str, Any] = {
    "fields": {"device": "H100-SXM5-80GB", "gpus": 8, "network": "400g-ib", "stack": "megatron"},
    "anchors": [],
    "hardware": None,
    "note": "Rack 12, since May",
}
_DOCUMENT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "fields": {
            "type": "object",
            "description": "Defaults of its jobs: fields of a job, but for the model.",
        },
        "anchors": {
            "type": "array",
            "items": {"type": "object"},
            "maxItems": MOST_ANCHORS,
            "description": "Measured steps that count at once: jobs with step_time_s or samples_per_s.",
        },
        "hardware": {
            "type": ["object", "null"],
            "description": "Devices, links and node types of its own: the tables of a custom hardware file "
            "(device, link, node).",
        },
        "note": {"type": "string", "maxLength": 2000},
    },
    "additionalProperties": False,
}
_STORED: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        **_DOCUMENT["properties"],
        "measurements": {"type": "integer", "description": "How many are stored."},
        "active_calibration": {"type": ["integer", "null"]},
        "warnings": {"type": "array", "items": {"type": "string"}},
    },
}
_EXAMPLE_STORED = {"name": "a100-pod", **EXAMPLE, "measurements": 0, "active_calibration": None}


def answers(
    description: str, schema: dict[str, Any], example: Any, *, status: int = 200
) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route."""
    content = {"application/json": {"schema": schema, "example": example}}
    return {status: {"description": description, "content": content}, **PROBLEMS}


@router.get(
    "",
    summary="List the clusters",
    responses=answers(
        "All of them, by name.",
        {"type": "object", "properties": {"clusters": {"type": "array", "items": _STORED}}},
        {"clusters": [_EXAMPLE_STORED]},
    ),
)
async def list_clusters(service: ServiceDependency) -> Response:
    """Every cluster with its defaults, anchors and hardware."""
    store = service.store

    def read() -> list[dict[str, Any]]:
        return [{"name": name, **document} for name, document in store.clusters()]

    return json_response({"clusters": await to_thread.run_sync(read)})


@router.get("/{name}", summary="Show a cluster", responses=answers("It.", _STORED, _EXAMPLE_STORED))
async def show_cluster(name: str, service: ServiceDependency) -> Response:
    """Its defaults, anchors and hardware, how much was measured, and which calibration moves its answers."""
    return json_response(await to_thread.run_sync(_shown, name, service.store))


def _shown(name: str, store: Store) -> dict[str, Any]:
    document = document_of(name, store)
    active = next((each.id for each in store.calibrations(name) if each.active), None)
    return {
        "name": name,
        **document.to_dict(),
        "measurements": store.count_measurements(name),
        "active_calibration": active,
    }


@router.put(
    "/{name}",
    summary="Make or change a cluster",
    responses={
        **answers("It, in the place of the one before.", _STORED, _EXAMPLE_STORED),
        **answers("It, for the first time.", _STORED, _EXAMPLE_STORED, status=201),
    },
    openapi_extra=body(_DOCUMENT, pod=EXAMPLE),
)
async def put_cluster(name: str, request: HttpRequest, service: ServiceDependency) -> Response:
    """The document takes the place of the one before; measurements and calibrations stay."""
    check_name(name)
    given = await json_object(request)

    def write() -> tuple[bool, dict[str, Any]]:
        document = ClusterDocument.of(given)
        before = service.store.cluster(name)
        service.store.put_cluster(name, document.to_dict())
        found = _shown(name, service.store)
        number = found["active_calibration"]
        if before is not None and number is not None and before["hardware"] != found["hardware"]:
            found["warnings"] = [
                f"Calibration {number} is active and was made with the hardware before. To fix: POST "
                f"/v1/clusters/{name}/calibrations makes one with this hardware."
            ]
        return before is None, found

    made, found = await to_thread.run_sync(write)
    return json_response(found, status=201 if made else 200)


@router.delete(
    "/{name}",
    summary="Delete a cluster",
    status_code=204,
    responses={204: {"description": "It is gone."}, **PROBLEMS},
)
async def delete_cluster(name: str, service: ServiceDependency) -> Response:
    """With its measurements and calibrations."""
    if not await to_thread.run_sync(service.store.delete_cluster, name):
        raise NotFoundError(f"There is no cluster {name!r}. To fix: GET /v1/clusters lists them.")
    return Response(status_code=204)
