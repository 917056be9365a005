"""What the jobs of a cluster really took: stored, and what can be learned from it said."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Annotated, Any

from anyio import to_thread
from fastapi import APIRouter, Header, Query
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import ConfigError, PrecisionTimeError, shown

from ..bodies import body_of, json_object, json_response, media_type
from ..clusters import document_of, keep, learned, setting_of
from ..learning import Activate
from ..measured_rows import BrokenRow, MeasuredRow, check_rows, table_rows
from ..openapi import body
from ..problems import BadRequestError, TimeLimitError, TooLargeError, problem_of
from ..service import Service, ServiceDependency
from .clusters import answers

router = APIRouter(prefix="/v1/clusters/{name}/measurements", tags=["clusters"])
CSV = "text/csv"
EXAMPLE_ROW = {
    "model": "resnet50",
    "gpus": 8,
    "batch_size": 256,
    "precision": "bf16-mixed",
    "step_time_s": 0.31,
}
_ROWS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "measurements": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "object"},
            "description": "Jobs, each with step_time_s or samples_per_s; defaults of the cluster need not "
            "be said. Columns of docs/reference/corpus.md are understood too.",
        }
    },
    "required": ["measurements"],
    "additionalProperties": False,
}
_LONGEST_KEY = 200
_NAMED = 20
"""Broken rows that the text of the error names; all are in its member `broken`."""
_EXAMPLE_ANSWER = {
    "stored": 1,
    "ids": [1],
    "broken": [],
    "priced": 1,
    "unpriced": {},
    "learned": {"rows": 1, "configurations": 1, "before": None, "after": None, "better": False},
    "calibration": {"id": None, "active": False, "why": "Not asked to be kept."},
}


class BrokenRowsError(ConfigError):
    """Rows that are no measured steps."""

    def __init__(self, broken: tuple[BrokenRow, ...], count: int) -> None:
        self.members = {"broken": [{"index": row.index, "detail": row.detail} for row in broken]}
        listed = "; ".join(f"row {row.index}: {row.detail.rstrip('.')}" for row in broken[:_NAMED])
        more = f"; and {len(broken) - _NAMED} more" if len(broken) > _NAMED else ""
        super().__init__(
            f"{len(broken)} of {count} rows are broken, and none was stored: {listed}{more}. To fix: correct "
            "them, or send partial=true to store the others."
        )


@router.get(
    "",
    summary="List the measurements of a cluster",
    responses=answers(
        "A page of them, oldest first.",
        {"type": "object"},
        {"count": 1, "measurements": [{"id": 1, "given": EXAMPLE_ROW, "defaults": {}}], "next": None},
    ),
)
async def list_measurements(
    name: str,
    service: ServiceDependency,
    after: Annotated[int, Query(ge=0, le=2**62, description="Number of the last one seen.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """As they were sent (`given`), with the defaults that the cluster had then; `next` is for `after`."""
    store = service.store

    def read() -> dict[str, Any]:
        document_of(name, store)
        rows = store.measurements(name, after=after, limit=limit)
        return {
            "count": store.count_measurements(name),
            "measurements": [{"id": number, **row} for number, row in rows],
            "next": rows[-1][0] if len(rows) == limit else None,
        }

    return json_response(await to_thread.run_sync(read))


_BODY = body(_ROWS, steps={"measurements": [EXAMPLE_ROW]})
_BODY["requestBody"]["content"][CSV] = {
    "schema": {"type": "string"},
    "example": "model,gpus,batch_size,precision,step_time_s\nresnet50,8,256,bf16-mixed,0.31\n",
}


@router.post(
    "",
    summary="Add measured steps to a cluster",
    status_code=201,
    responses=answers("What was stored and learned.", {"type": "object"}, _EXAMPLE_ANSWER, status=201),
    openapi_extra=_BODY,
)
async def add_measurements(
    name: str,
    request: HttpRequest,
    service: ServiceDependency,
    partial: Annotated[bool, Query(description="Store the rows that are not broken.")] = False,
    activate: Annotated[
        Activate,
        Query(
            description="Whether a calibration on all measurements of the cluster moves its answers from now "
            "on: if-better asks for held-out errors that are smaller by more than chance."
        ),
    ] = "never",
    idempotency_key: Annotated[
        str | None, Header(description="Rows sent twice with one key are stored once.")
    ] = None,
) -> Response:
    """Stored durably before the answer, which says what a calibration with them is worth.

    `learned.before` and `learned.after` are errors of the predictor without and with a calibration that has
    not seen what is predicted. Nothing changes the answers of the cluster unless `activate` asks for it.
    """
    started_s = time.monotonic()
    _check_key(idempotency_key)
    document = await to_thread.run_sync(document_of, name, service.store)
    rows = [MeasuredRow(given=row, defaults=document.fields) for row in await _given_rows(request, service)]
    setting = await setting_of(rows, document, service)
    found = await service.long_work.run(check_rows, rows, setting)
    broken = {row.index for row in found.broken}
    good = [row.to_dict() for index, row in enumerate(rows) if index not in broken]
    if broken and not (partial and good):
        raise BrokenRowsError(found.broken, len(rows))
    ids = await to_thread.run_sync(lambda: service.store.add_measurements(name, good, key=idempotency_key))
    said: dict[str, Any] = {
        "stored": len(ids),
        "ids": ids,
        "broken": [{"index": row.index, "detail": row.detail} for row in found.broken],
        "priced": found.priced,
        "unpriced": dict(found.unpriced),
        "learned": None,
        "calibration": {"id": None, "active": False, "why": "Not asked to be kept."},
    }
    try:
        async with asyncio.timeout(_left_s(service, started_s)):
            result = await learned(name, service)
        said["learned"] = result.to_dict()
        if activate != "never":
            kept = await to_thread.run_sync(keep, name, result, activate, service.store)
            said["calibration"] = kept.to_dict()
    except (PrecisionTimeError, TimeoutError) as error:
        # The rows are stored: an error alone would say that they are not.
        said["calibration"]["why"] = "Nothing was learned; `problem` says why."
        said["problem"] = problem_of(error if isinstance(error, PrecisionTimeError) else _too_long(name))
    return json_response(said, status=201)


def _left_s(service: Service, started_s: float) -> float:
    """Seconds for learning before the call as a whole takes too long."""
    return service.settings.time_limit_s - (time.monotonic() - started_s)


def _too_long(name: str) -> TimeLimitError:
    return TimeLimitError(
        "The rows are stored; the time of the call was up before a calibration with them was made. To fix: "
        f"POST /v1/clusters/{name}/calibrations, or let the operator raise the limit (--time-limit)."
    )


def _check_key(key: str | None) -> None:
    if key is not None and not (0 < len(key) <= _LONGEST_KEY and key.isprintable()):
        raise BadRequestError(
            f"Idempotency-Key={shown(key)}. The rule: 1 to {_LONGEST_KEY} printable characters. To fix: send "
            "a UUID."
        )


async def _given_rows(request: HttpRequest, service: Service) -> list[Mapping[str, Any]]:
    """The rows of a call, as they were sent.

    Raises:
        ConfigError: If there are none.
        TooLargeError: If there are too many.
    """
    most = service.settings.max_jobs
    rows: Any
    if is_csv(request):
        text = csv_text(await body_of(request, most_bytes=service.settings.max_body_bytes))
        table = await to_thread.run_sync(lambda: table_rows(text, most=most))
        rows = [{column: cell for column, cell in row.cells.items() if column and cell} for row in table]
    else:
        given = await json_object(request)
        rows = given.get("measurements")
        if given.keys() != {"measurements"} or not isinstance(rows, list):
            raise ConfigError(
                f"The body has {shown(sorted(given))}. The rule: measurements, a list of jobs with "
                'step_time_s, and nothing else. To fix: send {"measurements": [{"model": "resnet50", '
                '"step_time_s": 0.3}]}.'
            )
    if not rows:
        raise ConfigError("There are no rows. To fix: send at least one measured step.")
    if len(rows) > most:
        raise TooLargeError(
            f"{len(rows)} measurements in one call. The rule: at most {most}. To fix: send several calls."
        )
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise ConfigError(
                f"Row {index} is {shown(row)}. The rule: an object of fields. To fix: send one."
            )
    return list(rows)


def is_csv(request: HttpRequest) -> bool:
    """Whether a call says that it sends a table."""
    return media_type(request) == CSV


def csv_text(content: bytes) -> str:
    """The text of a table that is sent.

    Raises:
        BadRequestError: If it is not UTF-8.
    """
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequestError(
            f"The table is not UTF-8 (byte {error.start}). To fix: save it as CSV in UTF-8."
        ) from None
