"""What a client says to a service and how it reads the answers, without doing the sending."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Generator, Mapping
from dataclasses import field
from http import HTTPStatus
from time import monotonic
from typing import Any, TypeVar
from urllib.parse import urlsplit

from .. import __version__, errors
from ..errors import ConfigError, PrecisionTimeError, ServerError, printable, shown
from ..records import dataclass

T = TypeVar("T")

TYPE_PREFIX = "urn:precision-time:"
"""Before the name of an exception class, in the `type` of a problem."""
VERSION_HEADER = "precision-time-version"
TOKEN_VARIABLE = "PRECISION_TIME_TOKEN"
MOST_BYTES = 64 * 2**20
"""Of one answer."""
_AGAIN = (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE)
LONGEST_TIMEOUT_S = 86_400.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 30.0
_JSON = "application/json"
_TOKEN = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """One call of HTTP."""

    method: str
    path: str
    """From the root of the service."""
    end_s: float
    """When, by `time.monotonic`, no more of an answer is waited for."""
    params: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    content: bytes | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Wait:
    """A pause before the same is asked again."""

    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """What came back of a call."""

    status: int
    headers: Mapping[str, str]
    """Names in small letters."""
    body: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """Nothing, or not all of it, came back."""

    reason: str
    unsent: bool
    """The service cannot have seen the call: no connection was made."""


Talk = Generator[Exchange | Wait, Reply | Lost | None, T]
"""A conversation: yields what is to be done, is sent what came of it, returns what was found out."""


class Conversation:
    """What both clients know of the service, and how they ask it.

    Args:
        url: Of the service, such as http://localhost:8400.
        token: Bearer token; None for none.
        timeout_s: Longest call, all its attempts and the pauses between them together.
        retries: How often a call that may be repeated is, after a lost connection, 429 or 503.
        say: Is told, once, what a user should know.
    """

    def __init__(
        self, url: str, *, token: str | None, timeout_s: float, retries: int, say: Callable[[str], None]
    ) -> None:
        self.url = checked_url(url)
        if not 0.0 < timeout_s <= LONGEST_TIMEOUT_S:
            raise ConfigError(
                f"A service cannot be given {timeout_s:g} s to answer. The rule: above 0 and at most "
                f"{LONGEST_TIMEOUT_S:g} s. To fix: such as 70 (--server-timeout, or timeout_s=)."
            )
        if token is not None and not _TOKEN.fullmatch(token):
            raise ConfigError(
                f"The token is not made of visible ASCII characters without blanks. To fix: the token alone, "
                f"without `Bearer`, in {TOKEN_VARIABLE}."
            )
        self._token = token
        self._timeout_s, self._retries = timeout_s, retries
        self._say = say
        self._said_version = False

    def headers(self) -> dict[str, str]:
        """What every call carries."""
        own = {
            "Accept": f"{_JSON}, application/problem+json, text/plain",
            "Accept-Encoding": "identity",  # nothing is decompressed: what comes is what is counted
            "User-Agent": f"precision-time/{__version__}",
        }
        return own if self._token is None else {**own, "Authorization": f"Bearer {self._token}"}

    def json(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        media_type: str = _JSON,
        repeatable: bool = True,
    ) -> Talk[dict[str, Any]]:
        """Ask, and read a JSON object; an empty one of an answer without a body.

        Args:
            method: Of HTTP.
            path: From the root of the service.
            body: Sent as JSON; None for none.
            params: After the path; those that are None are left out.
            headers: Of this call alone.
            content: Sent in the place of `body`.
            media_type: Of `content`.
            repeatable: Whether the service may see the call twice.

        Raises:
            ServerError: No answer, or none of ours.
            PrecisionTimeError: The class and text of the same mistake in Python.
        """
        reply = yield from self._ask(
            method, path, body, params, headers or {}, content, media_type, repeatable=repeatable
        )
        if reply.status == HTTPStatus.NO_CONTENT:
            return {}
        found = _parsed(reply)
        if not isinstance(found, dict):
            raise self._not_ours(reply)
        return found

    def text(self, path: str) -> Talk[str]:
        """Ask, and read a text."""
        reply = yield from self._ask("GET", path, None, None, {}, None, _JSON, repeatable=True)
        return reply.body.decode("utf-8", errors="replace")

    def _ask(
        self,
        method: str,
        path: str,
        body: Any,
        params: Mapping[str, Any] | None,
        headers: Mapping[str, str],
        content: bytes | None,
        media_type: str,
        *,
        repeatable: bool,
    ) -> Talk[Reply]:
        sent = _json_bytes(body) if body is not None else content
        exchange = Exchange(
            method=method,
            path=path,
            end_s=monotonic() + self._timeout_s,
            params={name: value for name, value in (params or {}).items() if value is not None},
            headers={**headers, **({} if sent is None else {"Content-Type": media_type})},
            content=sent,
        )
        for attempt in range(self._retries + 1):
            reply = yield exchange
            assert isinstance(reply, Reply | Lost)
            wait_s = min(_FIRST_WAIT_S * 2**attempt * random.uniform(1.0, 1.5), _LONGEST_WAIT_S)  # noqa: S311
            # What took all of its time is not asked again.
            last = attempt == self._retries or monotonic() + wait_s >= exchange.end_s
            if isinstance(reply, Lost):
                if last or not (repeatable or reply.unsent):
                    raise self._lost(reply)
            elif reply.status in _AGAIN and repeatable and not last:
                after = reply.headers.get("retry-after", "")
                stated_s = float(after) if after.isascii() and after.isdigit() and len(after) < 6 else 0.0  # noqa: PLR2004
                if stated_s > _LONGEST_WAIT_S or monotonic() + stated_s >= exchange.end_s:
                    raise self._problem(reply)
                wait_s = max(wait_s, stated_s)
            else:
                return self._checked(reply)
            yield Wait(seconds=wait_s)
        raise AssertionError("the last attempt returns or raises")

    def _checked(self, reply: Reply) -> Reply:
        """The reply, if it is an answer.

        Raises:
            PrecisionTimeError: What it says otherwise.
        """
        version = reply.headers.get(VERSION_HEADER)
        if version is not None and version != __version__ and not self._said_version:
            self._said_version = True
            self._say(
                f"The service at {self.url} is precision-time {printable(version, longest=40)}, this is "
                f"{__version__}: answers may differ from those given here. To fix: the same version on both "
                "sides."
            )
        if reply.status in (HTTPStatus.OK, HTTPStatus.CREATED, HTTPStatus.NO_CONTENT):
            return reply
        if 300 <= reply.status < 400:  # noqa: PLR2004
            where = shown(reply.headers.get("location", "elsewhere"))
            raise ServerError(
                f"{self.url} sends on to {where}. The rule: no redirect is followed, so that no token goes "
                "to another host. To fix: give the address of the service itself.",
                status=reply.status,
            )
        raise self._problem(reply)

    def _problem(self, reply: Reply) -> PrecisionTimeError:
        """The error that an answer says."""
        try:
            problem = _parsed(reply)
        except ServerError:
            problem = None
        said = problem.get("detail") if isinstance(problem, dict) else None
        if not isinstance(said, str) or not said:
            return self._not_ours(reply)
        return error_of(problem, status=reply.status)

    def _lost(self, lost: Lost) -> ServerError:
        plain = self.url.startswith("http:") and not lost.unsent
        secure = f" (https{self.url[4:]}, where it has a certificate)" if plain else ""
        return ServerError(
            f"No answer from {self.url}: {printable(lost.reason, longest=300)}. To fix: check the "
            f"address{secure}, start the service (precision-time serve), or ask without a server."
        )

    def _not_ours(self, reply: Reply) -> ServerError:
        told = shown(reply.body[:80].decode("utf-8", errors="replace"))
        return ServerError(
            f"{self.url} answers {reply.status} and {told}, which is no answer of precision-time. To fix: "
            "check address and version of the service.",
            status=reply.status,
        )

    def read(self, reader: Callable[[Any], T], given: Any) -> T:
        """An answer as one of our results.

        Raises:
            ServerError: If it is none.
        """
        try:
            return reader(given)
        except ServerError:
            raise
        except (
            PrecisionTimeError,
            ValueError,
            TypeError,
            AttributeError,
            LookupError,
            RecursionError,
        ) as error:
            raise ServerError(
                f"The answer of {self.url} cannot be read: {printable(str(error), longest=500)} To fix: the "
                "same version of precision-time on both sides."
            ) from None


def checked_url(url: str) -> str:
    """The address of a service, without a slash at its end.

    Raises:
        ConfigError: If it is none.
    """
    try:
        parts = urlsplit(url)
        port = parts.port  # raises where it is none
    except (ValueError, AttributeError, TypeError):
        parts, port = urlsplit(""), None
    right = parts.scheme in ("http", "https") and parts.hostname and port != 0 and url.isprintable()
    if not right or parts.query or parts.fragment or " " in url:
        raise ConfigError(
            f"{shown(url)} is no address of a service. The rule: http:// or https://, a host, and maybe a "
            "port and a path. To fix: such as http://localhost:8400."
        )
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "The address of the service holds a name or a password, which would be shown in messages. To "
            f"fix: leave it out, and give a token in {TOKEN_VARIABLE}."
        )
    return url.rstrip("/")


def error_of(problem: Mapping[str, Any], *, status: int) -> PrecisionTimeError:
    """The error that a problem (RFC 9457) stands for: the class that the same mistake raises in Python.

    Args:
        problem: With `type` and `detail`.
        status: Of the answer, or of this problem of many.
    """
    said, name = str(problem.get("detail")), str(problem.get("type")).removeprefix(TYPE_PREFIX)
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, PrecisionTimeError):
        return errors.restored(kind, said)
    if status == HTTPStatus.UNPROCESSABLE_ENTITY:
        return ConfigError(said)
    return ServerError(said, status=status)


def _json_bytes(body: Any) -> bytes:
    try:
        return json.dumps(body, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError, UnicodeEncodeError) as error:
        raise ConfigError(
            f"What is asked cannot be sent: {error}. The rule: a service takes names, numbers, texts, lists "
            "and "
            "objects, and uploaded models. To fix: upload a model (upload_model), or ask without a server."
        ) from None


def _parsed(reply: Reply) -> Any:
    """The value of a JSON text.

    Raises:
        ServerError: If it is none.
    """
    try:
        return json.loads(reply.body, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ServerError(
            f"The answer ({reply.status}) is no JSON: {printable(str(error), longest=200)}. To fix: check "
            "address and version of the service.",
            status=reply.status,
        ) from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"it holds {name}")
