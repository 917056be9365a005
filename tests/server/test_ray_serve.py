"""Under Ray Serve the same application gives the same answers, from two replicas with one store."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time import PrecisionTimeError
from precision_time.server.app import create_app
from precision_time.server.ray_serve import serving
from precision_time.server.settings import Settings

JOB = {
    "model": "resnet50",
    "device": "A100-SXM4-80GB",
    "gpus": 8,
    "precision": "fp16-mixed",
    "batch_size": 256,
}
PREDICTDDL = {
    "model": "vgg16",
    "device": "V100",
    "batch_size": 64,
    "dataset": "imagenet",
    "precision": "fp32",
}
_START_S = 120.0
_SCRIPT = """
import sys
from precision_time.server.ray_serve import run_on_ray
from precision_time.server.settings import Settings
settings = Settings.of({"store": sys.argv[1], "port": int(sys.argv[2]), "tokens": "secret"})
run_on_ray(settings, min_replicas=2, max_replicas=2, say=lambda text: print(text, flush=True))
"""


@pytest.mark.parametrize(
    ("store", "address", "replicas", "said"),
    [
        ("sqlite://", "local", (1, 2), "in memory"),
        ("sqlite:////tmp/x.sqlite", "ray.example:6379", (1, 2), "other machines"),
        ("sqlite:////tmp/x.sqlite", "local", (3, 2), "min_replicas"),
        ("sqlite:////tmp/x.sqlite", "local", (0, 2), "min_replicas"),
    ],
)
def test_replicas_that_could_not_share_a_store_are_refused(
    store: str, address: str, replicas: tuple[int, int], said: str
) -> None:
    least, most = replicas
    with (
        pytest.raises(PrecisionTimeError, match=said),
        serving(Settings.of({"store": store}), address, min_replicas=least, max_replicas=most),
    ):
        pass


@pytest.fixture(scope="module")
def on_ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Where the application answers under a local Ray with two replicas, and its store."""
    if importlib.util.find_spec("ray") is None or importlib.util.find_spec("ray.serve") is None:
        pytest.skip("Ray Serve is not installed (ray[serve])")
    store = tmp_path_factory.mktemp("ray") / "store.sqlite"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, f"sqlite:///{store}", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()  # ends with the process where that fails
        assert f"http://127.0.0.1:{port}" in line
        yield f"http://127.0.0.1:{port}", store
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        assert _group(process.pid) == []
    finally:
        for pid in _group(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.stdout.close()  # type: ignore[union-attr]


def _group(session: int) -> list[int]:
    """Processes of a session that still run, after a moment in which they may end."""
    end_s = time.monotonic() + 10.0
    while True:
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, of = path.read_text(encoding="utf-8").rpartition(")")[2].split()[:4]
            except OSError:
                continue
            if int(of) == session and state != "Z":
                found.append(int(path.parent.name))
        if not found or time.monotonic() > end_s:
            return found
        time.sleep(0.2)


@pytest.mark.slow
def test_two_replicas_answer_as_the_plain_application(on_ray: tuple[str, Path]) -> None:
    import httpx2

    url, store = on_ray
    plain = create_app(Settings.of({"store": f"sqlite:///{store}"}))
    token = {"Authorization": "Bearer secret"}
    with TestClient(plain) as here, httpx2.Client(base_url=url, headers=token, timeout=30.0) as there:
        assert httpx2.post(f"{url}/v1/predictions", json=JOB).status_code == 401
        for path, body in (
            ("/v1/predictions", JOB),
            ("/v1/predictions", {**JOB, "precision": "fp17"}),
            ("/v1/predictions/batch", {"shared": JOB, "jobs": [{"gpus": count} for count in (1, 2, 4, 0)]}),
            ("/v1/predictddl/predictions", PREDICTDDL),
        ):
            expected = here.post(path, json=body)
            for _ in range(4):  # of either replica
                found = there.post(path, json=body)
                assert found.status_code == expected.status_code
                assert found.json() == expected.json()
        asked = _asked(there)
        assert len(set(asked)) < len(asked)  # one process would count on: both answered
        report: dict[str, Any] = {"device": "A100-SXM4-80GB", "devices": 8}
        assert there.put("/v1/predictddl/clusters/lab/servers/a", json=report).status_code == 200
        for _ in range(8):  # both replicas see what one stored
            assert there.get("/v1/predictddl/clusters/lab").json()["features"]["devices"] == 8
        assert here.get("/v1/predictddl/clusters/lab").json()["features"]["devices"] == 8


def _asked(client: Any) -> list[int]:
    """How often the process that answers was asked for its figures before, in 32 calls."""
    found = []
    for _ in range(32):
        lines = client.get("/metrics").text.splitlines()
        own = [
            line for line in lines if line.startswith("precision_time_calls_total{") and '"/metrics"' in line
        ]
        found.append(sum(int(float(line.split()[-1])) for line in own))
    return found
