"""Catalogs: what can be named in a job."""

from __future__ import annotations

from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter, Query
from starlette.responses import Response

from ..bodies import json_response
from ..catalogs import Catalog, listed
from ..problems import PROBLEMS

router = APIRouter(prefix="/v1/catalogs", tags=["catalogs"])
_EXAMPLE = {
    "items": [
        {
            "name": "sgd", "aliases": [], "states": 0,
        }
    ],
    "total": 1,
}  # fmt: skip
_ANSWER = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "items": {"type": "object"},
            "description": "Entries with all that is known of them; `name` is what a job says.",
        },
        "total": {"type": "integer", "minimum": 0, "description": "Entries that the search has."},
    },
    "required": ["items", "total"],
}


@router.get(
    "/{catalog}",
    summary="List what can be named",
    responses={
        200: {
            "description": "The entries.",
            "content": {"application/json": {"schema": _ANSWER, "example": _EXAMPLE}},
        },
        **PROBLEMS,
    },
)
async def catalog(
    catalog: Catalog,
    search: Annotated[
        str,
        Query(
            max_length=200,
            description="Words that an entry has in its names, however separated; of models and devices the "
            "nearest names where none has them.",
            examples=["llama3", "h100"],
        ),
    ] = "",
    limit: Annotated[int, Query(ge=1, le=10_000, description="The most entries.", examples=[20])] = 100,
) -> Response:
    """Models, devices, node types, precisions, stacks, datasets, optimizers, and list prices of instances."""
    return await to_thread.run_sync(lambda: json_response(listed(catalog, search, limit)))
