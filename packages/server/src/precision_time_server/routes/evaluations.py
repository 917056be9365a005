"""How well measured runs are predicted."""

from __future__ import annotations

from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Query
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from ..bodies import body_of, json_response
from ..clusters import document_of
from ..measured_rows import evaluate_table
from ..problems import WrongMediaTypeError
from ..service import ServiceDependency
from .clusters import answers
from .measurements import CSV, csv_text, is_csv

router = APIRouter(prefix="/v1/evaluations", tags=["evaluations"])
_EXAMPLE = (
    "model,device,gpus,batch_size,precision,step_time_s\nresnet50,A100-SXM4-80GB,8,256,bf16-mixed,0.31\n"
)


@router.post(
    "",
    summary="Score the predictor on measured runs",
    responses=answers("As `precision-time evaluate --json`.", {"type": "object"}, {"n": 1}),
    openapi_extra={
        "requestBody": {
            "required": True,
            "content": {CSV: {"schema": {"type": "string"}, "example": _EXAMPLE}},
        }
    },
)
async def evaluate(
    request: HttpRequest,
    service: ServiceDependency,
    group_by: Annotated[list[str] | None, Query(description="Columns to score by, too.")] = None,
    device: Annotated[str | None, Query(description="What the rows ran on, in words of the catalog.")] = None,
    cluster: Annotated[str | None, Query(description="Whose own hardware the rows name.")] = None,
) -> Response:
    """Nothing is fitted on the table, nothing of it is kept; rows that cannot be predicted are counted."""
    if not is_csv(request):
        raise WrongMediaTypeError("This route reads a CSV. To fix: send Content-Type: text/csv.")
    hardware: Any = None
    if cluster is not None:
        hardware = (await to_thread.run_sync(document_of, cluster, service.store)).hardware
    text = csv_text(await body_of(request, most_bytes=service.settings.max_upload_bytes))
    found = await service.long_work.run(evaluate_table, text, device, tuple(group_by or ()), hardware)
    return json_response(found)
