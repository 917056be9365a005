"""Under Ray Serve the same application gives the same answers, from two replicas with one store."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time import PrecisionTimeError
from precision_time_server.app import create_app
from precision_time_server.ray_serve import serving
from precision_time_server.settings import Settings

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
TOKEN = {"Authorization": "Bearer secret"}
_SCRIPT = """
import sys
from precision_time_server.ray_serve import run_on_ray
from precision_time_server.settings import Settings
settings = Settings.of({"store": sys.argv[1], "port": int(sys.argv[2]), "tokens": "secret"})
least, most, target = map(int, sys.argv[3:])
say = lambda text: print(text, flush=True)
run_on_ray(settings, min_replicas=least, max_replicas=most, target_calls=target, say=say)
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


@contextmanager
def on_ray(folder: Path, least: int, most: int, target: int) -> Iterator[tuple[str, Path]]:
    """Where the application answers under a local Ray with so many replicas, and its store."""
    store = folder / "store.sqlite"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-c", _SCRIPT, f"sqlite:///{store}", *map(str, (port, least, most, target))],
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
        process.wait(timeout=10)
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
def test_two_replicas_answer_as_the_plain_application(tmp_path: Path) -> None:
    import httpx2

    with (
        on_ray(tmp_path, 2, 2, 16) as (url, store),
        TestClient(create_app(Settings.of({"store": f"sqlite:///{store}"}))) as here,
        httpx2.Client(base_url=url, headers=TOKEN, timeout=30.0) as there,
    ):
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
        assert not _is_one(there)
        report: dict[str, Any] = {"device": "A100-SXM4-80GB", "devices": 8}
        assert there.put("/v1/predictddl/clusters/lab/servers/a", json=report).status_code == 200
        for _ in range(8):  # both replicas see what one stored
            assert there.get("/v1/predictddl/clusters/lab").json()["features"]["devices"] == 8
        assert here.get("/v1/predictddl/clusters/lab").json()["features"]["devices"] == 8


@pytest.mark.nightly(
    covered_by="packages/server/tests/test_ray_serve.py::test_two_replicas_answer_as_the_plain_application"
)
def test_a_replica_is_added_while_calls_wait(tmp_path: Path) -> None:
    import httpx2

    with (
        on_ray(tmp_path, 1, 2, 2) as (url, _),
        httpx2.Client(base_url=url, headers=TOKEN, timeout=60.0) as client,
    ):
        assert _is_one(client)
        stopped = threading.Event()

        def ask() -> None:
            while not stopped.is_set():
                client.post("/v1/predictions", json=JOB)

        with ThreadPoolExecutor(max_workers=8) as pool:
            for _ in range(8):
                pool.submit(ask)
            end_s = time.monotonic() + 120.0
            try:
                while (alone := _is_one(client)) and time.monotonic() < end_s:
                    pass
            finally:
                stopped.set()
        assert not alone


def _is_one(client: Any) -> bool:
    """Whether one process answers: how often it was asked for its figures then goes up by one each time."""
    found = []
    for _ in range(32):
        lines = client.get("/metrics").text.splitlines()
        own = [
            line for line in lines if line.startswith("precision_time_calls_total{") and '"/metrics"' in line
        ]
        found.append(sum(int(float(line.split()[-1])) for line in own))
    return found == [*range(found[0], found[0] + len(found))]
