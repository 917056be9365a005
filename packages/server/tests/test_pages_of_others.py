"""A web page that somebody visits is no caller: neither its bodies, nor its name, nor its origin."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time_server.app import create_app
from precision_time_server.settings import Settings

BODY = b'{"model": "resnet50", "gpus": 8}'
JSON = "application/json"
PREDICT = "/v1/predictions"
SIMPLE = [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
"""What browsers send to another origin without asking it first."""


@pytest.fixture(scope="module", params=["", "secret"])
def address(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    served: Callable[..., AbstractContextManager[str]],
) -> Iterator[tuple[str, str]]:
    """A service on the loopback, as `serve` starts it, and behind a token."""
    tokens = {"tokens": request.param} if request.param else {}
    with served(tmp_path_factory.mktemp("pages"), **tokens) as found:
        yield found, request.param


def ask(address: tuple[str, str], method: str, path: str, body: bytes = b"", **headers: str | None) -> int:
    place, token = address
    port = int(place.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    said = {"host": place, "content-type": JSON, **headers}
    said |= {"authorization": f"Bearer {token}"} if token else {}
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for name, value in {**said, "content-length": str(len(body))}.items():
        if value is not None:
            connection.putheader(name.replace("_", "-"), value.replace("PORT", str(port)))
    connection.endheaders(body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    if answer.status in (403, 415, 421):
        assert answer.headers["content-type"] == "application/problem+json"
        assert b"To fix" in content
    return answer.status


@pytest.mark.parametrize("kind", SIMPLE)
def test_a_body_says_what_it_is(address: tuple[str, str], kind: str | None) -> None:
    rows = b'{"measurements": [{"model": "resnet50", "step_time_s": 0.3}]}'
    assert ask(address, "PUT", "/v1/clusters/pod", b'{"fields": {"device": "A100", "gpus": 8}}') in (200, 201)
    for path, body in (
        (PREDICT, BODY),
        ("/v1/layouts", b'{"model": "llama3-8b", "device": "H100", "gpus": 8}'),
        ("/v1/clusters/pod/measurements", rows),
        ("/v1/models?kind=hf-config", b'{"model_type": "llama"}'),
        ("/v1/evaluations", b"model,step_time_s\nresnet50,0.3\n"),
        ("/v1/kubernetes/admission", b"{}"),
    ):
        assert ask(address, "POST", path, body, content_type=kind, **{"content-type": None}) == 415, path


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:PORT", 200),
        ("127.0.0.1:PORT", 200),
        ("127.0.0.1", 200),
        ("LOCALHOST.:PORT", 200),
        ("[::1]:PORT", 200),
        ("evil.example:PORT", 421),
        ("evil.example", 421),
        ("localhost.evil.example:PORT", 421),
        ("127.0.0.1.evil.example", 421),
        ("10.1.2.3:PORT", 421),
        ("[", 421),
        ("@localhost", 421),
        ("localhost@evil.example", 421),
    ],
)
def test_names_that_were_bound_to_this_address_are_refused(
    address: tuple[str, str], host: str, status: int
) -> None:
    assert ask(address, "POST", PREDICT, BODY, host=host) == status
    for method, path in (("GET", "/"), ("GET", "/health/live"), ("GET", "/v1/clusters")):
        assert ask(address, method, path, host=host) == status


def test_a_name_that_was_bound_to_this_address_deletes_no_cluster(address: tuple[str, str]) -> None:
    ask(address, "PUT", "/v1/clusters/mine", b"{}")
    assert ask(address, "DELETE", "/v1/clusters/mine", host="evil.example:PORT") == 421
    assert ask(address, "DELETE", "/v1/clusters/mine", origin="http://evil.example") == 403
    assert ask(address, "DELETE", "/v1/clusters/mine") == 204


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:PORT", 200),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://localhost:3000", 403),
        ("http://localhost", 403),
        ("http://localhost:PORT.evil.example", 403),
        ("https://evil.example/localhost:PORT", 403),
    ],
)
def test_pages_of_other_origins_may_read_only(address: tuple[str, str], origin: str, status: int) -> None:
    asked = {"host": "localhost:PORT", "origin": origin}
    assert ask(address, "POST", PREDICT, BODY, **asked) == status
    for method in ("GET", "HEAD", "OPTIONS"):
        assert ask(address, method, "/v1/catalogs/models", **asked) not in (403, 421)


def asked_of(settings: dict[str, Any], folder: Path, **headers: str) -> int:
    store = f"sqlite:///{folder / 's.sqlite'}"
    app = create_app(Settings.of({"store": store, **settings}))
    with TestClient(app, base_url="http://127.0.0.1:8400") as client:
        sent = {"content-type": JSON, **headers}
        return client.post(PREDICT, content=BODY, headers=sent).status_code


@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        ({"host": "predict.lab"}, {"host": "predict.lab:8400"}, 200),
        ({"host": "0.0.0.0"}, {"host": "192.168.1.5:8400"}, 200),
        ({"host": "::"}, {"host": "[fd00::5]:8400"}, 200),
        ({"host": "0.0.0.0"}, {"host": "predict.lab:8400"}, 421),
        ({"allowed_hosts": "predict.lab"}, {"host": "predict.lab:8400"}, 200),
        ({"allowed_hosts": "predict.lab"}, {"host": "evil.predict.lab"}, 421),
        # Behind a proxy that ends TLS, whether it says the page's name or its own.
        ({"allowed_hosts": "predict.lab"}, {"origin": "https://predict.lab"}, 200),
        ({"allowed_hosts": "predict.lab"}, {"origin": "https://predict.lab", "host": "predict.lab"}, 200),
        ({"allowed_hosts": "predict.lab:8443"}, {"origin": "https://predict.lab:8443"}, 200),
        ({"allowed_hosts": "predict.lab"}, {"origin": "https://predict.lab:3000"}, 403),
        ({"cors_origins": "https://their.example"}, {"origin": "https://their.example"}, 200),
        ({"cors_origins": "https://their.example"}, {"origin": "https://evil.example"}, 403),
        ({"cors_origins": "https://their.example"}, {"host": "their.example"}, 421),
        ({"cors_origins": "*"}, {"origin": "https://evil.example"}, 200),
    ],
)  # fmt: skip
def test_an_operator_allows_names_and_origins(
    settings: dict[str, Any], headers: dict[str, str], status: int, tmp_path: Path
) -> None:
    assert asked_of(settings, tmp_path, **headers) == status


@pytest.mark.parametrize("name", ["authorization", "host", "origin", "content-type"])
def test_headers_that_decide_come_once(address: tuple[str, str], name: str) -> None:
    place, token = address
    port = int(place.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.putrequest("POST", PREDICT, skip_host=True)
    own = {
        "host": place, "content-type": JSON, "origin": f"http://{place}",
        "authorization": f"Bearer {token or 'any'}",
    }  # fmt: skip
    for header, value in own.items():
        for _ in range(1 + (header == name)):
            connection.putheader(header, value)
    connection.putheader("content-length", str(len(BODY)))
    connection.endheaders(BODY)
    assert connection.getresponse().status == 400
    connection.close()
