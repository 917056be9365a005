"""PredictDDL over HTTP answers what the library answers, in order, and trains nothing unless told to."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time.barrier import data_only
from precision_time.request.datasets import known_dataset
from precision_time_papers.predictddl.contract import Refusal
from precision_time_papers.predictddl.controller import PredictDDL, answer_batch, find_task
from precision_time_papers.predictddl.embeddings import probe_embeddings
from precision_time_papers.predictddl.registry import Registry, shipped_folder
from precision_time_papers.predictddl.requests import read_request
from precision_time_papers.routes.answers import PredictDDLAnswers, refusal_of, train
from precision_time_server.app import create_app
from precision_time_server.settings import Settings

PREDICTIONS = "/v1/predictddl/predictions"
REQUEST: dict[str, Any] = {
    "model": "resnet50", "batch_size": 64, "dataset": "imagenet", "epochs": 90, "precision": "fp16-mixed",
    "cluster": {"device": "A100", "num_nodes": 2, "devices_per_node": 8},
}  # fmt: skip


@pytest.fixture(scope="module")
def library() -> PredictDDL:
    return PredictDDL(registry=Registry.default(), train=False)


def as_json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_an_answer_is_the_library_s(client: TestClient, library: PredictDDL) -> None:
    found = client.post(PREDICTIONS, json=REQUEST)
    assert found.status_code == 200
    assert found.json() == as_json(library.predict(read_request(REQUEST)).to_dict())


def test_many_come_in_order_and_refused_ones_as_problems_in_their_places(
    client: TestClient, library: PredictDDL
) -> None:
    own: list[dict[str, Any]] = [
        {"name": "first"},
        {"model": "resnet50x"},
        {"tp": 2, "name": "split"},
        {"dataset": {"name": "mine", "samples": 100_000, "classes": 200, "shape": [3, 64, 64]}},
        {"deadline": "12h", "max_servers": 4},
        {"precision": "fp8"},
        {"batch_size": 128, "variant": "predictddl"},
    ]
    found = client.post(PREDICTIONS, json={"shared": REQUEST, "requests": [*own, 7]}).json()["answers"]
    assert "an object of fields" in found.pop()["problem"]["detail"]
    expected = []
    with data_only():
        for fields in own:
            expected += answer_batch(library, [read_request({**REQUEST, **fields})])
    kinds = ["prediction", "problem", "problem", "prediction", "servers", "problem", "prediction"]
    assert [next(iter(each)) for each in found] == kinds
    for got, wanted in zip(found, expected, strict=True):
        if isinstance(wanted, Refusal):
            assert got["problem"]["detail"] == wanted.error
            assert got["problem"]["status"] == 422
        else:
            [value] = got.values()
            # Rows priced together differ in the last digits from rows priced alone.
            assert _numbers(value) == pytest.approx(_numbers(as_json(wanted.to_dict())), rel=1e-9)
            assert value.keys() == wanted.to_dict().keys()


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict | list):
        return [n for each in (value.values() if isinstance(value, dict) else value) for n in _numbers(each)]
    return [float(value)] if isinstance(value, int | float) else []


@pytest.mark.parametrize(
    "fields",
    [
        {"registry": "/tmp"},
        {"ghn": "/etc/passwd"},
        {"cluster": "/etc/passwd"},
        {"cluster": "../lab.yaml"},
        {"cluster": ["lab"]},
        {"cluster": {"device": "A100", "custom": "/etc/passwd"}},
        {"custom": "/etc/passwd"},
        {"precision": "/etc/policy.yaml"},
        {"model": "os:system"},
        {"model": "/etc/model.onnx"},
        {"model": "uploads/0123"},
        {"dataset": {"name": "x", "samples": -1, "classes": 2, "length": 3}},
        {"dataset": ["imagenet"]},
        {"facts": {"name": "x"}},
        {"device": "A100"},
        {"deadline": "never"},
        {"deadline": "2h", "max_servers": 1024},
        {"version": 99},
        {"regressor": "lightgbm"},
        {"epochs": -1},
    ],
)
def test_what_names_files_or_breaks_a_rule_is_refused(client: TestClient, fields: dict[str, Any]) -> None:
    answer = client.post(PREDICTIONS, json={**REQUEST, **fields})
    assert answer.status_code in (404, 413, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert "To fix" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"requests": []}, 422),
        ({"requests": {}}, 422),
        ({"requests": [REQUEST], "registry": "/tmp"}, 422),
        ({"requests": [REQUEST], "shared": []}, 422),
        ({"requests": [{}] * 1001}, 413),
    ],
)
def test_a_list_that_is_none_is_refused(client: TestClient, body: dict[str, Any], status: int) -> None:
    assert client.post(PREDICTIONS, json=body).status_code == status


def test_numbers_of_servers_count_to_the_limit_of_a_call() -> None:
    asked = [{"deadline": "2h", "max_servers": count} for count in (6, 5, 4)]
    with TestClient(create_app(Settings.of({"store": "sqlite://", "max_jobs": 10}))) as client:
        found = client.post(PREDICTIONS, json={"shared": REQUEST, "requests": asked}).json()["answers"]
    assert [next(iter(each)) for each in found] == ["servers", "problem", "servers"]
    assert found[1]["problem"]["status"] == 413


def test_the_task_checker_says_what_the_library_s_finds(client: TestClient) -> None:
    def ask(**query: Any) -> Any:
        return client.get("/v1/predictddl/tasks", params=query)

    assert ask(dataset="cifar10").json() | {"notes": []} == {
        "dataset": "cifar10", "type": "cifar", "outcome": "hit", "served": True, "used": "cifar", "notes": [],
        "distance": 0.0, "data_distance": 0.0, "embedding_distance": 0.0, "trains_on_request": False,
    }  # fmt: skip
    found = ask(dataset="tiny-imagenet").json()
    match = find_task(
        Registry.default(), "other", "tiny-imagenet", known_dataset("tiny-imagenet"), probe_embeddings(None)
    )
    assert match is not None
    assert found["outcome"] == "closest"
    assert (found["used"], found["distance"]) == (match.used, pytest.approx(match.distance))
    assert "no type" in found["training"]
    none = ask(dataset="mine", samples=10, classes=2, elements=1e9, modality="graph").json()
    assert (none["outcome"], none["served"], none["used"]) == ("train", False, None)
    assert ask(dataset="mine").status_code == 422
    assert "samples" in ask(dataset="mine").json()["detail"]


def test_the_registry_is_listed_without_folders_of_the_machine(client: TestClient) -> None:
    answer = client.get("/v1/predictddl/types")
    listed = {
        (each["type"], version["version"]) for each in answer.json()["types"] for version in each["versions"]
    }
    assert listed == {(entry.dataset_type, entry.version) for entry in Registry.default().entries()}
    assert str(shipped_folder()) not in answer.text


def without_predictors(folder: Path, **settings: Any) -> TestClient:
    """A service whose registry is empty."""
    app = create_app(Settings.of({"store": f"sqlite:///{folder / 'store.sqlite'}", **settings}))
    client = TestClient(app)
    client.__enter__()
    app.state.service.parts[PredictDDLAnswers] = PredictDDLAnswers(Registry(own=folder / "registry"))
    return client


def test_a_call_trains_nothing(tmp_path: Path) -> None:
    client = without_predictors(tmp_path)
    try:
        task = client.get("/v1/predictddl/tasks", params={"dataset": "imagenet"}).json()
        assert (task["outcome"], task["served"], task["trains_on_request"]) == ("train", False, False)
        assert "predictddl train imagenet" in task["training"]
        answer = client.post(PREDICTIONS, json=REQUEST)
        assert answer.status_code == 422
        assert answer.json()["type"] == "urn:precision-time:NotFittedError"
        assert not (tmp_path / "registry").exists()
    finally:
        client.__exit__(None, None, None)


@pytest.mark.parametrize("refusal", ["", "7 runs are known, and it takes 60"])
def test_with_leave_a_call_trains_once_what_can_be_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    client = without_predictors(tmp_path, train_predictddl=True)
    ran: list[Any] = []

    async def run(function: Any, *arguments: Any) -> str:
        """In the place of a process that counts runs and trains: takes over what ships."""
        ran.append(function)
        if function is refusal_of:
            return refusal
        registry, wanted = arguments
        shutil.copytree(shipped_folder() / wanted / "v1", registry.own / wanted / "v1")
        return "trained now"

    monkeypatch.setattr(client.app.state.service.long_work, "run", run)  # type: ignore[attr-defined]
    try:
        task = client.get("/v1/predictddl/tasks", params={"dataset": "imagenet"}).json()
        assert (task["outcome"], task["served"]) == ("train", not refusal)
        answers = [client.post(PREDICTIONS, json=REQUEST) for _ in range(2)]
        if refusal:
            assert task["training"] == refusal
            assert [answer.status_code for answer in answers] == [422, 422]
            assert ran == [refusal_of]  # counted once, remembered
        else:
            assert [answer.json()["task"] for answer in answers] == ["trained", "hit"]
            assert "trained now" in answers[0].json()["substitutions"]
            assert ran == [refusal_of, train]
    finally:
        client.__exit__(None, None, None)


@pytest.mark.nightly(
    covered_by="packages/server/tests/test_predictddl.py::test_with_leave_a_call_trains_once_what_can_be_trained"
)
def test_a_call_trains_where_the_operator_said_so(tmp_path: Path) -> None:
    client = without_predictors(tmp_path, train_predictddl=True, time_limit_s=600.0)
    asked = {"model": "transformer-base", "dataset": "wmt14", "device": "V100", "batch_size": 32}
    try:
        task = client.get("/v1/predictddl/tasks", params={"dataset": "wmt14"}).json()
        assert (task["outcome"], task["type"]) == ("train", "translation")
        found = client.post(PREDICTIONS, json=asked).json()
        assert found["task"] == "trained"
        assert [path.name for path in (tmp_path / "registry/translation").iterdir()] == ["v1"]
        again = client.post(PREDICTIONS, json=asked).json()
        assert again["task"] == "hit"
        assert again["step_time_s"] == pytest.approx(found["step_time_s"], rel=1e-9)
    finally:
        client.__exit__(None, None, None)
