"""Layouts: the fastest ways to spread a model over the devices."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import ConfigError
from precision_time.planning.layouts.api import SEARCHED_FIELDS
from precision_time.planning.layouts.result import LayoutSearch
from precision_time.predict.prediction import Prediction

from ..arguments import LayoutArguments, parted
from ..bodies import json_object, json_response
from ..jobs import REFUSED, checked, request_of
from ..long_functions import layouts_of_call
from ..openapi import arguments_part, body, dictionary, job_part, part
from ..problems import PROBLEMS
from ..service import ServiceDependency

router = APIRouter(prefix="/v1/layouts", tags=["layouts"])
MOST_LAYOUTS = 200_000
"""Valid layouts of one search: about 4,500 of them are searched in a second."""
_FIELDS = (frozenset(SEARCHED_FIELDS) - REFUSED.keys()) | {"cluster"}
_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {**job_part(_FIELDS), **arguments_part(LayoutArguments)},
    "required": ["model"],
    "description": "Fields of a job but those of one layout or of a run.",
}

_RANKED = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The layout in a few words."},
            "layout": {"type": "object"},
            "prediction": part(Prediction),
        },
        "required": ["name", "layout", "prediction"],
    },
}
_ANSWER = dictionary(
    LayoutSearch, "Ranked layouts.", without=["jobs", "request"], instead={"ranked": _RANKED}
)


@router.post(
    "",
    summary="Search layouts",
    responses={200: _ANSWER, **PROBLEMS},
    openapi_extra=body(
        _SCHEMA,
        llama={
            "model": "llama3-8b", "device": "H100-SXM5-80GB", "gpus": 16, "global_batch_size": 64,
            "fix": ["zero_stage=1", "schedule=1f1b"], "top": 3,
        },
    ),
)  # fmt: skip
async def search(request: HttpRequest, service: ServiceDependency) -> Response:
    """Every layout that fits in memory competes; the fastest are answered with their predictions.

    At most 200,000 valid layouts are searched: `fix` some fields where there are more.
    """
    own, rest = parted(await json_object(request), LayoutArguments)
    arguments = LayoutArguments.of(own)
    stated = checked({name: value for name, value in rest.items() if value is not None})
    surplus = sorted(stated.keys() - _FIELDS)
    if surplus:
        raise ConfigError(
            f"{surplus[0]} is not taken by a search for layouts. The rule: it is of one layout, of a run, or "
            'unknown. To fix: leave it out, or fix the layout\'s fields, as in "fix": ["tp=8"].'
        )
    asked = await request_of(stated, service)
    found = await service.long_work.run(layouts_of_call, asked, arguments.fixed, arguments.top, MOST_LAYOUTS)
    return await to_thread.run_sync(json_response, found)
