"""Errors as problem+json (RFC 9457), in the words of the command line."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import (
    BrokenPackageError,
    ConfigError,
    MissingExtraError,
    PrecisionTimeError,
    in_one_line,
    shown,
)

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:precision-time:"
"""Before the name of the exception class that the same mistake raises in Python."""
HUNG_UP = 499
"""What proxies log for a caller that has gone."""
_MOST_PARAMETERS = 5
"""That the text of an error names."""
_log = logging.getLogger("precision_time_server")


class ProblemError(PrecisionTimeError):
    """A call that cannot be answered, for a reason that only a service has."""

    status = HTTPStatus.BAD_REQUEST
    headers: Mapping[str, str] = {}


class BadRequestError(ProblemError):
    """The body is not what the route reads."""


class UnauthorizedError(ProblemError):
    """No token, or one that is not accepted."""

    status = HTTPStatus.UNAUTHORIZED
    headers = {"WWW-Authenticate": "Bearer"}


class ForeignOriginError(ProblemError):
    """A page of another origin may not ask this."""

    status = HTTPStatus.FORBIDDEN


class WrongHostError(ProblemError):
    """The call is for a name that is not this service's."""

    status = HTTPStatus.MISDIRECTED_REQUEST


class NotFoundError(ProblemError):
    """Something stored that is not there."""

    status = HTTPStatus.NOT_FOUND


class ConflictError(ProblemError):
    """What is asked contradicts what is stored."""

    status = HTTPStatus.CONFLICT


class TooLargeError(ProblemError):
    """The body, or what it asks for, is more than the service takes."""

    status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE


class WrongMediaTypeError(ProblemError):
    """A body of a kind that the route does not read."""

    status = HTTPStatus.UNSUPPORTED_MEDIA_TYPE


class BusyError(ProblemError):
    """The service answers as many calls as it may."""

    status = HTTPStatus.TOO_MANY_REQUESTS
    headers = {"Retry-After": "1"}


class UnavailableError(ProblemError):
    """Something that the service needs is away."""

    status = HTTPStatus.SERVICE_UNAVAILABLE
    headers = {"Retry-After": "5"}


class SlowCallerError(ProblemError):
    """The body comes too slowly."""

    status = HTTPStatus.REQUEST_TIMEOUT
    headers = {"Connection": "close"}


class TimeLimitError(ProblemError):
    """The answer takes longer than the service gives it."""

    status = HTTPStatus.GATEWAY_TIMEOUT


def status_of(error: Exception) -> HTTPStatus:
    """The HTTP status of an error: 422 for what the caller can correct."""
    if isinstance(error, ProblemError):
        return error.status
    if isinstance(error, MissingExtraError | BrokenPackageError):
        return HTTPStatus.NOT_IMPLEMENTED
    if isinstance(error, PrecisionTimeError):
        return HTTPStatus(getattr(error, "http_status", HTTPStatus.UNPROCESSABLE_ENTITY))
    return HTTPStatus.INTERNAL_SERVER_ERROR


def problem_of(error: Exception) -> dict[str, Any]:
    """The body of the answer to a call that failed."""
    status = status_of(error)
    return {
        "type": f"{TYPE_PREFIX}{type(error).__name__}",
        "title": status.phrase,
        "status": int(status),
        "detail": in_one_line(error),
        **getattr(error, "members", {}),
    }


def problem_response(error: Exception) -> Response:
    """`problem_of` as an answer."""
    body = problem_of(error)
    headers = dict(getattr(error, "headers", None) or {})
    return Response(json.dumps(body), status_code=body["status"], headers=headers, media_type=MEDIA_TYPE)


def install(app: FastAPI) -> None:
    """Let every error of a route end in a problem."""

    async def expected(_: HttpRequest, error: Exception) -> Response:
        return problem_response(error)

    async def of_http(_: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        status = HTTPStatus(error.status_code)
        body = {
            "type": "about:blank", "title": status.phrase, "status": int(status), "detail": str(error.detail),
        }  # fmt: skip
        return Response(
            json.dumps(body),
            status_code=int(status),
            headers=dict(error.headers or {}),
            media_type=MEDIA_TYPE,
        )

    async def hung_up(_: HttpRequest, __: Exception) -> Response:
        return Response(status_code=HUNG_UP)  # nobody receives it

    async def of_parameters(_: HttpRequest, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        said = "; ".join(
            f"{'.'.join(map(str, each['loc'][1:]))}={shown(each.get('input'))} is not what the route takes: "
            f"{each['msg']}"
            for each in error.errors()[:_MOST_PARAMETERS]
        )
        return problem_response(ConfigError(f"{said}. To fix: correct the parameters of the call."))

    async def unforeseen(_: HttpRequest, error: Exception) -> Response:
        _log.exception("unforeseen error", exc_info=error)
        return problem_response(error)

    app.add_exception_handler(PrecisionTimeError, expected)
    app.add_exception_handler(RequestValidationError, of_parameters)
    app.add_exception_handler(HTTPException, of_http)
    app.add_exception_handler(ClientDisconnect, hung_up)
    app.add_exception_handler(Exception, unforeseen)


_SCHEMA = {
    "type": "object",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What was given, the rule, and how to fix it."},
    },
    "required": ["type", "title", "status", "detail"],
}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "The caller can correct it.", "content": {MEDIA_TYPE: {"schema": _SCHEMA}}},
    "5XX": {"description": "The service cannot answer now.", "content": {MEDIA_TYPE: {"schema": _SCHEMA}}},
}
"""For `responses=` of a route."""
