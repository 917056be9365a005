"""Plans: which devices, how many, at which precision, where, under limits of time, money and carbon."""

from __future__ import annotations

from anyio import to_thread
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import ConfigError
from precision_time.planning.decision.api import PLANNED_FIELDS, RUN_FIELDS
from precision_time.planning.decision.candidate import Candidate
from precision_time.planning.decision.result import Plan
from precision_time.planning.run.schema import RunOptions
from precision_time.request.sweep import axes_of

from ..arguments import PlanArguments, parted
from ..bodies import json_object, json_response
from ..defaults import joined
from ..jobs import REFUSED, checked, with_graphs
from ..long_functions import plan_of_call
from ..openapi import arguments_part, body, dictionary, job_part, with_nulls
from ..problems import PROBLEMS
from ..service import ServiceDependency

router = APIRouter(prefix="/v1/plans", tags=["plans"])
_FIELDS = frozenset(PLANNED_FIELDS) - REFUSED.keys()
_CLUSTER = "cluster"
_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        **job_part(_FIELDS | {_CLUSTER}),
        **arguments_part(PlanArguments),
        **{name: schema for name, schema in arguments_part(RunOptions).items() if name in RUN_FIELDS},
    },
    "required": ["model"],
    "description": "Fields of a job but those of its devices, each with one value or several that compete.",
}

_ANSWER = dictionary(Plan, "The choices, and what stands behind them.", without=["judged"])
with_nulls(Candidate.__name__)


@router.post(
    "",
    summary="Plan a run",
    responses={200: _ANSWER, **PROBLEMS},
    openapi_extra=body(
        _SCHEMA,
        resnet50={
            "model": "resnet50", "epochs": 90, "deadline": "24h", "budget": 500,
            "devices": ["A100-SXM4-80GB", "V100-SXM2-16GB"], "clouds": ["aws", "gcp"], "max_gpus": 16,
        },
        own_prices={
            "model": "resnet50", "epochs": 90, "deadline": "24h", "max_gpus": 8,
            "devices": ["A100-SXM4-80GB"],
            "prices": [
                {"cloud": "ours", "device": "A100-SXM4-80GB", "devices_per_instance": 8, "usd_per_hour": 12.5}
            ],
        },
    ),
)  # fmt: skip
async def plan(request: HttpRequest, service: ServiceDependency) -> Response:
    """The cheapest, fastest and greenest choices under the limits, with reasons, Pareto front and what-ifs.

    Of a stored cluster, defaults that say nothing of devices are used, and devices of its hardware compete
    where `devices` names them.
    Where nothing keeps the limits, the nearest miss. Every combination of what competes is timed, as many as
    one call may hold jobs; with more the answer is a problem that says how many there are.
    """
    own, rest = parted(await json_object(request), PlanArguments)
    of_run = {name: rest.pop(name) for name in RUN_FIELDS if rest.get(name) is not None}
    stated = checked({name: value for name, value in rest.items() if value is not None})
    if "model" not in stated:
        raise ConfigError("model is missing. To fix: give model.")
    options = PlanArguments.of(own).given()
    cluster = stated.pop(_CLUSTER, None)
    axes_of(stated)  # refuses endless ranges before any work
    if cluster is not None:  # its devices are what a plan chooses; its hardware competes by name
        beneath = await service.cluster_fields(cluster)
        known = {name: value for name, value in beneath.items() if name in PLANNED_FIELDS}
        stated = joined(known, stated)
    stated = await with_graphs(stated, service, {})
    model = stated.pop("model")
    found = await service.long_work.run(
        plan_of_call, model, {**stated, **of_run, **options}, service.settings.max_jobs
    )
    return await to_thread.run_sync(json_response, found)
