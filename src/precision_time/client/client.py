"""`Client` and `AsyncClient`: ask a service (`precision-time serve`) from Python."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from threading import Thread
from time import monotonic, sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ..errors import required_module
from .conversation import MOST_BYTES, TOKEN_VARIABLE, Conversation, Exchange, Lost, Reply, Talk, Wait
from .operations import Operations

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")
TIMEOUT_S = 70.0
"""Of a call: more than the 60 s that a service gives one by default, so that its own words arrive."""
_CONNECT_S = 10.0
_GRACE_S = 1.0
"""After the end of a call its connection is given up by itself, so that our words come first."""


def _http() -> Any:
    return required_module("httpx2", package="httpx2", extra="client", purpose="ask a service")


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


class _Shared(Operations):
    """What both clients are made of.

    Args:
        url: Of the service, such as http://localhost:8400.
        token: Bearer token; None for that of PRECISION_TIME_TOKEN, "" for none.
        timeout_s: Longest call, from the connection to the last byte, all attempts and pauses together.
        retries: How often a call that may be repeated is, after a lost connection, 429 or 503.
        transport: Of httpx2, for tests; None for the network.
        say: Is told, once, what a user should know; None for a Python warning.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeout_s: float = TIMEOUT_S,
        retries: int = 3,
        transport: Any = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        given = os.environ.get(TOKEN_VARIABLE, "").strip() if token is None else token
        self.talk = Conversation(
            url, token=given or None, timeout_s=timeout_s, retries=retries, say=say or _warn
        )
        self._timeout_s = timeout_s
        self._most_bytes = MOST_BYTES
        self._options: dict[str, Any] = {
            "headers": self.talk.headers(),
            "follow_redirects": False,
            "transport": transport,
        }
        self._open()

    def _open(self) -> None:
        """Make what holds the connections."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.talk.url}>"

    def _request(self, exchange: Exchange) -> dict[str, Any]:
        return {
            "method": exchange.method,
            "url": self.talk.url + exchange.path,
            "params": dict(exchange.params),
            "headers": dict(exchange.headers),
            "content": exchange.content,
            "timeout": _http().Timeout(
                _left_s(exchange) + _GRACE_S, connect=min(_CONNECT_S, _left_s(exchange) + _GRACE_S)
            ),
        }

    def _too_much(self, size: int, end_s: float) -> Lost | None:
        """Why no more of an answer is read."""
        if size > self._most_bytes:
            return Lost(reason=f"the answer is longer than {self._most_bytes:,} bytes", unsent=False)
        if monotonic() > end_s:
            return self._late()
        return None

    def _late(self) -> Lost:
        return Lost(reason=f"not all of it came within {self._timeout_s:g} s", unsent=False)


def _left_s(exchange: Exchange) -> float:
    return max(exchange.end_s - monotonic(), 0.0)


def _reply(response: httpx2.Response, parts: list[bytes]) -> Reply:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(status=response.status_code, headers=headers, body=b"".join(parts))


def _lost(error: Exception) -> Lost:
    http = _http()
    reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Lost(
        reason=reason, unsent=isinstance(error, http.ConnectError | http.ConnectTimeout | http.PoolTimeout)
    )


class Client(_Shared):
    """Asks a service and waits for its answers; use it in a `with` block, or close it.

    Threads may share one.

    Args:
        url: Of the service, such as http://localhost:8400.
        token: Bearer token; None for that of PRECISION_TIME_TOKEN, "" for none.
        timeout_s: Longest call, from the connection to the last byte, all attempts and pauses together.
        retries: How often a call that may be repeated is, after a lost connection, 429 or 503.
        transport: Of httpx2, for tests; None for the network.
        say: Is told, once, what a user should know; None for a Python warning.
    """

    def _open(self) -> None:
        self._http: httpx2.Client = _http().Client(**self._options)

    def run(self, talk: Talk[T]) -> T:
        """Do what a conversation asks for, until it returns."""
        came: Reply | Lost | None = None
        try:
            while True:
                step = talk.send(came)
                came = self._do(step)
        except StopIteration as done:
            found: T = done.value
            return found

    def _do(self, step: Exchange | Wait) -> Reply | Lost | None:
        if isinstance(step, Exchange):
            return self._send(step)
        sleep(step.seconds)
        return None

    def _send(self, exchange: Exchange) -> Reply | Lost:
        """What comes in time, in a thread of its own: every byte of a header starts the wait for one anew."""
        found: Future[Reply | Lost] = Future()

        def work() -> None:
            try:
                found.set_result(self._received(exchange))
            except BaseException as error:  # noqa: BLE001 - for the thread that asks
                found.set_exception(error)

        Thread(target=work, name="precision-time client", daemon=True).start()
        try:
            return found.result(timeout=_left_s(exchange))
        except TimeoutError:
            if found.done():
                raise
            return self._late()

    def _received(self, exchange: Exchange) -> Reply | Lost:
        parts, size = list[bytes](), 0
        try:
            with self._http.stream(**self._request(exchange)) as response:
                for part in response.iter_raw():
                    parts.append(part)
                    size += len(part)
                    if (lost := self._too_much(size, exchange.end_s)) is not None:
                        return lost
                return _reply(response, parts)
        except (_http().RequestError, _http().InvalidURL) as error:
            return _lost(error)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncClient(_Shared):
    """`Client` for `async` code: its methods are awaited, and many calls may be under way.

    Args:
        url: Of the service, such as http://localhost:8400.
        token: Bearer token; None for that of PRECISION_TIME_TOKEN, "" for none.
        timeout_s: Longest call, from the connection to the last byte, all attempts and pauses together.
        retries: How often a call that may be repeated is, after a lost connection, 429 or 503.
        transport: Of httpx2, for tests; None for the network.
        say: Is told, once, what a user should know; None for a Python warning.
    """

    def _open(self) -> None:
        self._http: httpx2.AsyncClient = _http().AsyncClient(**self._options)

    async def run(self, talk: Talk[T]) -> T:
        """Do what a conversation asks for, until it returns."""
        came: Reply | Lost | None = None
        try:
            while True:
                step = talk.send(came)
                came = await self._do(step)
        except StopIteration as done:
            found: T = done.value
            return found

    def _do(self, step: Exchange | Wait) -> Coroutine[Any, Any, Reply | Lost | None]:
        return self._send(step) if isinstance(step, Exchange) else asyncio.sleep(step.seconds)

    async def _send(self, exchange: Exchange) -> Reply | Lost:
        parts, size = list[bytes](), 0
        try:
            async with (
                asyncio.timeout(_left_s(exchange)),
                self._http.stream(**self._request(exchange)) as response,
            ):
                async for part in response.aiter_raw():
                    parts.append(part)
                    size += len(part)
                    if (lost := self._too_much(size, exchange.end_s)) is not None:
                        return lost
                return _reply(response, parts)
        except TimeoutError:
            return self._late()
        except (_http().RequestError, _http().InvalidURL) as error:
            return _lost(error)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
