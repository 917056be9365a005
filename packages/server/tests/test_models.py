"""Routes of uploaded models: captured once, named by jobs, refused in the words of the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time.workload.hf_config import read_config
from precision_time.workload.resolve import load_workload
from precision_time_server import uploads
from precision_time_server.app import create_app
from precision_time_server.problems import BusyError
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
    settings = Settings.of({"store": f"sqlite:///{file}", "max_upload_bytes": 2**20, "capture_time_s": 40})
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


def test_configuration_is_captured_once_and_named_by_jobs(
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
        (LLAMA, {"kind": "pickle"}, 422, "one of onnx, pt2, hf-config"),
        (LLAMA, {"kind": ""}, 422, "one of onnx, pt2, hf-config"),
        (LLAMA, {"label": "x" * 121}, 422, "120 printable"),
        (b"", {}, 422, "empty"),
        (b"x" * (2**20 + 1), {}, 413, "at most 1,048,576 bytes"),
        (b"PK\3\4", {}, 400, "not JSON"),
        (b"[]", {}, 422, "a JSON object"),
        ({}, {}, 422, "model_type"),
        (LLAMA, {"kind": "onnx"}, 422, "kind=onnx is a model"),
        (LLAMA, {"kind": "pt2"}, 422, "kind=pt2 is the archive"),
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
    found = client.post("/v1/models?kind=onnx", files={"file": b"x"})
    assert found.status_code == 415
    assert "--data-binary" in found.json()["detail"]


def test_one_capture_at_a_time_and_few_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eight uploads at once, five are taken; of those, the same one is captured once."""
    running, most, captures = 0, 0, 0
    graph = load_workload("resnet50").graph

    async def capture(*_: Any, **__: Any) -> Any:
        nonlocal running, most, captures
        running, captures = running + 1, captures + 1
        most = max(most, running)
        await asyncio.sleep(0.05)
        running -= 1
        return graph

    async def body(content: bytes) -> AsyncIterator[bytes]:
        yield content

    async def all_at_once() -> list[Any]:
        store = open_store(f"sqlite:///{tmp_path / 'store.sqlite'}")
        found = Uploads(Settings.of({}), store)
        contents = [b"\x08" + each for each in (b"a", b"a", b"b", b"a", b"c", b"d", b"e", b"f")]
        try:
            return await asyncio.gather(
                *(found.add(body(each), kind="onnx", label="") for each in contents), return_exceptions=True
            )
        finally:
            store.close()

    monkeypatch.setattr(uploads, "capture_upload", capture)
    answers = asyncio.run(all_at_once())
    assert [type(each) for each in answers[5:]] == [BusyError] * 3
    assert [is_new for _, is_new in answers[:5]].count(True) == captures == 3
    assert most == 1


@pytest.mark.nightly(covered_by="packages/server/tests/test_models.py::test_bad_upload_is_a_problem")
def test_hostile_uploads_leave_the_service_answering(client: TestClient) -> None:
    """In the real process: memory, crashes, wrong kinds; each a clear error, and the service goes on."""
    from .test_capture import calling, calls, small_onnx

    big: dict[str, Any] = {
        "size": {"as_ints": [2**34]},
        "dtype": {"as_scalar_type": 7},
        "device": {"as_device": {"type": "cpu"}},
    }
    for kind, content in (
        ("onnx", calling(("f", "f"))),
        ("onnx", small_onnx(location="../../etc/passwd")),
        ("pt2", small_onnx()),
        ("pt2", calls("torch.ops.aten.ones.default", **big)),
        ("hf-config", {**LLAMA, "model_type": "no-such-type"}),
        ("hf-config", {"model_type": "bert", "num_hidden_layers": 10_000, "hidden_size": 99_999_999}),
    ):
        found = upload(client, content, kind=kind)
        assert found.status_code == 422, (kind, found.text)
        assert "To fix" in found.json()["detail"]
    assert client.post("/v1/predictions", json={"model": "resnet50", **JOB}).status_code == 200


@pytest.mark.slow
def test_limits_say_what_is_enforced(client: TestClient) -> None:
    found = client.get("/v1/models/limits").json()
    assert found["enforced"]["audit hook"] is True
    assert found["max_upload_bytes"] == 2**20
