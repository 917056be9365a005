"""Limits of calls: time, number at once, callers that hang up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import Any

import pytest
from anyio import to_thread

from precision_time.barrier import is_data_only
from precision_time_server.guard import Guard
from precision_time_server.settings import Settings

Message = MutableMapping[str, Any]


class Route:
    """An application that takes its time, and tells whether it was ended."""

    def __init__(self) -> None:
        self.ended, self.reached, self.released = False, asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        del scope
        while (await receive()).get("more_body"):
            pass
        self.reached.set()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.ended = True
            raise
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


async def ask(guard: Guard, *, hang_up: asyncio.Event | None = None, path: str = "/v1/x") -> int | None:
    """The status of a call; None where nothing was sent back."""
    statuses: list[int] = []
    body: Iterator[Message] = iter([{"type": "http.request", "body": b"{}", "more_body": False}])

    async def receive() -> Message:
        for message in body:
            return message
        await (hang_up or asyncio.Event()).wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await guard({"type": "http", "method": "POST", "path": path, "headers": []}, receive, send)
    return statuses[0] if statuses else None


def guarded(**limits: Any) -> tuple[Route, Guard]:
    route = Route()
    return route, Guard(route, settings=Settings.of({"store": "sqlite://", **limits}))


def test_a_call_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("precision_time_server.guard.GRACE_S", 0.0)

    async def run() -> None:
        route, guard = guarded(time_limit_s=0.02)
        assert await ask(guard) == 504
        assert route.ended

    asyncio.run(run())


def test_more_calls_than_allowed_are_told_to_come_again() -> None:
    async def run() -> None:
        route, guard = guarded(max_waiting=3)
        calls = [asyncio.create_task(ask(guard)) for _ in range(3)]
        await route.reached.wait()
        assert [await ask(guard), await ask(guard)] == [429, 429]
        route.released.set()
        assert await ask(guard, path="/health/live") == 200
        assert await asyncio.gather(*calls) == [200] * 3
        assert await ask(guard) == 200

    asyncio.run(run())


def test_work_ends_when_its_caller_has_gone() -> None:
    async def run() -> None:
        route, guard = guarded()
        gone = asyncio.Event()
        call = asyncio.create_task(ask(guard, hang_up=gone))
        await route.reached.wait()
        gone.set()
        assert await asyncio.wait_for(call, timeout=60.0) is None
        assert route.ended

    asyncio.run(run())


def test_the_threads_of_a_call_read_no_files_that_it_names() -> None:
    found: list[bool] = []

    async def route(scope: Message, receive: Any, send: Any) -> None:
        found.extend([is_data_only(), await to_thread.run_sync(is_data_only)])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    assert asyncio.run(ask(Guard(route, settings=Settings.of({"store": "sqlite://"})))) == 200
    assert found == [True, True]
    assert not is_data_only()


def test_a_caller_that_stays_gets_its_answer() -> None:
    async def run() -> None:
        route, guard = guarded()
        route.released.set()
        assert await ask(guard) == 200

    asyncio.run(run())
