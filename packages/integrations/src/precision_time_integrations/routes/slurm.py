"""Time limits for Slurm: what `job_submit.lua` asks."""

# No annotation is text here: what is evaluated when the class is made need not be parsed again.
import math
from collections.abc import Mapping
from typing import Annotated

from anyio import to_thread
from fastapi import APIRouter
from msgspec import Meta
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import ConfigError, shown
from precision_time.fields import Option
from precision_time.request.validation import Fields
from precision_time_server.routing import (
    PROBLEMS,
    ServiceDependency,
    answer,
    arguments_part,
    body,
    checked,
    job_part,
    json_object,
    json_response,
)

from ..commands.shell import MOST_CHARACTERS
from ..slurm.limits import MARGIN, MOST_MARGIN, QUANTILE
from ..slurm.service import ServedLimit, served_limit

router = APIRouter(prefix="/v1/slurm", tags=["slurm"])
_Word = Annotated[str, Meta(max_length=1000)]
_SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --gres=gpu:a100:8
srun torchrun --nnodes=2 --nproc-per-node=8 train.py --model resnet50 --batch-size 128 --epochs 90
"""
_STATED = """#!/bin/bash
#PRECISION_TIME model=bert-base batch_size=32 seq_len=128 steps=20000
srun python run.py
"""


class TimeLimitCall(Fields):
    """What is sent."""

    script: Annotated[
        str,
        Meta(max_length=MOST_CHARACTERS),
        Option(help="Text of the job script; nothing of it is run."),
    ]
    options: Annotated[
        dict[_Word, _Word],
        Meta(max_length=100),
        Option(
            help="What the job asks of Slurm, by the long names of sbatch: nodes, ntasks, "
            "ntasks-per-node, gres, gpus, partition, constraint ...; they win over the #SBATCH lines."
        ),
    ] = {}
    arguments: Annotated[
        list[_Word], Meta(max_length=1000), Option(help="Arguments of the script: $1 and so on.")
    ] = []
    quantile: Annotated[
        float,
        Meta(gt=0.0, lt=1.0),
        Option(help="Probability that the run ends within the limit."),
    ] = QUANTILE
    margin: Annotated[
        float,
        Meta(ge=0.0, le=MOST_MARGIN),
        Option(help="Share added for what the script does beside its training."),
    ] = MARGIN
    longest_s: Annotated[
        float | None,
        Meta(gt=0.0, le=1e12),
        Option(help="MaxTime of the partition [s]; null for none."),
    ] = None


_SCHEMA = {
    "type": "object",
    "additionalProperties": False,
    "required": ["script"],
    "properties": {
        **arguments_part(TimeLimitCall),
        "job": {
            "type": "object",
            "properties": job_part(),
            "additionalProperties": False,
            "description": "Fields of the job in the place of those of the script.",
        },
    },
}


@router.post(
    "/time-limits",
    summary="Time limit of a Slurm job",
    responses={200: answer(ServedLimit, "The limit, or why there is none."), **PROBLEMS},
    openapi_extra=body(
        _SCHEMA,
        script={"script": _SCRIPT},
        options={
            "script": _STATED,
            "options": {"partition": "gpu", "gres": "gpu:v100:4", "nodes": "1", "ntasks": "4"},
            "quantile": 0.9,
            "longest_s": 86400,
        },
    ),
)
async def time_limit(request: HttpRequest, service: ServiceDependency) -> Response:
    """Reads the text of a script: its launcher, the arguments of the training, `#PRECISION_TIME` lines.

    `seconds` is null where nothing can be predicted, and `why` then says what to add to the script. Nothing
    is executed, and no file that the script names is read.
    """
    del service
    fields = await json_object(request)
    job = fields.pop("job", None)
    call = TimeLimitCall.of(fields)
    if job is not None and not isinstance(job, Mapping):
        raise ConfigError(f'job={shown(job)} is no object. To fix: such as {{"device": "A100-SXM4-80GB"}}.')
    stated = checked(job or {})

    def found() -> ServedLimit:
        return served_limit(
            call.script,
            options=call.options,
            arguments=call.arguments,
            job=stated,
            quantile=call.quantile,
            margin=call.margin,
            longest_s=None if call.longest_s is None or math.isinf(call.longest_s) else call.longest_s,
        )

    return json_response(await to_thread.run_sync(found))
