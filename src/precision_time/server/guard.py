"""What every call passes: token, number of calls at once, time limit, hang-ups, headers, figures."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from starlette.responses import Response

from .. import __version__
from ..barrier import data_only
from .conversation import VERSION_HEADER
from .metrics import CALL_SECONDS, CALLS, IN_PROGRESS
from .problems import HUNG_UP, BusyError, ProblemError, TimeLimitError, UnauthorizedError, problem_response
from .settings import Settings

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

OPEN_PATHS = ("/", "/static", "/health")
"""Asked without a token: they tell nothing of what is stored."""
GRACE_S = 1.0
"""Long work keeps the time limit by itself, and says more; the one here is for everything else."""
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

        self._in_progress += 1
        IN_PROGRESS.inc()
        try:
            self._admit(scope)
            status = await self._within_limits(scope, receive, sent) or status
        except ProblemError as error:
            if not status:
                await _answer(problem_response(error), scope, receive, sent)
        finally:
            self._in_progress -= 1
            IN_PROGRESS.dec()
            route = getattr(scope.get("route"), "path", "none")
            CALLS.labels(route, scope["method"], str(status)).inc()
            CALL_SECONDS.labels(route).observe(time.perf_counter() - started_s)

    def _admit(self, scope: Scope) -> None:
        path = scope["path"]
        is_open = path == "/" or any(path.startswith(start) for start in OPEN_PATHS[1:])
        if self._tokens and not is_open and scope["method"] != "OPTIONS":
            given = dict(scope["headers"]).get(b"authorization", b"")
            kind, _, token = given.partition(b" ")
            matches = [hmac.compare_digest(token.strip(), known) for known in self._tokens]
            if kind.lower() != b"bearer" or not any(matches):
                raise UnauthorizedError(
                    "No token that this service accepts. To fix: send Authorization: Bearer TOKEN "
                    "(PRECISION_TIME_TOKEN for the command line)."
                )
        if self._in_progress > self._settings.max_waiting and not path.startswith("/health"):
            raise BusyError(
                f"{self._settings.max_waiting} calls are in progress. The rule: no more at once. To fix: "
                "come again in a second, or let the operator start more workers (--workers)."
            )

    async def _within_limits(self, scope: Scope, receive: Receive, send: Send) -> int | None:
        """Run the call; ends it when its time is up or the caller has gone. Returns a status of our own."""
        limit_s = self._settings.time_limit_s
        hung_up = _HangUp(receive)
        with data_only():  # the call's task inherits it, and the threads that it asks
            call = asyncio.ensure_future(self._app(scope, hung_up.receive, send))
        hung_up.call = call
        try:
            async with asyncio.timeout(limit_s + GRACE_S):
                await call
        except TimeoutError:
            raise TimeLimitError(
                f"No answer within {limit_s:g} s. The rule: longer work is given up. To fix: ask for "
                "less at once."
            ) from None
        except asyncio.CancelledError:
            if not hung_up.happened:
                call.cancel()
                raise
            return HUNG_UP
        finally:
            hung_up.close()
        return None


class _HangUp:
    """Hands on what the caller sends; once the body is complete, ends the call when the caller goes."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watch: asyncio.Future[None] | None = None
        self._gone = asyncio.Event()
        self.happened = False
        self.call: asyncio.Future[None] | None = None

    async def receive(self) -> MutableMapping[str, Any]:
        if self._watch is not None:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        message = await self._receive()
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._watch = asyncio.ensure_future(self._wait())
        return message

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone.set()
        if self.call is not None and not self.call.done():
            self.happened = True
            self.call.cancel()

    def close(self) -> None:
        if self._watch is not None:
            self._watch.cancel()


async def _answer(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    with contextlib.suppress(OSError):
        await response(scope, receive, send)
