"""What one body may cost: read in one pass, every list with an end, no thread lost to it."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time.errors import ConfigError
from precision_time.predict import anchors as anchors_module
from precision_time.predict.anchors import Anchor
from precision_time.request.request import Request
from precision_time_server import batching, bodies, uploads
from precision_time_server.app import create_app
from precision_time_server.problems import BadRequestError
from precision_time_server.settings import Settings

JSON = {"content-type": "application/json"}
PREDICT = "/v1/predictions"


class Name(str):
    """Counts how often it is compared."""

    __slots__ = ()
    compared = 0
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        Name.compared += 1
        return str.__eq__(self, other)


def test_a_key_that_comes_twice_is_found_in_one_pass() -> None:
    count = 3000
    pairs = [(Name(f"k{n}"), n) for n in range(count)] + [(Name(f"k{count - 1}"), 0)]
    Name.compared = 0
    with pytest.raises(BadRequestError, match="k2999"):
        bodies._unique(pairs)
    assert Name.compared < 10 * count


@pytest.mark.parametrize(
    ("path", "headers"),
    [(PREDICT, JSON), ("/v1/models?kind=hf-config", {"content-type": "application/octet-stream"})],
)
def test_large_bodies_are_read_beside_the_event_loop(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, path: str, headers: dict[str, str]
) -> None:
    read: list[bool] = []
    loop: list[threading.Thread] = []

    async def body_of(request: Any, *, most_bytes: int) -> bytes:
        loop.append(threading.current_thread())
        return await found_body(request, most_bytes=most_bytes)

    def parsed(text: bytes | str) -> Any:
        read.append(threading.current_thread() not in loop)
        return found_parsed(text)

    found_body, found_parsed = bodies.body_of, bodies.parsed
    monkeypatch.setattr(bodies, "body_of", body_of)
    monkeypatch.setattr(bodies, "parsed", parsed)
    monkeypatch.setattr(uploads, "parsed", parsed)
    twice = json.dumps({f"k{n}": 0 for n in range(60_000)})[:-1] + ', "k59999": 1}'
    answer = client.post(path, content=twice, headers=headers)
    assert (answer.status_code, read) == (400, [True])
    assert "'k59999' twice" in answer.json()["detail"]


def test_levels_are_bounded_everywhere(client: TestClient) -> None:
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    assert client.post(PREDICT, content=deep, headers=JSON).status_code == 400
    kind = {"content-type": "application/octet-stream"}
    assert client.post("/v1/models?kind=hf-config", content=deep, headers=kind).status_code == 400
    for text in ("[" * 5000, '{"a":' * 1500 + "1" + "}" * 1500):
        rows = {"measurements": [{"model": "resnet50", "step_time_s": 0.3, "precision": text}]}
        client.put("/v1/clusters/deep", json={"fields": {"device": "A100"}})
        assert client.post("/v1/clusters/deep/measurements", json=rows).status_code == 422
        job = {"metadata": {"annotations": {"precision-time.dev/job": text}}}
        review = {
            "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "request": {"uid": "1", "operation": "CREATE",
                        "object": {"apiVersion": "batch/v1", "kind": "Job", **job}},
        }  # fmt: skip
        assert client.post("/v1/kubernetes/admission", json=review).status_code == 200
        asked = {"model": "resnet50", "anchors": [{"batch_size": text, "step_time_s": 0.1}]}
        assert client.post(PREDICT, json=asked).status_code == 422


@pytest.mark.parametrize(
    "fields",
    [
        {"network": "1" * 200_000},
        {"device": "8x" * 100_000 + "A100"},
        {"device": ["A" * 200_000]},
        {"batch_size": "9" * 9000 + "k"},
        {"batch_size": "1" * 200_000 + "k"},
        {f"k{n}": 0 for n in range(60_000)},
        {"layout": {f"k{n}": 0 for n in range(60_000)}},
        {"anchors": [{"step_time_s": 0.1, "device": "8x" * 100_000}]},
        {"anchors": [{"step_time_s": 0.1}] * 65},
    ],
    ids=["network", "device", "list", "digits", "number", "fields", "layout", "anchor", "anchors"],
)
def test_what_no_job_says_is_refused_before_it_is_understood(
    client: TestClient, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("the job was resolved")

    monkeypatch.setattr(batching, "predict_each", never)
    answer = client.post(PREDICT, json={"model": "resnet50", **fields})
    assert answer.status_code == 422
    assert len(answer.content) < 6000


def test_numbers_too_long_to_be_shown_are_errors_of_ours() -> None:
    for text in ("9" * 9000 + "k", "1" * 1_100_000 + "k"):
        with pytest.raises(ConfigError, match="batch_size"):
            Request.of({"model": "resnet50", "batch_size": text})


def arrays(schema: Any) -> Iterator[dict[str, Any]]:
    """All lists in a schema."""
    if isinstance(schema, dict):
        if schema.get("type") == "array":
            yield schema
        for name, part in schema.items():
            if name not in ("example", "examples"):
                yield from arrays(part)
    elif isinstance(schema, list):
        for part in schema:
            yield from arrays(part)


def test_every_list_of_what_is_asked_has_an_end(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 's.sqlite'}"
    document = create_app(Settings.of({"store": store, "max_jobs": 77})).openapi()
    operations = [each for path in document["paths"].values() for each in path.values()]
    asked = [*(each.get("requestBody") for each in operations), document["components"]["schemas"]["Job"]]
    found = list(arrays(asked))
    assert len(found) > 100
    assert all(each["maxItems"] in (50, 64, 77, 300, 1000) for each in found)
    job = document["components"]["schemas"]["Job"]["properties"]
    assert job["anchors"]["anyOf"][0]["maxItems"] == 64
    assert job["gpus"]["anyOf"][2]["maxItems"] == 77
    cluster = document["paths"]["/v1/clusters/{name}"]["put"]["requestBody"]["content"]["application/json"]
    assert cluster["schema"]["properties"]["anchors"]["maxItems"] == 64


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/predictions/batch", {"jobs": [{"model": "resnet50"}] * 1001}),
        ("/v1/runs", {"model": "resnet50", "epochs": 1, "phases": [{"steps": 1}] * 1001}),
        ("/v1/sweeps", {"model": "resnet50", "gpus": [1] * 1001}),
        ("/v1/comparisons", {"model": "resnet50", "precisions": ["fp32"] * 1001}),
        ("/v1/predictddl/predictions", {"requests": [{"model": "resnet50"}] * 1001}),
    ],
)
def test_longer_lists_are_too_much(client: TestClient, path: str, body: dict[str, Any]) -> None:
    answer = client.post(path, json=body)
    assert answer.status_code == 413, answer.text[:300]
    assert "1,001" in answer.json()["detail"] or "1001" in answer.json()["detail"]


def test_anchors_of_a_cluster_are_as_many(client: TestClient) -> None:
    some = {"model": "resnet50", "gpus": 8, "step_time_s": 0.3}
    body = {"fields": {"device": "A100", "gpus": 8}, "anchors": [some] * 65}
    answer = client.put("/v1/clusters/many", json=body)
    assert (answer.status_code, "64" in answer.json()["detail"]) == (422, True)


def test_anchors_are_compared_with_those_of_their_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    some = [
        {"batch_size": 1 + n % 16, "gpus": 2 ** (n // 16), "step_time_s": 1.0 + n % 16} for n in range(64)
    ]
    looked: list[object] = []
    found = anchors_module._but_for_the_batch
    monkeypatch.setattr(anchors_module, "_but_for_the_batch", lambda job: looked.append(job) or found(job))
    request = Request.of({"model": "resnet50", "device": "A100", "gpus": 8})
    read = [anchors_module._read(request, each) for each in some]
    looked.clear()
    anchors_module._check_agreement(read)
    assert len(looked) == len(some)


def test_anchors_that_contradict_are_found_as_by_all_pairs() -> None:
    request = Request.of({"model": "resnet50", "device": "A100", "gpus": 8})
    jobs = [
        anchors_module._read(request, {"batch_size": size, "step_time_s": 1.0}).job for size in (8, 16, 32)
    ]
    draw = random.Random(7)

    def contradict(some: Iterable[Anchor]) -> bool:
        most = 2.718281828459045 ** (5.0 * 2.0**0.5 * 0.05)
        for one, other in combinations(some, 2):
            small, large = sorted((one, other), key=lambda each: each.job.layout.micro_batch_size)
            ratio = large.measured_s / small.measured_s
            same = large.job.layout.micro_batch_size == small.job.layout.micro_batch_size
            if ratio < 1.0 / most or (same and ratio > most):
                return True
        return False

    outcomes = set()
    for _ in range(300):
        some = [
            Anchor(said=str(n), job=replace(draw.choice(jobs)), measured_s=draw.uniform(1.0, 1.6))
            for n in range(draw.randint(2, 6))
        ]
        try:
            anchors_module._check_agreement(some)
            refused = False
        except ConfigError:
            refused = True
        outcomes.add(refused)
        assert refused == contradict(some)
    assert outcomes == {True, False}


def test_a_thread_that_does_not_come_back_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = threading.Event()
    found = batching.predict_each

    def stuck(requests: Sequence[Any], **options: Any) -> Any:
        if any(request.model == "vgg16" for request in requests):
            late.wait(60.0)
        return found(requests, **options)

    monkeypatch.setattr(batching, "predict_each", stuck)
    store = f"sqlite:///{tmp_path / 's.sqlite'}"
    with TestClient(create_app(Settings.of({"store": store, "time_limit_s": 1.0}))) as client:
        try:
            for path, body in (
                (PREDICT, {"model": "vgg16"}),
                ("/v1/predictions/batch", {"jobs": [{"model": "vgg16"}]}),
            ):
                assert client.post(path, json=body).status_code == 504
                for _ in range(2):
                    assert client.post(PREDICT, json={"model": "resnet50", "gpus": 8}).status_code == 200
        finally:
            late.set()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/sweeps", {"model": "resnet50", "batch_size": [*range(1, 41)]}),
        (
            "/v1/predictions/batch",
            {"shared": {"model": "resnet50"}, "jobs": [{"batch_size": n} for n in range(1, 41)]},
        ),
    ],
)
def test_other_calls_come_between_the_jobs_of_one(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, path: str, body: dict[str, Any]
) -> None:
    """Jobs are read on the event loop: 1,000 with 64 anchors each would hold it for half a second."""
    found = Request.of
    free: list[bool] = [True]

    def read(fields: Any) -> Request:
        assert free[0], "no other call was let in since the last job"
        free[0] = False
        asyncio.get_running_loop().call_soon(free.__setitem__, 0, True)
        return found(fields)

    monkeypatch.setattr(Request, "of", read)
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text[:300]


@pytest.mark.parametrize("stated", [True, False])
def test_a_configuration_is_at_most_a_mebibyte(client: TestClient, stated: bool) -> None:
    config = {"model_type": "llama", "id2label": {str(n): "x" * 100 for n in range(11_000)}}
    text = json.dumps(config).encode()
    assert len(text) > 2**20
    parts = iter([text[:1000], text[1000:]])
    kind = {"content-type": "application/octet-stream"}
    answer = client.post("/v1/models?kind=hf-config", content=text if stated else parts, headers=kind)
    assert (answer.status_code, "1,048,576" in answer.json()["detail"]) == (413, True)
