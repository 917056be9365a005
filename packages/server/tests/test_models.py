"""Routes of uploaded models: stored once, named by jobs, refused in the words of the command line."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time.client.operations import graph_document
from precision_time.predict.api import predict
from precision_time.request.request import Request
from precision_time.workload.hf_config import read_config
from precision_time.workload.resolve import load_workload
from precision_time_server import uploads
from precision_time_server.app import create_app
from precision_time_server.settings import Settings
from precision_time_server.store.store import open_store
from precision_time_server.uploads import Uploads

LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 1000, "max_position_embeddings": 512,
}  # fmt: skip
JOB = {
    "device": "A100-SXM4-80GB",
    "gpus": 1,
    "precision": "bf16-mixed",
    "batch_size": 8,
    "optimizer": "adamw",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """Asks one service that takes uploads of up to a MiB."""
    file = tmp_path_factory.mktemp("service") / "service.sqlite"
    settings = Settings.of({"store": f"sqlite:///{file}", "max_upload_bytes": 2**20})
    with TestClient(create_app(settings)) as found:
        yield found


def upload(client: TestClient, content: Any, **query: str) -> Any:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return client.post(
        "/v1/models",
        params={"kind": "hf-config", **query},
        content=data,
        headers={"content-type": "application/octet-stream"},
    )


def test_configuration_is_read_once_and_named_by_jobs(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = upload(client, LLAMA, label="small llama")
    assert first.status_code == 201
    model = first.json()
    graph = load_workload(read_config(LLAMA)).graph
    assert (model["params"], model["forward_flops"]) == (graph.params, graph.forward_flops)
    assert first.headers["location"] == f"/v1/models/{model['name'].removeprefix('uploads/')}"

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("captured twice")

    monkeypatch.setattr(uploads, "load_workload", never)
    again = upload(client, LLAMA)
    assert (again.status_code, again.json()) == (200, model)
    monkeypatch.undo()
    assert model in client.get("/v1/models").json()["items"]
    assert client.get(first.headers["location"]).json() == model
    asked = client.post("/v1/predictions", json={"model": model["name"], **JOB})
    inline = client.post("/v1/predictions", json={"model": LLAMA, **JOB})
    assert asked.status_code == 200
    assert asked.json()["step_time_s"] == inline.json()["step_time_s"]
    assert client.delete(first.headers["location"]).status_code == 204
    assert client.delete(first.headers["location"]).status_code == 404
    gone = client.post("/v1/predictions", json={"model": model["name"], **JOB})
    assert (gone.status_code, gone.headers["content-type"]) == (404, "application/problem+json")


def test_code_that_a_configuration_names_is_left_out_and_said_so(client: TestClient) -> None:
    code = {"auto_map": {"AutoModelForCausalLM": "someone/repository--modeling.Model"}}
    found = upload(client, {**LLAMA, **code, "trust_remote_code": True, "_name_or_path": "/etc"})
    assert found.status_code == 201
    assert "never run" in found.json()["warnings"][0]
    assert found.json()["params"] == load_workload(read_config(LLAMA)).graph.params


@pytest.mark.parametrize(
    ("content", "query", "status", "says"),
    [
        (LLAMA, {"kind": "pickle"}, 422, "one of graph, hf-config"),
        (LLAMA, {"kind": ""}, 422, "one of graph, hf-config"),
        (b"", {"kind": "onnx"}, 422, "Client.upload_model"),
        (LLAMA, {"label": "x" * 121}, 422, "120 printable"),
        (b"", {}, 400, "not JSON"),
        (b"", {"kind": "graph"}, 422, "malformed"),
        (b"x" * (2**20 + 1), {}, 413, "at most 1,048,576 bytes"),
        (b"PK\3\4", {}, 400, "not JSON"),
        (b"[]", {}, 422, "a JSON object"),
        ({}, {}, 422, "model_type"),
        (LLAMA, {"kind": "graph"}, 422, "malformed"),
        ({**LLAMA, "model_type": "no-such-type"}, {}, 422, 'upload_model("config.json", "graph")'),
        (b'{"model_type": "llama", "hidden_size": NaN}', {}, 400, "finite"),
        (b'{"a":' * 5000 + b"1" + b"}" * 5000, {}, 400, "too deeply"),
    ],
)
def test_bad_upload_is_a_problem(
    client: TestClient, content: Any, query: dict[str, str], status: int, says: str
) -> None:
    found = upload(client, content, **query)
    assert (found.status_code, found.headers["content-type"]) == (status, "application/problem+json")
    assert says in found.json()["detail"]
    assert client.get("/v1/models").status_code == 200


def test_names_that_no_upload_has(client: TestClient) -> None:
    for name in ("0" * 32, "0" * 31, "A" * 32, "%2e%2e%2fetc", "0" * 32 + "%00"):
        assert client.get(f"/v1/models/{name}").status_code == 404
    for name in ("uploads/", "uploads/../x", "uploads/" + "0" * 32):
        assert client.post("/v1/predictions", json={"model": name, **JOB}).status_code == 404


def test_form_is_refused(client: TestClient) -> None:
    found = client.post("/v1/models?kind=graph", files={"file": b"x"})
    assert found.status_code == 415
    assert "--data-binary" in found.json()["detail"]


def test_a_graph_answers_as_the_model_that_it_was_captured_of(client: TestClient) -> None:
    graph = load_workload("resnet50").graph
    first = upload(client, graph_document(graph), kind="graph", label="mine")
    assert (first.status_code, first.json()["label"]) == (201, "mine")
    assert first.json()["params"] == graph.params
    job = {**JOB, "optimizer": "momentum-sgd"}
    asked = client.post("/v1/predictions", json={"model": first.json()["name"], **job}).json()
    local = predict(Request.of({**job, "model": replace(graph, name="mine")}))
    assert asked["step_time_s"] == pytest.approx(local.step_time_s, rel=1e-12)
    assert upload(client, graph_document(graph), kind="graph").status_code == 200


def test_the_same_upload_at_once_is_stored_once(tmp_path: Path) -> None:
    async def all_at_once() -> list[Any]:
        store = open_store(f"sqlite:///{tmp_path / 'store.sqlite'}")
        found = Uploads(store)
        content = json.dumps(LLAMA).encode()
        try:
            added = [found.add(content, kind="hf-config", label="") for _ in range(4)]
            return [*await asyncio.gather(*added), await found.records()]
        finally:
            store.close()

    *answers, records = asyncio.run(all_at_once())
    assert len(records) == len({record.name for record, _ in answers}) == 1


def test_the_service_loads_no_torch_for_what_is_uploaded() -> None:
    code = (
        "import sys, json; from starlette.testclient import TestClient\n"
        "from precision_time_server.app import create_app\n"
        "from precision_time_server.settings import Settings\n"
        "with TestClient(create_app(Settings.of({'store': 'sqlite://'}))) as client:\n"
        f"    sent = client.post('/v1/models?kind=hf-config', json={LLAMA!r})\n"
        "    assert sent.status_code == 201, sent.text\n"
        "    job = {'model': sent.json()['name'], 'device': 'A100'}\n"
        "    assert client.post('/v1/predictions', json=job).status_code == 200\n"
        "assert not {'torch', 'onnx', 'transformers'} & set(sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
