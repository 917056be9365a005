"""Uploaded models: stored under a name of their content, which jobs may name."""

from __future__ import annotations

import re
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.client.operations import UploadedModel
from precision_time.errors import shown

from ..bodies import body_of, is_json, json_response, media_type
from ..jobs import UPLOADS
from ..openapi import answer
from ..problems import PROBLEMS, WrongMediaTypeError
from ..service import ServiceDependency
from ..store.entries import ModelSummary
from ..uploads import MOST_BYTES, not_found

router = APIRouter(prefix="/v1/models", tags=["models"])
_ID = re.compile(r"[0-9a-f]{32}")
_CONFIG = (
    '{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, '
    '"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 32000}'
)
_BODY = {
    "required": True,
    "content": {
        "application/octet-stream": {
            "schema": {"type": "string", "format": "binary"},
            "examples": {"hf-config": {"value": _CONFIG}},
        }
    },
}


def _said(record: ModelSummary) -> dict[str, Any]:
    return {"name": record.name, "label": record.label, "kind": record.kind, **record.facts}


@router.post(
    "",
    status_code=201,
    summary="Upload a model",
    responses={
        200: answer(UploadedModel, "It is stored already, under the label that it had."),
        201: answer(UploadedModel, "It is stored."),
        **PROBLEMS,
    },
    openapi_extra={"requestBody": _BODY},
)
async def upload(
    request: HttpRequest,
    service: ServiceDependency,
    kind: Annotated[str, Query(description=f"One of {', '.join(MOST_BYTES)}.", examples=["hf-config"])] = "",
    label: Annotated[str, Query(description="What the model is called.")] = "",
) -> Response:
    """The body is a graph that `Client.upload_model` captured (JSON), or a config.json of Hugging Face.

    It is checked value by value; nothing in it is imported, unpickled or fetched. Modules, ONNX files and
    exported programs are captured by the client, with the extra `capture`.
    """
    sent = media_type(request)
    if sent != "application/octet-stream" and not is_json(sent):
        raise WrongMediaTypeError(
            f"The body is said to be {shown(sent) if sent else 'of no type'}. The rule: the file itself. To "
            "fix: send Content-Type: application/octet-stream (curl --data-binary @FILE)."
        )
    most = min(MOST_BYTES.get(kind, 0), service.settings.max_upload_bytes)
    content = await body_of(request, most_bytes=most) if most else b""
    record, is_new = await service.uploads.add(content, kind=kind, label=label)
    where = {"Location": f"/v1/models/{record.name.removeprefix(UPLOADS)}"}
    return json_response(_said(record), status=201 if is_new else 200, headers=where)


@router.get(
    "",
    summary="Uploaded models",
    responses={200: answer(dict[str, list[UploadedModel]], "All of them."), **PROBLEMS},
)
async def models(service: ServiceDependency) -> Response:
    """Every model that was uploaded."""
    return json_response({"items": [_said(record) for record in await service.uploads.records()]})


@router.get(
    "/{model_id}",
    summary="One uploaded model",
    responses={200: answer(UploadedModel, "The model."), **PROBLEMS},
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
