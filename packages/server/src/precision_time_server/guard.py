"""What every call passes: token, number of calls at once, time limit, hang-ups, headers, figures."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import Response

from precision_time import __version__
from precision_time.barrier import data_only
from precision_time.client.conversation import VERSION_HEADER

from .hosts import check_place
from .metrics import CALL_SECONDS, CALLS, IN_PROGRESS
from .problems import (
    HUNG_UP,
    BadRequestError,
    BusyError,
    ProblemError,
    SlowCallerError,
    TimeLimitError,
    UnauthorizedError,
    problem_response,
)
from .settings import Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/", "/static", "/health")
"""Asked without a token: they tell nothing of what is stored."""
GRACE_S = 1.0
"""Long work keeps the time limit by itself, and says more; the one here is for everything else."""
PATIENCE_S = 10.0
"""For a body, beyond the time that the slowest connection takes for what has come of it."""
LEAST_BYTES_PER_S = 16 * 2**10
_ONCE = (b"authorization", b"content-type", b"host", b"origin")
"""Headers that decide: of two, one part of a road could check the first and another one take the last."""
_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (VERSION_HEADER.encode(), __version__.encode()),
)


class Guard:
    """ASGI middleware around the routes."""

    def __init__(self, app: App, *, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._tokens = [token.get_secret_value().encode() for token in settings.tokens]
        self._in_progress = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a call, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s, status = time.perf_counter(), 0

        async def sent(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        caller = _Caller(receive, place=lambda: self._take_place(scope["path"]))
        try:
            self._admit(scope)
            status = await self._within_limits(scope, caller, sent) or status
        except ProblemError as error:
            if not status:
                await _answer(problem_response(error), scope, receive, sent)
        finally:
            if caller.has_place:
                self._in_progress -= 1
                IN_PROGRESS.dec()
            route = getattr(scope.get("route"), "path", "none")
            CALLS.labels(route, scope["method"], str(status)).inc()
            CALL_SECONDS.labels(route).observe(time.perf_counter() - started_s)

    def _admit(self, scope: Scope) -> None:
        path = scope["path"]
        headers = dict(scope["headers"])
        for name in _ONCE:
            if sum(each == name for each, _ in scope["headers"]) > 1:
                raise BadRequestError(
                    f"The call has the header {name.decode()} twice. The rule: once. To fix: send one."
                )
        check_place(scope, headers, self._settings)
        is_open = path == "/" or any(path.startswith(start) for start in OPEN_PATHS[1:])
        if self._tokens and not is_open and scope["method"] != "OPTIONS":
            kind, _, token = headers.get(b"authorization", b"").partition(b" ")
            matches = [hmac.compare_digest(token.strip(), known) for known in self._tokens]
            if kind.lower() != b"bearer" or not any(matches):
                raise UnauthorizedError(
                    "No token that this service accepts. To fix: send Authorization: Bearer TOKEN "
                    "(PRECISION_TIME_TOKEN for the command line)."
                )

    def _take_place(self, path: str) -> None:
        """Count a call whose body is there as a whole: those that send slowly keep nobody out.

        Raises:
            BusyError: If as many are in progress as may be.
        """
        if self._in_progress >= self._settings.max_waiting and not path.startswith("/health"):
            raise BusyError(
                f"{self._settings.max_waiting} calls are in progress. The rule: no more at once. To fix: "
                "come again in a second, or let the operator start more workers (--workers)."
            )
        self._in_progress += 1
        IN_PROGRESS.inc()

    async def _within_limits(self, scope: Scope, caller: _Caller, send: Send) -> int | None:
        """Run the call; ends it when its time is up or the caller has gone. Returns a status of our own."""
        limit_s = self._settings.time_limit_s
        try:
            async with asyncio.timeout(limit_s + GRACE_S):
                await caller.begin()
                with data_only():  # the call's task inherits it, and the threads that it asks
                    caller.call = asyncio.ensure_future(self._app(scope, caller.receive, send))
                await caller.call
        except TimeoutError:
            raise TimeLimitError(
                f"No answer within {limit_s:g} s. The rule: longer work is given up. To fix: ask for "
                "less at once."
            ) from None
        except asyncio.CancelledError:
            if not caller.hung_up:
                if caller.call is not None:
                    caller.call.cancel()
                raise
            return HUNG_UP
        finally:
            caller.close()
        return None


class _Caller:
    """Hands on what the caller sends; once the body is complete, ends the call when the caller goes."""

    def __init__(self, receive: Receive, *, place: Callable[[], None]) -> None:
        """With what is asked for a place for the call when its body is complete."""
        self._receive = receive
        self._place = place
        self._first: MutableMapping[str, Any] | None = None
        self._started_s, self._size = time.monotonic(), 0
        self._watch: asyncio.Future[None] | None = None
        self._gone = asyncio.Event()
        self.hung_up = self.has_place = False
        self.call: asyncio.Future[None] | None = None

    async def begin(self) -> None:
        """Await the first part of the body: that is all of it for most calls, and for those without any."""
        self._first = await self.receive()

    async def receive(self) -> MutableMapping[str, Any]:
        """What the application is to know next.

        Raises:
            SlowCallerError: If the body comes too slowly.
            BusyError: If it is complete, and no place is free.
        """
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._watch is not None:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        allowed_s = PATIENCE_S + self._size / LEAST_BYTES_PER_S
        try:
            async with asyncio.timeout(self._started_s + allowed_s - time.monotonic()):
                message = await self._receive()
        except TimeoutError:
            raise SlowCallerError(
                f"{self._size:,} bytes of the body came within {allowed_s:.0f} s. The rule: all of it within "
                f"{PATIENCE_S:g} s, or {LEAST_BYTES_PER_S:,} bytes in each further second. To fix: send it "
                "faster."
            ) from None
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            if not message.get("more_body", False):
                self._place()
                self.has_place = True
                self._watch = asyncio.ensure_future(self._wait())
        return message

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()
        if self.call is not None and not self.call.done():
            self.hung_up = True
            self.call.cancel()

    def close(self) -> None:
        """Look at the connection no more."""
        if self._watch is not None:
            self._watch.cancel()


async def _answer(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    with contextlib.suppress(OSError):
        await response(scope, receive, send)
