"""The Python client: what it sends, what it makes of answers, and what it does where there are none."""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import socket
import subprocess
import sys
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest

from precision_time import (
    AsyncClient,
    Client,
    PrecisionTimeError,
    Request,
    __version__,
    compare_precisions,
    predict_many,
    predict_time,
)
from precision_time.errors import (
    CaptureError,
    ConfigError,
    LayoutError,
    MissingExtraError,
    ServerError,
    UnknownNameError,
)
from precision_time.predict.prediction import Prediction, Skipped
from precision_time.predict.predictions import Predictions
from precision_time_server.app import create_app
from precision_time_server.settings import Settings

URL = "http://service.example:8400"
JOB: dict[str, Any] = {
    "model": "resnet50",
    "device": "A100-SXM4-80GB",
    "gpus": 8,
    "precision": "fp16-mixed",
    "batch_size": 256,
}
Handler = Callable[[httpx2.Request], httpx2.Response]


def client_of(handler: Handler, **options: Any) -> Client:
    """Asks a function in the place of the network."""

    def unread(request: httpx2.Request) -> httpx2.Response:
        made = handler(request)
        if not made.is_stream_consumed:
            return made
        return httpx2.Response(made.status_code, headers=made.headers, stream=httpx2.ByteStream(made.content))

    return Client(URL, transport=httpx2.MockTransport(unread), **options)


def keeping(sent: list[httpx2.Request], answer: httpx2.Response) -> Handler:
    """Answers every call, and keeps it."""

    def handler(request: httpx2.Request) -> httpx2.Response:
        sent.append(request)
        return answer

    return handler


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that clients would have waited."""
    waited: list[float] = []
    monkeypatch.setattr("precision_time.client.client.sleep", waited.append)
    return waited


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a service in a process of its own, which ends after the tests."""
    folder: Path = tmp_path_factory.mktemp("service")
    code = (
        "import socket, sys, uvicorn\n"
        "from precision_time_server.app import create_app\n"
        "from precision_time_server.settings import Settings\n"
        "taken = socket.socket(); taken.bind(('127.0.0.1', 0)); taken.listen()\n"
        "print(taken.getsockname()[1], flush=True)\n"
        "app = create_app(Settings.of({'store': sys.argv[1], 'tokens': 'secret'}))\n"
        "server = uvicorn.Server(uvicorn.Config(app, log_level='error', access_log=False))\n"
        "server.run(sockets=[taken])\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, f"sqlite:///{folder / 'service.sqlite'}"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PRECISION_TIME_HOME": str(folder)},
    )
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
    finally:
        process.terminate()
        process.wait(timeout=30)
        process.stdout.close()


def test_answers_of_a_real_service_are_the_library_s(service: str) -> None:
    with Client(service, token="secret") as client:
        assert client.health()["version"] == __version__
        found, expected = client.predict(**JOB), predict_time(**JOB)
        assert found == expected
        assert str(found) == str(expected)
        assert client.why(**JOB).page == str(expected)
        jobs = [{**JOB, "batch_size": 256.0, "gpus": gpus} for gpus in (1, 0, 8)] + [
            {"model": "resnet50", "device": "A1000X"}
        ]
        many, here = client.predict_many(jobs), predict_many(jobs)
        assert many == here
        assert str(many) == str(here)
        assert "precision_time_predictions_total" in client.metrics()
        with pytest.raises(UnknownNameError, match="A1000X") as remote:
            client.predict("resnet50", device="A1000X")
        with pytest.raises(UnknownNameError) as local:
            predict_time("resnet50", device="A1000X")
        assert str(remote.value) == " ".join(str(local.value).split())
    with Client(service, token="") as client, pytest.raises(ServerError, match="No token that") as refused:
        client.predict(**JOB)
    assert refused.value.status == 401


def test_the_async_client_asks_the_same(tmp_path: Path) -> None:
    app = create_app(Settings.of({"store": f"sqlite:///{tmp_path / 'service.sqlite'}"}))

    async def ask() -> tuple[list[Prediction], PrecisionTimeError]:
        async with (
            app.router.lifespan_context(app),
            AsyncClient("http://localhost", transport=httpx2.ASGITransport(app)) as client,
        ):
            found = await asyncio.gather(*(client.predict(**{**JOB, "gpus": gpus}) for gpus in (1, 2, 4)))
            with pytest.raises(LayoutError) as error:
                await client.predict("llama3-8b", tp=3, gpus=8)
            return [*found], error.value

    found, error = asyncio.run(ask())
    assert [each.gpus for each in found] == [1, 2, 4]
    with pytest.raises(LayoutError) as local:
        predict_time("llama3-8b", tp=3, gpus=8)
    assert str(error) == " ".join(str(local.value).split())


@pytest.mark.parametrize(
    "answer",
    [
        predict_time(**JOB, epochs=90),
        predict_time("llama3-70b", device="H100-SXM5-80GB"),
        compare_precisions("bert-large", device="V100-SXM2-32GB", gpus=8),
        predict_many(
            [{**JOB, "gpus": 0}, JOB, {**JOB, "device": "A1000X"}, {**JOB, "gpus": 1}, {**JOB, "gpus": -1}]
        ),
    ],
    ids=["fits", "does not fit", "some skipped", "skipped between"],
)
def test_an_answer_comes_back_equal_out_of_json(answer: Prediction | Predictions) -> None:
    text = json.dumps(answer.to_dict())
    found = type(answer).from_dict(json.loads(text))
    assert found == answer
    assert json.dumps(found.to_dict()) == text
    assert str(found) == str(answer)


def problem(kind: str, status: int, **headers: str) -> httpx2.Response:
    body = {
        "type": f"urn:precision-time:{kind}",
        "title": "",
        "status": status,
        "detail": "Said. To fix: do.",
    }
    return httpx2.Response(status, json=body, headers=headers)


@pytest.mark.parametrize(
    ("kind", "status", "expected"),
    [
        ("ConfigError", 422, ConfigError),
        ("LayoutError", 422, LayoutError),
        ("UnknownNameError", 422, UnknownNameError),
        ("MissingExtraError", 501, MissingExtraError),
        ("BrokenRowsError", 422, ConfigError),
        ("NotFoundError", 404, ServerError),
        ("KeyError", 500, ServerError),
        ("reprlib", 500, ServerError),
        ("SystemExit", 500, ServerError),
    ],
)
def test_a_problem_is_the_error_of_its_type(kind: str, status: int, expected: type[Exception]) -> None:
    with pytest.raises(PrecisionTimeError) as error:
        client_of(lambda _: problem(kind, status)).predict("resnet50")
    assert type(error.value) is expected
    assert str(error.value) == "Said. To fix: do."


def good() -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(json.dumps(predict_time(**JOB).to_dict()))
    return answer


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>a proxy</html>",
        b"[]",
        b"[" * 100_000,
        b'{"model": NaN}',
        b"{}",
        b'{"model": "resnet50"}',
        b"\xff\xfe",
        json.dumps({**good(), "interval": None}).encode(),
        json.dumps({**good(), "terms": {"compute_s": "fast"}}).encode(),
        json.dumps({**good(), "gpus": 8.5}).encode(),
        json.dumps({**good(), "diagnostics": [{"code": "a", "severity": "fatal", "text": ""}]}).encode(),
        json.dumps({**good(), "nearest_measurements": [{}]}).encode(),
    ],
)
def test_what_is_no_answer_of_ours_is_a_server_error(body: bytes) -> None:
    for status in (200, 500, 422):
        client = client_of(keeping([], httpx2.Response(status, content=body)), retries=0)
        with pytest.raises(ServerError, match="To fix"):
            client.predict("resnet50")
        with pytest.raises(ServerError, match="To fix"):
            client.predict_many([JOB])


def test_a_batch_has_as_many_answers_as_jobs() -> None:
    client = client_of(lambda _: httpx2.Response(200, json={"answers": [{"prediction": good()}]}))
    with pytest.raises(ServerError, match="1 answers to 2 jobs"):
        client.predict_many([JOB, JOB])


def test_many_jobs_go_in_several_calls_and_stay_in_order() -> None:
    sizes: list[int] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        jobs = json.loads(request.content)["jobs"]
        sizes.append(len(jobs))
        return httpx2.Response(
            200, json={"answers": [{"prediction": {**good_answer, "gpus": job["gpus"]}} for job in jobs]}
        )

    good_answer = good()
    found = client_of(answer).predict_many([{**JOB, "gpus": n} for n in range(1, 1102)])
    assert [each.gpus for each in found] == [*range(1, 1102)]
    assert sizes == [367, 367, 367]
    assert client_of(answer).predict_many([]).answers == ()


def test_what_may_be_repeated_is(no_pauses: list[float]) -> None:
    seen: list[httpx2.Request] = []

    def busy(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        turns: list[Callable[[], httpx2.Response]] = [
            lambda: problem("BusyError", 429, **{"Retry-After": "2"}),
            lambda: problem("UnavailableError", 503),
            lambda: httpx2.Response(200, json={"stored": 1}),
        ]
        return turns[len(seen) - 1]()

    assert client_of(busy).add_measurements("pod", [{"model": "resnet50", "step_time_s": 0.3}]) == {
        "stored": 1
    }
    keys = {request.headers["Idempotency-Key"] for request in seen}
    assert len(seen) == 3
    assert len(keys) == 1
    assert no_pauses[0] >= 2.0
    assert 0.0 < no_pauses[1] < 2.0


def test_the_async_client_waits_and_asks_again() -> None:
    turns = iter([503, 200])

    def handler(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(next(turns), stream=httpx2.ByteStream(b"{}"))

    async def ask() -> dict[str, Any]:
        async with AsyncClient(URL, transport=httpx2.MockTransport(handler)) as client:
            return await client.clusters()

    assert asyncio.run(ask()) == {}
    assert next(turns, None) is None


@pytest.mark.parametrize(
    ("error", "calls"), [(httpx2.ConnectError, 3), (httpx2.ReadError, 1), (httpx2.ReadTimeout, 1)]
)
def test_what_is_made_anew_is_asked_again_only_where_it_cannot_have_arrived(
    error: type[Exception], calls: int
) -> None:
    seen = []

    def lost(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        raise error("gone")

    with pytest.raises(ServerError, match="gone"):
        client_of(lost, retries=2).fit_calibration("pod")
    assert len(seen) == calls


def test_a_long_pause_is_the_caller_s_to_take(no_pauses: list[float]) -> None:
    with pytest.raises(ServerError) as error:
        client_of(lambda _: problem("BusyError", 429, **{"Retry-After": "3600"})).predict("resnet50")
    assert (error.value.status, no_pauses) == (429, [])


def test_a_token_goes_nowhere_else() -> None:
    seen: list[httpx2.Request] = []

    def elsewhere(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return httpx2.Response(307, headers={"Location": "http://evil.example/v1/predictions"})

    client = client_of(elsewhere, token="secret")
    with pytest.raises(ServerError, match="no redirect is followed"):
        client.predict("resnet50")
    assert [(request.url.host, request.headers["Authorization"]) for request in seen] == [
        ("service.example", "Bearer secret")
    ]
    assert "secret" not in repr(client)


def test_the_token_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECISION_TIME_TOKEN", "hidden\n")
    sent: list[httpx2.Request] = []
    client_of(keeping(sent, httpx2.Response(200, json={}))).clusters()
    assert sent[0].headers["Authorization"] == "Bearer hidden"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8400",
        "ftp://a",
        "http://",
        "http://a:b",
        "http://a b",
        "http://u:p@a",
        "http://a/?q=1",
        "http://a\n",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="To fix"):
        Client(url)


@pytest.mark.parametrize("token", ["two words", "a\r\nHost: b", "grün"])
def test_a_token_that_no_header_can_hold_is_refused(token: str) -> None:
    with pytest.raises(ConfigError, match="token") as error:
        Client(URL, token=token)
    assert token not in str(error.value)


def test_what_json_cannot_hold_is_not_sent() -> None:
    client = client_of(lambda _: pytest.fail("sent"))
    for value in (float("nan"), object(), {1, 2}):
        with pytest.raises(ConfigError, match="cannot be sent"):
            client.predict("resnet50", batch_size=value)
    for name in ("", ".."):
        with pytest.raises(ConfigError, match="no name"):
            client.cluster(name)
    with pytest.raises(ConfigError, match="not said what the content is"):
        client.upload_model(b"{}")
    with pytest.raises(CaptureError, match="nowhere.onnx"):
        client.upload_model("nowhere.onnx")


def test_a_name_is_one_part_of_a_path() -> None:
    sent: list[httpx2.Request] = []
    client_of(keeping(sent, httpx2.Response(204))).delete_cluster("a/../b?c#d")
    assert sent[0].url.raw_path == b"/v1/clusters/a%2F..%2Fb%3Fc%23d"


def test_another_version_is_said_once() -> None:
    said: list[str] = []
    headers = {"precision-time-version": "99.0"}
    client = client_of(lambda _: httpx2.Response(200, json={}, headers=headers), say=said.append)
    client.clusters()
    client.clusters()
    assert len(said) == 1
    assert "99.0" in said[0]
    assert __version__ in said[0]


def test_a_compressed_answer_is_not_unpacked() -> None:
    bomb = gzip.compress(b" " * 10**8)
    answer = httpx2.Response(200, headers={"Content-Encoding": "gzip"}, stream=httpx2.ByteStream(bomb))
    tracemalloc.start()
    try:
        with pytest.raises(ServerError, match="no JSON"):
            client_of(keeping([], answer)).predict("resnet50")
        assert tracemalloc.get_traced_memory()[1] < 10**7
    finally:
        tracemalloc.stop()


def test_an_endless_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    client = client_of(lambda _: httpx2.Response(200, content=b" " * 5000), retries=0)
    monkeypatch.setattr(client, "_most_bytes", 4096)
    with pytest.raises(ServerError, match="longer than 4,096 bytes"):
        client.predict("resnet50")


class Slow(BaseHTTPRequestHandler):
    """Sends a byte now and then, and never the last one."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        try:
            while not self.server.ended.wait(0.05):  # type: ignore[attr-defined]
                self.wfile.write(b" ")
        except OSError:
            return

    def log_message(self, *_: Any) -> None:
        """Nothing."""


def test_an_answer_that_trickles_is_given_up() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow)
    server.ended = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        with (
            Client(url, timeout_s=0.4, retries=0) as client,
            pytest.raises(ServerError, match="within 0.4 s"),
        ):
            client.clusters()
    finally:
        server.ended.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()
        server.server_close()
    with Client(url, retries=0) as client, pytest.raises(ServerError, match="No answer from"):
        client.clusters()


class Unhelpful:
    """A service that accepts, and then says nothing or a byte now and then, for a few seconds."""

    def __init__(self, says: bytes) -> None:
        self.says, self.accepted, self.ended = says, 0, threading.Event()
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.threads = [threading.Thread(target=self.accept)]
        self.threads[0].start()

    def accept(self) -> None:
        while True:
            connection, _ = self.socket.accept()
            if self.ended.is_set():
                connection.close()
                return
            self.accepted += 1
            self.threads.append(threading.Thread(target=self.drip, args=(connection,)))
            self.threads[-1].start()

    def drip(self, connection: socket.socket) -> None:
        with connection:
            for place in range(150):
                if self.ended.wait(0.02):
                    return
                if self.says:
                    try:
                        connection.send(self.says[place % len(self.says) :][:1])
                    except OSError:
                        return

    def close(self) -> None:
        self.ended.set()
        socket.create_connection(self.socket.getsockname()).close()
        for thread in self.threads:
            thread.join()
        self.socket.close()


@pytest.fixture(params=[b"", b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000], ids=["silent", "trickling"])
def unhelpful(request: pytest.FixtureRequest) -> Iterator[Unhelpful]:
    service = Unhelpful(request.param)
    yield service
    service.close()


def test_one_deadline_is_of_all_attempts(unhelpful: Unhelpful, no_pauses: list[float]) -> None:
    with Client(unhelpful.url, timeout_s=0.3) as client, pytest.raises(ServerError, match="within 0.3 s"):
        client.clusters()
    assert unhelpful.accepted == 1
    assert no_pauses == []


def test_one_deadline_is_of_all_attempts_of_the_async_client(unhelpful: Unhelpful) -> None:
    async def ask() -> None:
        async with AsyncClient(unhelpful.url, timeout_s=0.3) as client:
            await client.clusters()

    with pytest.raises(ServerError, match="within 0.3 s"):
        asyncio.run(ask())
    assert unhelpful.accepted == 1


def test_nobody_waits_beyond_the_deadline_for_another_attempt(no_pauses: list[float]) -> None:
    seen: list[httpx2.Request] = []

    def busy(request: httpx2.Request) -> httpx2.Response:
        seen.append(request)
        return problem("BusyError", 429, **{"Retry-After": "20"})

    with pytest.raises(PrecisionTimeError):
        client_of(busy, timeout_s=15.0).clusters()
    assert len(seen) == 1
    with pytest.raises(PrecisionTimeError):
        client_of(busy, timeout_s=25.0).clusters()
    assert len(seen) == 1 + 4  # the clock stands still in this test
    assert len(no_pauses) == 3


def test_what_another_thread_would_raise_is_raised_here() -> None:
    def broken(_: httpx2.Request) -> httpx2.Response:
        raise ZeroDivisionError("of the test")

    with pytest.raises(ZeroDivisionError):
        client_of(broken).clusters()


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_a_time_that_is_none_is_refused(timeout_s: float) -> None:
    with pytest.raises(ConfigError, match="To fix"):
        Client(URL, timeout_s=timeout_s)


def test_a_request_of_the_library_is_a_job() -> None:
    sent: list[Any] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        sent.append(json.loads(request.content))
        return httpx2.Response(200, json=good())

    client = client_of(answer)
    client.predict(Request.of(JOB), gpus=4)
    client.predict({"model_type": "llama"}, cluster="pod")
    assert sent == [{**JOB, "gpus": 4}, {"model": {"model_type": "llama"}, "cluster": "pod"}]


def test_skipped_jobs_keep_their_reason() -> None:
    told = {"type": "urn:precision-time:ConfigError", "status": 422, "detail": "No. To fix: yes."}
    client = client_of(lambda _: httpx2.Response(200, json={"answers": [{"problem": told}]}))
    assert client.predict_many([JOB]).answers == (Skipped(request=JOB, reason="No. To fix: yes."),)
