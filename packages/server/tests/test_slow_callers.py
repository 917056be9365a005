"""Callers that send slowly, half of something or nothing: closed in time, and nobody waits for them."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from precision_time_server import connections, guard
from precision_time_server.app import create_app
from precision_time_server.connections import Prompt
from precision_time_server.guard import Guard
from precision_time_server.settings import Settings

BODY = b'{"model": "resnet50", "gpus": 8}'
HEAD = b"POST /v1/predictions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
WHOLE = HEAD + b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
PATIENCE_S = 0.4


@contextmanager
def serving(folder: Path, parser: str, **settings: Any) -> Iterator[Callable[[], socket.socket]]:
    """Connections to a service that is set up as `serve` does it."""
    chosen = Settings.of({"store": f"sqlite:///{folder / 's.sqlite'}", **settings})
    base = import_module(f"uvicorn.protocols.http.{parser}_impl")
    protocol = getattr(base, {"h11": "H11Protocol", "httptools": "HttpToolsProtocol"}[parser])
    prompt = type("PromptProtocol", (Prompt, protocol), {})
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1000)
        config = uvicorn.Config(
            create_app(chosen), http=prompt, ws="none", limit_concurrency=chosen.max_connections,
            log_level="critical", access_log=False,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
        thread.start()
        try:
            yield lambda: socket.create_connection(taken.getsockname(), timeout=20)
        finally:
            server.should_exit = True
            thread.join(timeout=30)


@pytest.fixture(params=["h11", "httptools"])
def connect(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[], socket.socket]]:
    monkeypatch.setattr(connections, "PATIENCE_S", PATIENCE_S)
    monkeypatch.setattr(guard, "PATIENCE_S", PATIENCE_S)
    with serving(tmp_path, request.param, max_waiting=4, max_connections=40) as found:
        yield found


def received(connection: socket.socket) -> bytes:
    """All until the other side closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def status(connection: socket.socket) -> int:
    return int(connection.recv(65536).split(b" ", 2)[1])


@pytest.mark.parametrize("sent", [b"", b"GET / HT", HEAD, b"POST /x HTTP/1.1\r\nX: " + b"a" * 100_000])
def test_silence_and_half_headers_end(connect: Callable[[], socket.socket], sent: bytes) -> None:
    with connect() as connection:
        connection.sendall(sent)
        answer = received(connection)  # ends, as the service closes
    assert answer == b"" or answer.startswith(b"HTTP/1.1 400")


def test_half_a_body_ends_in_words(connect: Callable[[], socket.socket]) -> None:
    with connect() as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"application/problem+json" in answer
    assert b"To fix" in answer


def test_a_second_call_has_its_time_too(connect: Callable[[], socket.socket]) -> None:
    with connect() as connection:
        for _ in range(2):
            connection.sendall(WHOLE)
            assert status(connection) == 200
            time.sleep(1.5 * PATIENCE_S)  # between two calls nothing is waited for
        connection.sendall(HEAD)
        assert received(connection) == b""


def test_half_bodies_take_no_place(connect: Callable[[], socket.socket]) -> None:
    slow = [connect() for _ in range(20)]
    try:
        for each in slow:
            each.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
        for _ in range(3):
            with connect() as connection:
                connection.sendall(WHOLE)
                assert status(connection) == 200
    finally:
        for each in slow:
            each.close()


@pytest.mark.parametrize("parser", ["h11", "httptools"])
def test_connections_have_an_end(tmp_path: Path, parser: str) -> None:
    """With the usual patience: none of the silent ones is closed while the others are opened."""
    with serving(tmp_path, parser, max_connections=40) as connect, ExitStack() as many:
        for _ in range(45):
            many.enter_context(connect())
        with connect() as connection:
            connection.sendall(WHOLE)
            assert status(connection) == 503
        many.close()
        found, end_s = 503, time.monotonic() + 60.0  # until the service has seen that they are closed
        while found == 503 and time.monotonic() < end_s:
            with connect() as connection:
                connection.sendall(WHOLE)
                found = status(connection)
        assert found == 200


def test_serve_sets_it_up_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from precision_time_server.cli import serve

    said: dict[str, Any] = {}
    monkeypatch.setattr(uvicorn, "run", lambda _, **options: said.update(options))
    serve._run(Settings.of({"store": "sqlite://"}))
    assert issubclass(said["http"], Prompt)
    assert (said["ws"], said["limit_concurrency"]) == ("none", 512)


@pytest.mark.parametrize(("size", "expected"), [(2_000, 200), (20, 408)])
def test_a_body_that_comes_at_the_least_rate_is_read(
    monkeypatch: pytest.MonkeyPatch, size: int, expected: int
) -> None:
    monkeypatch.setattr(guard, "PATIENCE_S", 0.05)
    monkeypatch.setattr(guard, "LEAST_BYTES_PER_S", 500)  # a pause of 0.1 s is paid by 50 bytes, not by 20

    async def route(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def go() -> list[int]:
        left, statuses = 5, []

        async def receive() -> MutableMapping[str, Any]:
            nonlocal left
            left -= 1
            if left < 0:
                await asyncio.Event().wait()
            if left < 4:  # the first part comes with the headers
                await asyncio.sleep(0.1)
            return {"type": "http.request", "body": b"x" * size, "more_body": left > 0}

        async def send(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])

        scope = {"type": "http", "method": "POST", "path": "/v1/x", "headers": []}
        await Guard(route, settings=Settings.of({"store": "sqlite://"}))(scope, receive, send)
        return statuses

    assert asyncio.run(go()) == [expected]
