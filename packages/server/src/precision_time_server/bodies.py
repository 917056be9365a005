"""Bodies of calls: read within bounds, as strict JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anyio import to_thread
from pydantic_core import to_json
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from precision_time.errors import shown

from .problems import BadRequestError, TooLargeError, WrongMediaTypeError

MAX_DEPTH = 32
"""Of objects and lists in one another."""
_SHORT_BYTES = 16 * 2**10
"""Read in less than a millisecond."""


async def body_of(request: HttpRequest, *, most_bytes: int) -> bytes:
    """The body of a call.

    Raises:
        TooLargeError: If it is longer; the rest is not read.
    """
    stated = request.headers.get("content-length", "")
    if stated.isdigit() and int(stated) > most_bytes:
        raise _too_large(most_bytes)
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            raise _too_large(most_bytes)
        parts.append(part)
    return b"".join(parts)


def _too_large(most_bytes: int) -> TooLargeError:
    return TooLargeError(
        f"The body is too long. The rule: at most {most_bytes:,} bytes. To fix: send less at once, or let "
        "the operator raise the limit."
    )


def media_type(request: HttpRequest) -> str:
    """Of the body, in lower case and without parameters; empty where the call says none.

    Nothing stands for a type that is not said: pages of any origin may send bodies without one.
    """
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def is_json(kind: str) -> bool:
    """Whether a media type is one of JSON."""
    return kind == "application/json" or kind.endswith("+json")


async def json_object(request: HttpRequest, *, most_bytes: int | None = None) -> dict[str, Any]:
    """The JSON object that a call sends.

    Args:
        request: The call.
        most_bytes: Of its body; None for the limit that the operator set.

    Raises:
        WrongMediaTypeError: If it does not say that it is JSON.
        BadRequestError: If it is no JSON object, or holds NaN, a key twice or too many levels.
        TooLargeError: If it is too long.
    """
    kind = media_type(request)
    if not is_json(kind):
        raise WrongMediaTypeError(
            f"The body is said to be {shown(kind) if kind else 'of no type'}. The rule: this route reads "
            "JSON. To fix: send Content-Type: application/json."
        )
    most = request.app.state.service.settings.max_body_bytes if most_bytes is None else most_bytes
    text = await body_of(request, most_bytes=most)
    # The event loop answers all others: what takes long to read is read beside it.
    found = parsed(text) if len(text) < _SHORT_BYTES else await to_thread.run_sync(parsed, text)
    if not isinstance(found, dict):
        raise BadRequestError(
            f"The body is {shown(found)}. The rule: a JSON object. To fix: send one, such as "
            '{"model": "resnet50"}.'
        )
    return found


def parsed(text: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        BadRequestError: If it is none, or one that no job needs.
    """
    try:
        found = json.loads(text, parse_constant=_no_constant, object_pairs_hook=_unique)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise BadRequestError(f"The body is not JSON: {error}. To fix: correct it.") from None
    _check(found)
    return found


def _no_constant(name: str) -> Any:
    raise BadRequestError(
        f"The body holds {name}. The rule: JSON has finite numbers only. To fix: leave it out."
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise BadRequestError(
            f"The body holds the key {shown(twice)} twice. The rule: once. To fix: leave one out."
        )
    return found


def _too_deep() -> BadRequestError:
    return BadRequestError(
        f"The body is nested too deeply. The rule: at most {MAX_DEPTH} levels. To fix: send a flatter one."
    )


def _check(value: Any) -> None:
    """Refuse what no field can be: too many levels, infinite numbers (1e999), halves of characters."""
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for each in level
            for item in (
                [*each, *each.values()]
                if isinstance(each, dict)
                else each
                if isinstance(each, list)
                else _sound(each)
            )
        ]
        if not level:
            return
    raise _too_deep()


def _sound(value: Any) -> tuple[()]:
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        raise BadRequestError(
            "The body holds a number that is too large for a float. To fix: send a smaller one."
        )
    if isinstance(value, str) and not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadRequestError(
                f"The body holds half of a character (a lone surrogate) in {shown(value)}. To fix: leave "
                "it out."
            ) from None
    return ()


def json_response(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON, dataclasses of ours among it; infinities and NaN are errors, never sent."""
    return json_bytes(json_text(value), status=status, headers=headers)


def json_text(value: Any) -> bytes:
    """The JSON of an answer."""
    text: bytes = to_json(value, inf_nan_mode="constants", fallback=str)
    if b"NaN" in text or b"Infinity" in text:
        json.loads(text, parse_constant=_never_sent)  # the words may stand in a text
    return text


def json_bytes(text: bytes, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer whose JSON is there already."""
    return Response(text, status_code=status, headers=dict(headers or {}), media_type="application/json")


def _never_sent(name: str) -> Any:
    raise ValueError(f"an answer holds {name}")
