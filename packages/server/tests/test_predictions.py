"""Predictions over HTTP are those of the library; wrong calls get the command line's words as problems."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from precision_time import PrecisionTimeError, Request, predict_time
from precision_time.barrier import data_only
from precision_time.errors import ConfigError
from precision_time.predict.api import predict
from precision_time.request.schema import MOVED
from precision_time_server.answered import Answered
from precision_time_server.app import create_app
from precision_time_server.settings import Settings

JOB = {
    "model": "resnet50",
    "device": "A100-SXM4-80GB",
    "gpus": 8,
    "precision": "fp16-mixed",
    "batch_size": 256,
}


def test_a_prediction_is_the_library_s(client: TestClient) -> None:
    answer = client.post("/v1/predictions", json=JOB)
    assert answer.status_code == 200
    found, expected = answer.json(), json.loads(json.dumps(predict_time(**JOB).to_dict()))
    assert found["request"] == JOB
    assert found["step_time_s"] == pytest.approx(expected["step_time_s"], rel=1e-9)
    assert sum(found["terms"].values()) == pytest.approx(found["step_time_s"], rel=1e-12)
    assert found.keys() == expected.keys()


def test_why_says_what_matters(client: TestClient) -> None:
    found = client.post("/v1/predictions?why=true", json={"model": "bert-base", "gpus": 8}).json()["why"]
    assert found["matters"]
    assert "bert-base" in found["page"]


def test_many_answers_come_in_order_and_a_bad_job_stops_no_other(client: TestClient) -> None:
    jobs = [{"gpus": 1}, {"gpus": 0}, {"gpus": 4}, {"model": "resnet51x"}]
    answer = client.post("/v1/predictions/batch", json={"shared": JOB, "jobs": jobs})
    found = answer.json()["answers"]
    assert [next(iter(each)) for each in found] == ["prediction", "problem", "prediction", "problem"]
    assert [each["prediction"]["gpus"] for each in found if "prediction" in each] == [1, 4]
    assert "resnet51x" in found[3]["problem"]["detail"]


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "resnet50", "precision": "fp17"},
        {"model": "resnet50", "gpu": 8},
        {"model": "no-such-model-at-all"},
        {"model": "resnet50", "gpus": -1},
        {"model": "llama3-8b", "tp": 3, "gpus": 8},
        {},
    ],
)
def test_a_mistake_is_said_as_on_the_command_line(client: TestClient, fields: dict[str, object]) -> None:
    answer = client.post("/v1/predictions", json=fields)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    with pytest.raises(PrecisionTimeError) as error:
        Request.of(fields).resolve(named_only=True)
    assert problem["detail"] == " ".join(str(error.value).split())
    assert problem["type"] == f"urn:precision-time:{type(error.value).__name__}"


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"model": "json:loads"}, "code or a file"),
        ({"model": "/etc/passwd.json"}, "code or a file"),
        ({"model": "net.py"}, "code or a file"),
        ({"model": "model.pt2"}, "code or a file"),
        ({"model": ["resnet50"]}, "no model"),
        ({"model": "distill", "teacher": "os:system", "method": "distill"}, ""),
        ({**JOB, "precision": "/etc/policy.yaml"}, "names no files"),
        ({**JOB, "custom": "/etc/passwd"}, "names no files"),
        ({**JOB, "calibration": "/etc/passwd"}, "names no files"),
        ({**JOB, "predictor": "/tmp"}, "names no files"),
        ({**JOB, "trust": True}, "names no files"),
        ({**JOB, "loss": "os:system"}, "names no files"),
        ({**JOB, "anchors": [{"custom": "/etc/passwd", "step_time_s": 1}]}, "names no files"),
        ({**JOB, "anchors": ["custom=/etc/passwd,step_time_s=1"]}, "objects of fields"),
        ({**JOB, "anchors": "custom=/etc/passwd,step_time_s=1"}, "objects of fields"),
        ({**JOB, "anchors": {"precision": "/etc/policy.yaml", "step_time_s": 1}}, "names no files"),
        ({**JOB, "anchors": 5}, "objects of fields"),
        ({**JOB, "anchors": [{"model": "os:system", "step_time_s": 0.2}]}, "code or a file"),
        ({**JOB, "cluster": "nowhere"}, "no cluster"),
        ({**JOB, "model": "uploads/0123"}, "no model"),
        ({**JOB, "num_devices": 4}, "given twice"),
    ],
)
def test_nothing_of_a_call_is_a_file_or_code(
    client: TestClient, fields: dict[str, object], said: str
) -> None:
    answer = client.post("/v1/predictions", json=fields)
    assert 400 <= answer.status_code < 500
    assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b'{"model": NaN}', 400),
        (b'{"model": "resnet50", "batch_size": 1e999}', 400),
        (b'{"model": "resnet50", "model": "bert-base"}', 400),
        (b'{"a":' * 40 + b"1" + b"}" * 40, 400),
        (b"[" * 100_000, 400),
        (b'{"model": "\\ud800\xc3\xa9"}', 400),
        (b'{"model": "\xff"}', 400),
        (b'{"model": "resnet50", "gpus": ' + b"9" * 5000 + b"}", 400),
        (b'{"model": "' + b"a" * 2**20 + b'"}', 413),
    ],
)
def test_a_body_that_is_no_job_is_refused(client: TestClient, body: bytes, status: int) -> None:
    answer = client.post("/v1/predictions", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == status
    assert answer.json()["status"] == status
    assert "To fix" in answer.json()["detail"]


def test_other_media_types_and_routes_are_problems_too(client: TestClient) -> None:
    assert (
        client.post("/v1/predictions", content=b"a,b", headers={"content-type": "text/csv"}).status_code
        == 415
    )
    for answer in (client.get("/v1/nothing"), client.get("/v1/predictions")):
        assert answer.status_code in (404, 405)
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_call_needs_a_token_where_there_are_some() -> None:
    with TestClient(create_app(Settings.of({"tokens": "one,two", "store": "sqlite://"}))) as client:
        assert client.get("/health/live").status_code == 200
        assert client.post("/v1/predictions", json=JOB).status_code == 401
        for token, status in (("one", 200), ("two", 200), ("three", 401), ("", 401)):
            answer = client.post("/v1/predictions", json=JOB, headers={"Authorization": f"Bearer {token}"})
            assert answer.status_code == status
        assert client.get("/metrics").status_code == 401


def test_figures_count_calls(client: TestClient) -> None:
    def count(figure: str, label: str = "") -> float:
        lines = client.get("/metrics").text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith(figure) and label in line)

    made, answered = ("precision_time_predictions_total",), ("precision_time_calls_total", 'method="POST"')
    before = count(*made), count(*answered)
    client.post("/v1/predictions", json=JOB)
    client.post("/v1/predictions/batch", json={"jobs": [JOB, JOB]})
    assert (count(*made), count(*answered)) == (before[0] + 3, before[1] + 2)


def test_settings_travel_to_the_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    stated = Settings.of(
        {"tokens": "a,b", "store": "postgresql+psycopg://u:p@h/d", "cors_origins": "https://x"}
    )
    assert "p@h" not in repr(stated)
    monkeypatch.setenv("_PRECISION_TIME_SERVER_SETTINGS", stated.to_environment())
    assert Settings.from_environment() == stated


def test_a_job_that_does_not_fit_comes_with_what_to_ask_for(client: TestClient) -> None:
    job = {"model": "llama3-8b", "device": "V100-SXM2-32GB", "gpus": 8, "batch_size": 4, "zero_stage": 0}
    found = client.post("/v1/predictions", json=job).json()
    assert not found["fits"]
    said = [item["text"] for item in found["diagnostics"]]
    assert said[-1] == predict_time(**job).diagnostics[-1].text
    assert said[-1].startswith("To fit:")


def test_a_field_that_the_routes_forget_still_reads_no_file(tmp_path: Path) -> None:
    policy, hardware = tmp_path / "policy.yaml", tmp_path / "cluster.yaml"
    for file in (policy, hardware):
        file.write_text("{}", encoding="utf-8")
    for fields in ({"precision": str(policy)}, {"custom": hardware}, {"calibration": str(hardware)}):
        with data_only(), pytest.raises(ConfigError, match="names no files"):
            predict(Request.of({**JOB, **fields}))


def test_the_same_question_gets_the_same_bytes_but_not_for_a_cluster_that_changes(client: TestClient) -> None:
    asked = {**JOB, "batch_size": 77}
    first, again = (client.post("/v1/predictions", json=asked).content for _ in range(2))
    assert first == again
    client.put("/v1/clusters/moving", json={"fields": {"device": "A100-SXM4-80GB"}})
    job = {"model": "resnet50", "cluster": "moving", "batch_size": 64}
    before = client.post("/v1/predictions", json=job).json()["step_time_s"]
    client.put("/v1/clusters/moving", json={"fields": {"device": "V100-SXM2-32GB"}})
    assert client.post("/v1/predictions", json=job).json()["step_time_s"] > before


def test_remembered_answers_are_bounded() -> None:
    known = Answered(most_bytes=1000)
    for number in range(100):
        known.keep(str(number), b"x" * 90)
        known.get("0")
    assert known.get("0") is not None
    assert sum(known.get(str(number)) is not None for number in range(100)) == 10


@pytest.mark.parametrize(
    ("name", "value", "same"),
    [
        ("micro_batch_size", 2, {"batch_size": 2}),
        ("dp_replicate", 8, {"dp_shard": 8, "zero_stage": 3, "batch_size": 1}),
        ("dp_replicate", 64, {"zero_stage": 0, "batch_size": 1}),
    ],
)
def test_words_of_other_frameworks_answer_without_a_remark(
    client: TestClient, name: str, value: int, same: dict[str, int]
) -> None:
    job = {"model": "gpt2", "device": "H100-SXM5-80GB", "gpus": 64}
    beside = {} if name == "micro_batch_size" else {"batch_size": 1}
    theirs, ours = (
        client.post("/v1/predictions", json={**job, **each}) for each in ({**beside, name: value}, same)
    )
    assert (theirs.status_code, ours.status_code) == (200, 200)
    assert theirs.json()["step_time_s"] == ours.json()["step_time_s"]
    assert " is called " not in theirs.text


@pytest.mark.parametrize("name", MOVED)
def test_names_of_the_release_before_answer_with_one_remark(client: TestClient, name: str) -> None:
    value, beside = {
        "virtual_pp": (2, {"pp": 4, "num_microbatches": 8}),
        "expert_tp": (1, {"ep": 4}),
        "expert_capacity": (1.25, {"ep": 4}),
        "context_method": ("all-gather", {"cp": 2}),
        "shard_size": (8, {"zero_stage": 3}),
        "checkpointing": ("full", {}),
    }.get(name, (2, {}))
    job = {"model": "mixtral-8x7b", "device": "H100-SXM5-80GB", "gpus": 64, "batch_size": 1, **beside}
    old, new = (client.post("/v1/predictions", json={**job, key: value}) for key in (name, MOVED[name]))
    assert (old.status_code, new.status_code) == (200, 200)
    assert old.json()["step_time_s"] == new.json()["step_time_s"]
    note = f"{name} is called {MOVED[name]} now; the old name goes with the next release."
    assert note in old.text and " is called " not in new.text
