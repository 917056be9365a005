"""PredictDDL behind the service: its listener, its task checker, its registry and its resource collector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Path, Query
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import ConfigError, shown
from precision_time.units import duration_s
from precision_time_server.routing import (
    PREDICTIONS,
    PROBLEMS,
    ServiceDependency,
    TooLargeError,
    body,
    json_object,
    json_response,
    problem_of,
)

from .answers import PredictDDLAnswers
from .collectors import MAX_AGE_S, ServerReport, checked_name, collected_cluster, keep_report

router = APIRouter(prefix="/v1/predictddl", tags=["predictddl"])
EXAMPLE_REQUEST: Mapping[str, Any] = {
    "model": "resnet50", "batch_size": 64, "dataset": "imagenet", "epochs": 90, "precision": "fp16-mixed",
    "cluster": {"device": "A100", "num_nodes": 2, "devices_per_node": 8},
}  # fmt: skip
EXAMPLE_REPORT: Mapping[str, Any] = {
    "device": "NVIDIA A100-SXM4-80GB", "devices": 8, "device_memory_gib": 80, "cores": 128, "clock_ghz": 2.45,
    "memory_gib": 1024, "load": 0.02,
}  # fmt: skip
_REQUEST_SCHEMA = {
    "type": "object",
    "required": ["model"],
    "properties": {
        "model": {"anyOf": [{"type": "string"}, {"type": "object"}]},
        "cluster": {
            "anyOf": [{"type": "string"}, {"type": "object"}],
            "description": "The name of a cluster whose servers report, or device, num_nodes, "
            "devices_per_node and links; instead of these, device and gpus as of a job.",
        },
        "dataset": {
            "anyOf": [{"type": "string"}, {"type": "object"}],
            "description": "A known name, or name, samples, classes, shape or length, modality.",
        },
        "deadline": {
            "anyOf": [{"type": "string"}, {"type": "number"}],
            "description": "As 2h, or seconds: the answer is then how many servers of each kind meet it.",
        },
        "max_servers": {"type": "integer", "minimum": 1},
        "variant": {"enum": ["predictddl", "predictddl-size", "predictddl-precision"]},
        "regressor": {"enum": ["linear", "polynomial-2", "svr", "mlp"]},
        "version": {"type": "integer", "minimum": 1},
        "name": {"type": "string"},
    },
    "description": "A line of the batch file of `precision-time papers predictddl batch`: fields of a "
    "job that is "
    "data parallel, and those of PredictDDL.",
}
_BODY_SCHEMA = {
    "anyOf": [
        _REQUEST_SCHEMA,
        {
            "type": "object",
            "required": ["requests"],
            "properties": {
                "requests": {"type": "array", "minItems": 1, "items": {"type": "object"}},
                "shared": {"type": "object", "description": "Fields of every request without them."},
            },
            "additionalProperties": False,
        },
    ]
}
_PROPERTIES = ServerReport.model_json_schema()["properties"]
_REPORT_SCHEMA = {"type": "object", "properties": _PROPERTIES, "additionalProperties": False}
Name = Annotated[str, Path(pattern="^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$")]


def _json(description: str, example: Any) -> dict[int | str, dict[str, Any]]:
    content = {"application/json": {"schema": {"type": "object"}, "example": example}}
    return {200: {"description": description, "content": content}, **PROBLEMS}


@router.post(
    "/predictions",
    summary="Predict with PredictDDL",
    responses=_json(
        "The answer, or with `requests` the `answers` in their order: each a `prediction`, `servers` for a "
        "request with a deadline, or a `problem`.",
        {"model": "resnet50", "step_time_s": 0.11, "training_time_s": 12300.0, "task": "hit"},
    ),
    openapi_extra=body(
        _BODY_SCHEMA,
        one=EXAMPLE_REQUEST,
        many={"shared": EXAMPLE_REQUEST, "requests": [{"model": "vgg16"}, {"model": "densenet121"}]},
        deadline={**EXAMPLE_REQUEST, "deadline": "12h", "max_servers": 8},
    ),
)
async def predict(request: HttpRequest, service: ServiceDependency) -> Response:
    """The time of a training run by the predictor of its dataset type, or of many; no call trains one."""
    given = await json_object(request)
    if "requests" not in given:
        [found] = await service.part(PredictDDLAnswers).answers([given], service)
        if isinstance(found, Exception):
            raise found
        PREDICTIONS.inc()
        return json_response(found.to_dict())
    answers = await service.part(PredictDDLAnswers).answers(
        _requests(given, service.settings.max_jobs), service
    )
    PREDICTIONS.inc(sum(not isinstance(each, Exception) for each in answers))
    return await to_thread.run_sync(_many, answers)


def _requests(given: Mapping[str, Any], most: int) -> list[Any]:
    """The requests of a call with what they share.

    Raises:
        ConfigError: If it holds something else.
        TooLargeError: If they are too many.
    """
    requests, shared = given["requests"], given.get("shared", {})
    unknown = given.keys() - {"requests", "shared"}
    if unknown or not isinstance(requests, list) or not requests or not isinstance(shared, Mapping):
        what = (
            f"the unknown key {shown(min(unknown))}"
            if unknown
            else f"requests={shown(requests)}, shared={shown(shared)}"
        )
        raise ConfigError(
            f"The body has {what}. The rule: a list of requests, and maybe an object of fields that they "
            'share. To fix: send {"requests": [{"model": "vgg16"}], "shared": {"device": "A100"}}.'
        )
    if len(requests) > most:
        raise TooLargeError(
            f"{len(requests)} requests in one call. The rule: at most {most}. To fix: send several calls, or "
            "let the operator raise the limit (--limit jobs=N)."
        )
    return [{**shared, **each} if isinstance(each, Mapping) else each for each in requests]


def _many(answers: list[Any]) -> Response:
    return json_response({"answers": [_one(each) for each in answers]})


def _one(answer: Any) -> dict[str, Any]:
    if isinstance(answer, Exception):
        return {"problem": problem_of(answer)}
    said = answer.to_dict()
    return {"servers" if "kinds" in said else "prediction": said}


@router.get(
    "/tasks",
    summary="Ask the task checker",
    responses=_json(
        "`outcome`: hit (a predictor of the dataset's type), closest (the one that stands in, with its "
        "distance), or train (none serves it before one is trained).",
        {
            "dataset": "tiny-imagenet",
            "type": "other",
            "outcome": "closest",
            "used": "cifar",
            "distance": 1.06,
        },
    ),
)
async def tasks(
    service: ServiceDependency,
    dataset: Annotated[str, Query(max_length=200, examples=["tiny-imagenet"])],
    samples: Annotated[int | None, Query(ge=1, le=10**15)] = None,
    classes: Annotated[int | None, Query(ge=1, le=10**12)] = None,
    elements: Annotated[float | None, Query(gt=0, le=1e15)] = None,
    side: Annotated[int | None, Query(ge=1, le=10**6)] = None,
    modality: Annotated[str | None, Query(max_length=20)] = None,
) -> Response:
    """Which predictor serves a dataset.

    An unknown dataset is described by its samples, classes and the elements of a sample (channels x height
    x width, or its length).
    """
    stated = {
        "samples": samples, "classes": classes, "elements": elements, "side": side, "modality": modality,
    }  # fmt: skip
    return json_response(await service.part(PredictDDLAnswers).task(dataset, stated, service))


@router.get(
    "/types",
    summary="List the trained predictors",
    responses=_json(
        "Every version, and dataset types without any.",
        {"types": [{"type": "imagenet", "versions": [{"version": 1, "shipped": True, "card": {}}]}]},
    ),
)
async def types(service: ServiceDependency) -> Response:
    """Dataset types with the versions of their predictors: rows, architectures, devices, scores."""
    return json_response(await service.part(PredictDDLAnswers).types())


@router.put(
    "/clusters/{name}/servers/{server}",
    summary="Report a server of a cluster",
    responses=_json(
        "When it was stored.", {"cluster": "lab", "server": "node1", "at": "2026-01-01T00:00:00+00:00"}
    ),
    openapi_extra=body(_REPORT_SCHEMA, a100=EXAMPLE_REPORT),
)
async def report(request: HttpRequest, service: ServiceDependency, name: Name, server: Name) -> Response:
    """What a server is made of and how busy it is, in the place of what it said before."""
    checked_name("cluster", name)
    checked_name("server", server)
    given = ServerReport.of(await json_object(request))
    at = await to_thread.run_sync(keep_report, service.store, name, server, given)
    return json_response({"cluster": name, "server": server, "at": at.isoformat()})


@router.get(
    "/clusters/{name}",
    summary="Show a cluster whose servers report",
    responses=_json(
        "`features` as the servers report them, `inputs` as the predictors read them, every report with its "
        "age, and in `left_out` those that are older than max_age.",
        {"name": "lab", "features": {"servers": 2, "devices": 16}, "servers": [], "left_out": []},
    ),
)
async def cluster(
    service: ServiceDependency,
    name: Name,
    max_age: Annotated[str, Query(max_length=20, examples=["10m"])] = f"{MAX_AGE_S:g}s",
) -> Response:
    """The cluster as requests that name it see it; servers that have not reported lately are left out."""
    found = await to_thread.run_sync(_cluster, service, name, duration_s("max_age", max_age))
    return json_response(found)


def _cluster(service: ServiceDependency, name: str, max_age_s: float) -> dict[str, Any]:
    return collected_cluster(service.store, name, max_age_s=max_age_s).to_dict()
