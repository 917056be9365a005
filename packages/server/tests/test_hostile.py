"""Bodies that are no job, and callers that go, on every route that reads JSON."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from precision_time_server.app import create_app
from precision_time_server.settings import Settings

ROUTES = ["comparisons", "sweeps", "runs", "plans", "layouts", "timelines"]
JSON = "application/json"
MODEL = b'{"model": "resnet50"'


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"", JSON, 400),
        (b"null", JSON, 400),
        (b'"resnet50"', JSON, 400),
        (MODEL, JSON, 400),
        (MODEL + b', "batch_size": NaN}', JSON, 400),
        (MODEL + b', "batch_size": -Infinity}', JSON, 400),
        (MODEL + b', "batch_size": 1e999}', JSON, 400),
        (MODEL + b', "gpus": 8, "gpus": 9}', JSON, 400),
        (MODEL + b', "sizes": ' + b'{"a":' * 60 + b"1" + b"}" * 61, JSON, 400),
        (b"[" * 500_000, JSON, 400),
        (MODEL + b', "gpus": ' + b"9" * 6000 + b"}", JSON, 400),
        (MODEL + b', "gpus": ' + b"9" * 4000 + b"}", JSON, 422),
        (b'{"model": "resnet50\\u0000"}', JSON, 422),
        (b'{"model": "resnet50\x00"}', JSON, 400),
        (b'{"model": "\xff\xfe"}', JSON, 400),
        (MODEL + b', "no_such_field": 1}', JSON, 422),
        (b'{"model": "' + b"a" * 2**20 + b'"}', JSON, 413),
        (MODEL + b', "gpus": 1}', "text/csv", 415),
        (MODEL + b', "gpus": 1}', "multipart/form-data; boundary=x", 415),
        (MODEL + b', "gpus": 1}', "application/x-python-pickle", 415),
    ],
)  # fmt: skip
def test_what_is_no_job_is_refused(
    client: TestClient, route: str, body: bytes, kind: str, status: int
) -> None:
    answer = client.post(f"/v1/{route}", content=body, headers={"content-type": kind})
    assert answer.status_code == status, answer.text[:300]
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["status"] == status
    assert "To fix" in answer.json()["detail"]
    assert len(answer.content) < 6000


@pytest.fixture
def app(tmp_path: Path) -> FastAPI:
    return create_app(Settings.of({"store": f"sqlite:///{tmp_path / 's.sqlite'}", "time_limit_s": 30.0}))


def scope_of(path: str) -> dict[str, Any]:
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST", "path": path,
        "raw_path": path.encode(), "query_string": b"", "scheme": "http", "root_path": "",
        "headers": [(b"content-type", JSON.encode())], "client": ("127.0.0.1", 1), "server": ("test", 80),
    }  # fmt: skip


def parts(*messages: dict[str, Any], then: Callable[[], Any]) -> Callable[[], Any]:
    """What a server hands to an application: messages, then whatever `then` waits for."""
    left: Iterator[dict[str, Any]] = iter(messages)

    async def receive() -> dict[str, Any]:
        for message in left:
            return message
        await then()
        return {"type": "http.disconnect"}

    return receive


async def _at_once() -> None:
    pass


def body_of(fields: dict[str, Any], *, complete: bool = True) -> dict[str, Any]:
    text = json.dumps(fields).encode()
    return {"type": "http.request", "body": text, "more_body": not complete}


@pytest.mark.parametrize("route", ROUTES)
def test_a_caller_that_goes_in_the_middle_of_the_body_leaves_nothing(app: FastAPI, route: str) -> None:
    async def go() -> list[Any]:
        sent: list[Any] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        async with app.router.lifespan_context(app):
            receive = parts(body_of({"model": "resnet50"}, complete=False), then=_at_once)
            await asyncio.wait_for(app(scope_of(f"/v1/{route}"), receive, send), 10.0)
        return sent

    sent = asyncio.run(go())
    assert all(message.get("status", 400) < 500 for message in sent)


def test_long_work_ends_when_its_caller_goes(app: FastAPI, long_plan: dict[str, Any]) -> None:
    async def go() -> tuple[float, list[Any], float]:
        sent: list[Any] = []

        async def send(message: MutableMapping[str, Any]) -> None:
            sent.append(message)

        async def soon() -> None:
            await asyncio.sleep(0.5)

        async with app.router.lifespan_context(app):
            started_s = time.perf_counter()
            await app(scope_of("/v1/plans"), parts(body_of(long_plan), then=soon), send)
            gone_s = time.perf_counter() - started_s
            small = {
                "model": "llama3-8b",
                "device": "H100-SXM5-80GB",
                "gpus": 8,
                "fix": ["pp=1", "zero_stage=1"],
            }
            never = asyncio.Event()
            await app(scope_of("/v1/layouts"), parts(body_of(small), then=never.wait), send)
        return gone_s, sent, time.perf_counter() - started_s

    gone_s, sent, both_s = asyncio.run(go())
    assert gone_s < 20.0, "not at the limit of 30 s"
    # The process was free for the next call, which alone was answered.
    assert [message["status"] for message in sent if message["type"] == "http.response.start"] == [200]
    assert both_s < 60.0


@pytest.mark.parametrize("error", [OSError, asyncio.CancelledError])
def test_a_caller_that_goes_in_the_middle_of_the_answer_stops_no_other(
    app: FastAPI, error: type[BaseException]
) -> None:
    async def go() -> list[int]:
        statuses: list[int] = []

        async def broken(message: MutableMapping[str, Any]) -> None:
            raise error

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        job = {"model": "resnet50", "gpus": "1..8"}
        async with app.router.lifespan_context(app):
            never = asyncio.Event()
            with contextlib.suppress(OSError, asyncio.CancelledError):  # the server's to drop
                await app(scope_of("/v1/sweeps"), parts(body_of(job), then=never.wait), broken)
            await app(scope_of("/v1/sweeps"), parts(body_of(job), then=never.wait), send)
        return statuses

    assert asyncio.run(go()) == [200]
