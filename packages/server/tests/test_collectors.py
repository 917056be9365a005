"""Servers report to a service; what they are made of is what answers are for, and stale ones are named."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient

from precision_time.cli.main import main
from precision_time.errors import ConfigError, ServerError
from precision_time_papers.cli.collect import keep_reporting, local_report
from precision_time_papers.routes.collectors import ServerReport
from precision_time_server.app import create_app
from precision_time_server.settings import Settings

BASE = "/v1/predictddl/clusters"
REPORT = {
    "device": "NVIDIA A100-SXM4-80GB", "devices": 8, "device_memory_gib": 80, "cores": 128, "clock_ghz": 2.0,
    "memory_gib": 1024, "load": 0.1,
}  # fmt: skip
REQUEST = {"model": "resnet50", "batch_size": 64, "dataset": "imagenet", "precision": "fp16-mixed"}


def report(client: TestClient, cluster: str, server: str, **changes: Any) -> None:
    answer = client.put(f"{BASE}/{cluster}/servers/{server}", json={**REPORT, **changes})
    assert answer.status_code == 200, answer.text


def report_earlier(client: TestClient, cluster: str, server: str, seconds: float) -> None:
    at = datetime.now(UTC) - timedelta(seconds=seconds)
    client.app.state.service.store.put_server(cluster, server, REPORT, at=at)  # type: ignore[attr-defined]


def test_reports_add_up_to_the_features_of_the_paper(client: TestClient) -> None:
    report(client, "lab", "one")
    report(client, "lab", "two", cores=64, clock_ghz=3.0)
    report(client, "lab", "two", cores=64, clock_ghz=3.0, load=0.3)  # its last report counts
    found = client.get(f"{BASE}/lab").json()
    assert found["features"] == {
        "servers": 2, "devices": 16, "devices_per_server": 8.0, "device_memory_gib": 80.0,
        "device_types": ["NVIDIA A100-SXM4-80GB"], "cores": 192.0, "cores_per_server": 96.0, "clock_ghz": 2.5,
        "memory_gib": 2048.0, "load": pytest.approx(0.2),
    }  # fmt: skip
    assert found["inputs"]["device"] == "A100-SXM4-80GB"
    assert (found["inputs"]["nodes"], found["inputs"]["devices_per_node"]) == (2, 8)
    assert [row["server"] for row in found["servers"]] == ["one", "two"]
    assert all(0.0 <= row["age_s"] < 60.0 for row in found["servers"])
    assert found["left_out"] == []


def test_a_request_names_the_cluster_and_hears_of_stale_and_busy_servers(client: TestClient) -> None:
    report(client, "farm", "a")
    report(client, "farm", "b", load=0.9)
    report_earlier(client, "farm", "c", 400.0)
    found = client.post("/v1/predictddl/predictions", json={**REQUEST, "cluster": "farm"}).json()
    described = {"device": "A100-SXM4-80GB", "num_nodes": 2, "devices_per_node": 8}
    same = client.post("/v1/predictddl/predictions", json={**REQUEST, "cluster": described}).json()
    assert found["step_time_s"] == pytest.approx(same["step_time_s"], rel=1e-9)
    stale, busy = found["substitutions"][:2]
    assert "1 of 3 servers" in stale
    assert re.search(r"c \(4\d\d s\)", stale)
    assert "busy" in busy
    assert "(b)" in busy
    needed = client.post(
        "/v1/predictddl/predictions", json={**REQUEST, "cluster": "farm", "deadline": "1000d"}
    ).json()
    assert needed["kinds"][0]["tried"] == 2
    assert needed["kinds"][0]["answer"]["substitutions"][0].startswith("1 of 3 servers")
    shown = client.get(f"{BASE}/farm").json()
    assert [row["server"] for row in shown["left_out"]] == ["c"]
    assert shown["features"]["servers"] == 2
    assert client.get(f"{BASE}/farm", params={"max_age": "10m"}).json()["features"]["servers"] == 3


def test_the_links_are_those_of_the_stored_cluster_of_that_name(client: TestClient) -> None:
    store = client.app.state.service.store  # type: ignore[attr-defined]
    for server in ("a", "b"):
        report(client, "linked", server)
    usual = client.get(f"{BASE}/linked").json()["inputs"]["inter_node_bytes_per_s"]
    store.put_cluster("linked", {"fields": {"inter_node": "ethernet-10g"}, "anchors": [], "hardware": None})
    slow = client.get(f"{BASE}/linked").json()["inputs"]["inter_node_bytes_per_s"]
    assert slow == pytest.approx(10e9 / 8 / 8)  # of each of the 8 devices of a server
    assert usual > slow


def test_a_cluster_that_cannot_be_priced_says_why(client: TestClient) -> None:
    report_earlier(client, "asleep", "a", 1e6)
    for cluster, status, said in (("asleep", 422, "left out"), ("nowhere", 404, "No server reports")):
        answer = client.post("/v1/predictddl/predictions", json={**REQUEST, "cluster": cluster})
        assert answer.status_code == status
        assert said in answer.json()["detail"]
    assert client.get(f"{BASE}/nowhere").status_code == 404
    report(client, "odd", "a", device="Abacus 3000")
    shown = client.get(f"{BASE}/odd").json()
    assert "Abacus 3000" in shown["problem"]
    assert shown["inputs"] is None
    assert shown["features"]["servers"] == 1


@pytest.mark.parametrize(
    "content",
    [
        b'{"devices": -1}', b'{"devices": 1.5}', b'{"cores": 0}', b'{"load": NaN}', b'{"load": -0.1}',
        b'{"clock_ghz": 1e999}', b'{"name": "x"}', b'{"custom": "/etc/passwd"}', b"[]", b"",
        b'{"device": "' + b"x" * 201 + b'"}',
    ],
)  # fmt: skip
def test_a_report_that_breaks_a_rule_is_not_stored(client: TestClient, content: bytes) -> None:
    answer = client.put(
        f"{BASE}/bad/servers/a", content=content, headers={"content-type": "application/json"}
    )
    assert answer.status_code in (400, 422)
    assert client.get(f"{BASE}/bad").status_code == 404


@pytest.mark.parametrize("name", ["..", "%2e%2e%2fx", "-a", "a b", "é", "x" * 101, "a%00"])
def test_names_are_plain(client: TestClient, name: str) -> None:
    for path in (f"{BASE}/{name}/servers/a", f"{BASE}/lab2/servers/{name}"):
        assert client.put(path, json=REPORT).status_code in (404, 405, 422)


class _EndError(Exception):
    """Ends a loop that has no end."""


def waits_of(outcomes: list[Exception | None], every_s: float) -> tuple[list[float], list[str]]:
    """How long the agent waits after each outcome, and what it says."""
    left: Iterator[Exception | None] = iter(outcomes)
    waits: list[float] = []
    said: list[str] = []

    def send() -> None:
        try:
            outcome = next(left)
        except StopIteration:
            raise _EndError from None
        if outcome is not None:
            raise outcome

    with pytest.raises(_EndError):
        keep_reporting(send, every_s=every_s, sleep=waits.append, say=said.append)
    return waits, said


def test_the_agent_backs_off_while_the_service_is_away_and_comes_back() -> None:
    gone = ServerError("No answer. To fix: start it.")
    busy = ServerError("Busy.", status=503)
    waits, said = waits_of([None, gone, busy, gone, None, None], 60.0)
    expected = [60.0, 120.0, 240.0, 480.0, 60.0, 60.0]
    assert all(0.9 * wanted <= wait <= 1.1 * wanted for wait, wanted in zip(waits, expected, strict=True))
    assert said == ["No answer. To fix: start it. Asked again until it answers.",
                    "The service answers again; 3 reports were missed."]  # fmt: skip
    assert max(waits_of([gone] * 60, 60.0)[0]) <= 660.0
    assert min(waits_of([gone] * 5, 3600.0)[0]) >= 3240.0


@pytest.mark.parametrize("refused", [ConfigError("no"), ServerError("no", status=401)])
def test_the_agent_ends_where_its_report_is_refused(refused: Exception) -> None:
    def send() -> None:
        raise refused

    with pytest.raises(type(refused)):
        keep_reporting(send, every_s=1.0, sleep=lambda _: None, say=lambda _: None)


def test_this_machine_s_report_is_one_that_the_service_takes() -> None:
    _, found = local_report()
    assert ServerReport.of(json.loads(json.dumps(found))).cores == found["cores"]


@pytest.fixture
def listening() -> Iterator[tuple[str, Any]]:
    """The address of a service that asks for a token, and its application."""
    app = create_app(Settings.of({"store": "sqlite://", "tokens": "secret"}))
    server = uvicorn.Server(uvicorn.Config(app, host="127.0.0.1", port=0, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.02)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}", app
    finally:
        server.should_exit = True
        thread.join(timeout=20)


def exit_code(words: list[str]) -> Any:
    with pytest.raises(SystemExit) as ended:
        main(words)
    return ended.value.code


def test_the_command_reports_with_its_token(
    listening: tuple[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    url, app = listening
    command = ["collect", "--server", url, "--cluster", "lab", "--name", "here", "--json"]
    monkeypatch.setenv("PRECISION_TIME_TOKEN", "wrong")
    assert exit_code(command) == 2
    assert "No token that this service accepts" in capsys.readouterr().err
    assert app.state.service.store.servers("lab") == []
    monkeypatch.setenv("PRECISION_TIME_TOKEN", "secret")
    assert exit_code(command) == 0
    assert json.loads(capsys.readouterr().out)["server"] == "here"
    [(name, stored, _)] = app.state.service.store.servers("lab")
    assert name == "here"
    assert stored["cores"] == local_report()[1]["cores"]
