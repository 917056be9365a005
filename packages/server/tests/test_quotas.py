"""What callers may store has an end, which is said with the way out; what is there goes on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from httpx import Response
from starlette.testclient import TestClient

from precision_time_server.app import create_app
from precision_time_server.settings import MIB, Settings
from precision_time_server.store.errors import QuotaError
from precision_time_server.store.quotas import Quotas
from precision_time_server.store.store import open_store

ROW = {"model": "resnet50", "batch_size": 64, "precision": "bf16-mixed", "step_time_s": 0.3}
POD = {"fields": {"device": "A100-SXM4-80GB", "gpus": 8}}
CONFIG = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 688, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 1000,
}  # fmt: skip


@contextmanager
def asked(folder: Path, **settings: Any) -> Iterator[TestClient]:
    with TestClient(
        create_app(Settings.of({"store": f"sqlite:///{folder / 's.sqlite'}", **settings}))
    ) as found:
        yield found


def refused(answer: Response, *said: str) -> None:
    assert answer.status_code == 413, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    for part in (*said, "nothing was stored", "To fix"):
        assert part in answer.json()["detail"]


def test_rows(tmp_path: Path) -> None:
    path = "/v1/clusters/pod/measurements"
    with asked(tmp_path, max_rows=3) as client:
        client.put("/v1/clusters/pod", json=POD)
        again = {"json": {"measurements": [ROW] * 2}, "headers": {"Idempotency-Key": "once"}}
        assert client.post(path, **again).status_code == 201
        refused(client.post(path, json={"measurements": [ROW] * 2}), "3 measurements", "--limit rows=")
        assert client.get(path).json()["count"] == 2
        assert client.post(path, json={"measurements": [ROW]}).status_code == 201
        refused(client.post(path, json={"measurements": [ROW]}), "3 measurements")
        assert client.post(path, **again).json()["ids"] == [1, 2]  # stored already
    with asked(tmp_path, max_rows=1) as client:  # lowered beneath what is there
        assert client.post(path, **again).json()["ids"] == [1, 2]
        refused(client.post(path, json={"measurements": [ROW]}), "1 measurements")


def test_clusters(tmp_path: Path) -> None:
    with asked(tmp_path, max_clusters=2) as client:
        assert [client.put(f"/v1/clusters/{name}", json=POD).status_code for name in "ab"] == [201, 201]
        refused(client.put("/v1/clusters/c", json=POD), "2 clusters", "--limit clusters=", "DELETE")
        assert client.put("/v1/clusters/b", json=POD).status_code == 200
        assert client.delete("/v1/clusters/a").status_code == 204
        assert client.put("/v1/clusters/c", json=POD).status_code == 201


def test_models(tmp_path: Path) -> None:
    def upload(client: TestClient, layers: int) -> Response:
        text = json.dumps({**CONFIG, "num_hidden_layers": layers})
        kind = {"content-type": "application/json"}
        return client.post("/v1/models?kind=hf-config", content=text, headers=kind)

    with asked(tmp_path, max_models=1) as client:
        first = upload(client, 1)
        assert first.status_code == 201
        refused(upload(client, 2), "1 models", "--limit models=", "DELETE")
        assert upload(client, 1).status_code == 200
        assert client.delete(first.headers["location"]).status_code == 204
        assert upload(client, 2).status_code == 201


def test_bytes(tmp_path: Path) -> None:
    body = {**POD, "note": "x" * 2000}
    with asked(tmp_path, max_store_bytes=MIB) as client:
        found = [client.put(f"/v1/clusters/c{n}", json=body) for n in range(600)]
        taken = sum(each.status_code == 201 for each in found)
        assert 100 < taken < 500
        refused(found[-1], "1,048,576 bytes", "--limit store=")
        for n in range(20):
            assert client.delete(f"/v1/clusters/c{n}").status_code == 204
        assert client.put("/v1/clusters/another", json=body).status_code == 201
        assert client.post("/v1/predictions", json={"model": "resnet50", "cluster": "c99"}).status_code == 200


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.put_cluster("other", {"x": "y" * 1000}),
        lambda store: store.add_measurements("a", [{"x": "y" * 1000}]),
        lambda store: store.add_calibration("a", {"x": "y" * 1000}, {}),
        lambda store: store.put_model("m", label="", kind="graph", graph={"x": "y" * 1000}, facts={}),
    ],
)
def test_whatever_is_stored_counts(tmp_path: Path, write: Callable[[Any], Any]) -> None:
    url = f"sqlite:///{tmp_path / 's.sqlite'}"
    with open_store(url) as store:
        store.put_cluster("a", {})
    with open_store(url, quotas=Quotas(size_bytes=(tmp_path / "s.sqlite").stat().st_size)) as store:
        with pytest.raises(QuotaError, match="--limit store="):
            write(store)
        assert (store.clusters(), store.models(), store.count_measurements("a")) == ([("a", {})], [], 0)
