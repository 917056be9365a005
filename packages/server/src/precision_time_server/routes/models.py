"""Uploaded models: stored under a name of their content, which jobs may name."""

from __future__ import annotations

import re
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import shown

from ..bodies import is_json, json_response, media_type
from ..capture.kinds import UPLOAD
from ..capture.process import enforced
from ..jobs import UPLOADS
from ..problems import PROBLEMS, WrongMediaTypeError
from ..service import ServiceDependency
from ..store.entries import ModelSummary
from ..uploads import not_found, too_large

router = APIRouter(prefix="/v1/models", tags=["models"])
_ID = re.compile(r"[0-9a-f]{32}")
_EXAMPLE = {
    "name": f"{UPLOADS}0f343b0931126a20f133d67c2b018a3b", "label": "my resnet50", "kind": "onnx",
    "params": 25557032, "forward_flops": 8178368512, "operators": 122, "warnings": [],
}  # fmt: skip
_CONFIG = (
    '{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, '
    '"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000}'
)
_MODEL = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "For the field model of a job."},
        "label": {"type": "string"},
        "kind": {"type": "string", "enum": list(UPLOAD)},
        "params": {"type": "number", "description": "Parameter elements."},
        "forward_flops": {"type": "number", "description": "Per sample."},
        "operators": {"type": "integer"},
        "warnings": {"type": "array", "items": {"type": "string"}},
    },
    "required": list(_EXAMPLE),
}
_UPLOAD_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/octet-stream": {
                "schema": {"type": "string", "format": "binary"},
                "examples": {"hf-config": {"value": _CONFIG}},
            }
        },
    }
}


def _says(schema: dict[str, Any], example: Any, description: str) -> dict[str, Any]:
    return {
        "description": description,
        "content": {"application/json": {"schema": schema, "example": example}},
    }


def _said(record: ModelSummary) -> dict[str, Any]:
    return {"name": record.name, "label": record.label, "kind": record.kind, **record.facts}


@router.post(
    "",
    status_code=201,
    summary="Upload a model",
    responses={
        200: _says(_MODEL, _EXAMPLE, "It is stored already, under the label that it had."),
        201: _says(_MODEL, _EXAMPLE, "It is captured and stored."),
        **PROBLEMS,
    },
    openapi_extra=_UPLOAD_BODY,
)
async def upload(
    request: HttpRequest,
    service: ServiceDependency,
    kind: Annotated[str, Query(description=f"One of {', '.join(UPLOAD)}.", examples=["hf-config"])] = "",
    label: Annotated[str, Query(description="What the model is called.")] = "",
) -> Response:
    """The body is the file: ONNX, `torch.export.save` (.pt2), or a config.json of Hugging Face.

    It is captured in a process with limits on memory, time and files, without network; nothing in it is
    imported, unpickled or fetched. The same upload twice is captured once.
    """
    sent = media_type(request)
    if sent != "application/octet-stream" and not (kind == "hf-config" and is_json(sent)):
        raise WrongMediaTypeError(
            f"The body is said to be {shown(sent) if sent else 'of no type'}. The rule: the file itself. To "
            "fix: send Content-Type: application/octet-stream (curl --data-binary @FILE)."
        )
    stated = request.headers.get("content-length", "")
    most = service.uploads.most_bytes(kind)
    if stated.isdigit() and int(stated) > most:
        raise too_large(most)
    record, is_new = await service.uploads.add(request.stream(), kind=kind, label=label)
    where = {"Location": f"/v1/models/{record.name.removeprefix(UPLOADS)}"}
    return json_response(_said(record), status=201 if is_new else 200, headers=where)


@router.get(
    "",
    summary="Uploaded models",
    responses={
        200: _says(
            {
                "type": "object",
                "properties": {"items": {"type": "array", "items": _MODEL}},
                "required": ["items"],
            },
            {"items": [_EXAMPLE]},
            "All of them.",
        ),
        **PROBLEMS,
    },
)
async def models(service: ServiceDependency) -> Response:
    """Every model that was uploaded."""
    return json_response({"items": [_said(record) for record in await service.uploads.records()]})


@router.get(
    "/limits",
    summary="Limits of uploads",
    responses={
        200: _says(
            {"type": "object"},
            {
                "max_upload_bytes": 2**26,
                "max_config_bytes": 2**20,
                "capture_time_s": 60,
                "enforced": {"no network": True},
            },
            "Limits, and which of those of the capture this machine enforces.",
        ),
        **PROBLEMS,
    },
)
async def limits(service: ServiceDependency) -> Response:
    """What an upload may need, and what holds the process that captures it."""
    settings = service.settings
    return json_response(
        {
            "max_upload_bytes": settings.max_upload_bytes,
            "max_config_bytes": service.uploads.most_bytes("hf-config"),
            "capture_memory_bytes": settings.capture_memory_bytes,
            "capture_time_s": min(settings.capture_time_s, settings.time_limit_s),
            "enforced": await to_thread.run_sync(enforced),
        }
    )


@router.get(
    "/{model_id}",
    summary="One uploaded model",
    responses={200: _says(_MODEL, _EXAMPLE, "The model."), **PROBLEMS},
)
async def model(model_id: str, service: ServiceDependency) -> Response:
    """What is known of it; its operators are not shown."""
    record = await service.uploads.record(_name(model_id))
    if record is None:
        raise not_found(model_id)
    return json_response(_said(record))


@router.delete(
    "/{model_id}",
    status_code=204,
    summary="Forget an uploaded model",
    responses={204: {"description": "It is forgotten."}, **PROBLEMS},
)
async def delete(model_id: str, service: ServiceDependency) -> Response:
    """Jobs that name it find it no longer, within five seconds in other worker processes."""
    if not await service.uploads.delete(_name(model_id)):
        raise not_found(model_id)
    return Response(status_code=204)


def _name(model_id: str) -> str:
    if not _ID.fullmatch(model_id):
        raise not_found(model_id)
    return f"{UPLOADS}{model_id}"
