"""Named clusters: what they say of their jobs, their calibrations as files and versions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from starlette.testclient import TestClient

from precision_time import predict_time
from precision_time.learn.calibration.calibration import Calibration, checksum
from precision_time_server.app import create_app
from precision_time_server.defaults import joined
from precision_time_server.settings import Settings

FIELDS = {"device": "A100-SXM4-80GB", "gpus": 8, "network": "400g-ib", "stack": "megatron"}
JOB = {"model": "resnet50", "batch_size": 64, "precision": "bf16-mixed"}
ANCHOR: dict[str, Any] = {
    "model": "resnet50",
    "batch_size": 32,
    "precision": "bf16-mixed",
    "gpus": 1,
    "step_time_s": 0.06,
}
HARDWARE = {
    "device": {"LabGPU": {"base": "A100-SXM4-80GB", "memory_gb_per_s": 1000, "tflops": {"bf16": 200}}},
    "link": {"labnet": {"gbit_per_s_per_node": 50, "kind": "ethernet-25g"}},
    "node": {"labnode": {"device": "LabGPU", "devices": 2, "intra_node": "pcie4", "inter_node": "labnet"}},
}


@pytest.fixture
def put(client: TestClient) -> Iterator[Any]:
    """Makes clusters that are gone afterwards."""
    made: list[str] = []

    def put(name: str, **document: Any) -> dict[str, Any]:
        answer = client.put(f"/v1/clusters/{name}", json=document)
        assert answer.status_code in (200, 201), answer.text
        made.append(name)
        found: dict[str, Any] = answer.json()
        return found

    yield put
    for name in made:
        client.delete(f"/v1/clusters/{name}")


def asked(client: TestClient, **fields: Any) -> dict[str, Any]:
    answer = client.post("/v1/predictions", json=fields)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_defaults_are_those_of_every_job(client: TestClient, put: Any) -> None:
    assert put("pod", fields=FIELDS, note="ours") == {
        "name": "pod", "fields": FIELDS, "anchors": [], "hardware": None, "note": "ours",
        "measurements": 0, "active_calibration": None,
    }  # fmt: skip
    assert client.get("/v1/clusters/pod").json()["fields"] == FIELDS
    assert [each["name"] for each in client.get("/v1/clusters").json()["clusters"]] == ["pod"]
    for own in ({}, {"gpus": 16}, {"device": "H100-SXM5-80GB"}, {"network": "100g-tcp", "gpus": 16}):
        fields = {**FIELDS, **own}
        if "device" in own:
            del fields["network"]  # it is that of the other device's hosts
        found = asked(client, **JOB, **own, cluster="pod")
        assert found["step_time_s"] == predict_time(**JOB, **fields).step_time_s
        assert found["request"]["cluster"] == "pod"
    assert client.delete("/v1/clusters/pod").status_code == 204
    assert client.delete("/v1/clusters/pod").status_code == 404
    assert client.post("/v1/predictions", json={**JOB, "cluster": "pod"}).status_code == 404


def test_what_a_job_says_in_other_words_takes_the_place_of_a_default() -> None:
    defaults = {"device": "A100", "node_type": "DGX-A100", "batch_size": 8, "epochs": 3, "tp": 4, "gpus": 8}
    assert joined(defaults, {"global_batch_size": 64, "steps": 10, "layout": {"tp": 2}, "loss": None}) == {
        "device": "A100", "node_type": "DGX-A100", "gpus": 8, "tp": 2, "global_batch_size": 64, "steps": 10,
    }  # fmt: skip
    assert "node_type" not in joined(defaults, {"device": "H100"})
    assert joined(defaults, {"device": "A100"}) == defaults  # the same is no change


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({"field": {}}, "unknown key"),
        ({"fields": []}, "objects"),
        ({"anchors": {}}, "a list of objects"),
        ({"note": "x" * 2001}, "at most 2000"),
        ({"fields": {"model": "resnet50"}}, "no default"),
        ({"fields": {"cluster": "pod"}}, "no default"),
        ({"fields": {"device": "A100", "layout": {"tp": 2}}}, "stand beside"),
        ({"fields": {"device": "no-such"}}, "Unknown device"),
        ({"fields": {"devcie": "A100"}}, "Did you mean 'device'|Did you mean device"),
        ({"fields": {"custom": "/etc/hardware.toml"}}, "names no files"),
        ({"fields": {"calibration": "/etc/x.json"}}, "names no files"),
        ({"fields": {"precision": "policy.yaml"}}, "is a file"),
        ({"fields": {"gpus": 0}}, "at least 1"),
        ({"hardware": {"device": {"Lab": {"base": "A100", "tflops": {"bf16": -1}}}}}, "breaks its rules"),
        ({"hardware": {"devices": {}}}, "breaks its rules"),
        ({"hardware": {"device": {"Lab": {"memory_gib": 8}}}}, "lacks"),
        ({"anchors": [{"gpus": 1, "step_time_s": 0.1}]}, "names no model"),
        ({"anchors": [{"model": "resnet50", "gpus": 1}]}, "must state one of"),
        ({"anchors": [{**ANCHOR, "step_time_s": 1e-9}]}, "faster than the roofline"),
        ({"anchors": [ANCHOR, {**ANCHOR, "step_time_s": 0.6}]}, "the same job"),
        ({"anchors": [{**ANCHOR, "model": "a.py"}]}, "code or a file"),
        ({"anchors": [{**ANCHOR, "custom": "/etc/x.toml"}]}, "names no files"),
        ({"anchors": [ANCHOR] * 101}, "at most 64"),
    ],
)
def test_documents_that_are_refused(client: TestClient, document: dict[str, Any], text: str) -> None:
    answer = client.put("/v1/clusters/broken", json=document)
    assert answer.status_code == 422, answer.text
    assert any(part in answer.json()["detail"] for part in text.split("|")), answer.json()["detail"]
    assert client.get("/v1/clusters/broken").status_code == 404


@pytest.mark.parametrize("name", ["..", ".hidden", "a b", "x" * 65, "é", "a%2Fb"])
def test_names_that_are_none(client: TestClient, name: str) -> None:
    assert client.put(f"/v1/clusters/{name}", json={}).status_code in (404, 405, 422)
    assert client.get("/v1/clusters").json() == {"clusters": []}


def test_own_hardware_is_as_in_a_file(client: TestClient, put: Any, tmp_path: Path) -> None:
    put("lab", fields={"node_type": "labnode", "gpus": 4}, hardware=HARDWARE)
    file = tmp_path / "lab.yaml"
    file.write_text(yaml.safe_dump(HARDWARE))
    expected = predict_time(**JOB, node_type="labnode", gpus=4, custom=file)
    found = asked(client, **JOB, cluster="lab")
    assert (found["device"], found["nodes"]) == ("LabGPU", 2)
    assert found["step_time_s"] == expected.step_time_s
    assert asked(client, **JOB, gpus=4)["device"] != "LabGPU"


@pytest.mark.parametrize(
    ("road", "body"),
    [
        ("predictions", JOB),
        ("predictions/batch", {"jobs": [JOB]}),
        ("sweeps", {**JOB, "gpus": [1, 4]}),
        ("comparisons", {"model": "resnet50", "precisions": ["tf32", "bf16-mixed"]}),
        ("layouts", {"model": "resnet50", "gpus": 4}),
        ("runs", {**JOB, "epochs": 1}),
        ("timelines", JOB),
        ("plans", {"model": "resnet50", "epochs": 1, "devices": "LabGPU", "max_gpus": 4}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_call_knows_own_hardware(client: TestClient, put: Any, road: str, body: dict[str, Any]) -> None:
    put("lab", fields={"node_type": "labnode"}, hardware=HARDWARE)
    jobs = [{**job, "cluster": "lab"} for job in body.get("jobs", ())]
    named = {"jobs": jobs} if jobs else {**body, "cluster": "lab"}
    answer = client.post(f"/v1/{road}", json=named)
    assert answer.status_code == 200, answer.text
    assert "LabGPU" in answer.text and "Unknown device" not in answer.text


def test_anchors_count_for_every_job_whatever_it_asks(client: TestClient, put: Any) -> None:
    put("plain", fields=FIELDS)
    put("slow", fields=FIELDS, anchors=[ANCHOR])
    alone = predict_time(**{**FIELDS, **ANCHOR, "step_time_s": None}).step_time_s
    assert ANCHOR["step_time_s"] > 1.5 * alone
    factors = [
        asked(client, **JOB, **own, cluster="slow")["step_time_s"]
        / asked(client, **JOB, **own, cluster="plain")["step_time_s"]
        for own in ({}, {"zero_stage": 3}, {"optimizer": "adamw"})
    ]
    # The anchor takes nothing of the job: as anchors of a request it would be another one each time.
    assert all(1.2 < factor < 2.0 for factor in factors)
    # Anchors of the job come on top, and methods do not mind those of the cluster.
    exact = {**JOB, "step_time_s": 0.2}
    one = asked(client, **JOB, cluster="slow")["step_time_s"]
    assert 1.3 * one < asked(client, **JOB, cluster="slow", anchors=[exact])["step_time_s"] < 0.2
    asked(client, model="gpt2", method="dpo", batch_size=4, cluster="slow")


def test_a_search_for_layouts_says_that_it_takes_no_measured_steps(client: TestClient, put: Any) -> None:
    for name, anchors, count in (("plain", [], 0), ("slow", [ANCHOR], 1)):
        put(name, fields={"device": "A100-SXM4-80GB", "gpus": 2}, anchors=anchors)
        job = {"model": "resnet50", "global_batch_size": 64, "cluster": name, "top": 1}
        answer = client.post("/v1/layouts", json=job)
        assert answer.status_code == 200, answer.text
        [best] = answer.json()["ranked"]
        said = [each["text"] for each in best["prediction"]["diagnostics"] if each["code"] == "calibration"]
        assert len(said) == count and all("not used in a search" in text for text in said)


def test_anchors_in_a_text_name_no_file(client: TestClient, tmp_path: Path) -> None:
    file = tmp_path / "lab.yaml"
    file.write_text(yaml.safe_dump(HARDWARE))
    for text in (f"custom={file},node_type=labnode,step_time_s=0.1", "precision=policy.yaml,step_time_s=0.1"):
        for anchors in (text, [text]):
            answer = client.post("/v1/predictions", json={**JOB, "anchors": anchors})
            assert answer.status_code == 422 and "objects of fields" in answer.json()["detail"]


def test_many_jobs_of_a_cluster_are_answered_as_one_by_one(client: TestClient, put: Any) -> None:
    put("slow", fields=FIELDS, anchors=[ANCHOR])
    jobs = [{**JOB, "batch_size": batch} for batch in (8, 16, 24, 40)]
    together = client.post("/v1/predictions/batch", json={"jobs": jobs, "shared": {"cluster": "slow"}}).json()
    for job, answer in zip(jobs, together["answers"], strict=True):
        one = asked(client, **job, cluster="slow")
        assert answer["prediction"]["step_time_s"] == pytest.approx(one["step_time_s"], rel=1e-12)


@pytest.fixture
def versions(client: TestClient, put: Any) -> str:
    """The path of calibrations of a cluster whose jobs take 1.4 times as long, none of them active."""
    put("pod", fields=FIELDS)
    rows = []
    for batch in (16, 24, 32, 48, 64, 96):
        job = {**JOB, "batch_size": batch}
        rows.append({**job, "step_time_s": 1.4 * asked(client, **job, cluster="pod")["step_time_s"]})
    client.post("/v1/clusters/pod/measurements", json={"measurements": rows}).raise_for_status()
    path = "/v1/clusters/pod/calibrations"
    assert client.post(path, json={}).json()["calibration"]["active"] is False
    return path


def test_files_go_both_ways(client: TestClient, put: Any, versions: str, tmp_path: Path) -> None:
    [version] = client.get(versions).json()["calibrations"]
    assert version["card"]["after_mape_percent"] < 5.0 < version["card"]["before_mape_percent"]
    answer = client.get(f"{versions}/{version['id']}")
    file = tmp_path / "pod.json"
    file.write_bytes(answer.content)
    assert len(Calibration.load(file).places) == 6
    expected = predict_time(**JOB, **FIELDS, calibration=file).step_time_s
    usual = predict_time(**JOB, **FIELDS).step_time_s
    assert 1.3 < expected / usual < 1.5

    put("other", fields=FIELDS)
    path = "/v1/clusters/other/calibrations"
    kept = client.post(
        path,
        content=file.read_bytes(),
        headers={"content-type": "application/json"},
        params={"activate": "always"},
    )
    assert kept.status_code == 201 and kept.json()["calibration"]["active"], kept.text
    assert asked(client, **JOB, cluster="other")["step_time_s"] == pytest.approx(expected, rel=1e-12)
    assert asked(client, **JOB, cluster="pod")["step_time_s"] == usual
    refused = client.post(
        path,
        content=file.read_bytes(),
        headers={"content-type": "application/json"},
        params={"activate": "if-better"},
    )
    assert refused.status_code == 422 and "has not seen" in refused.json()["detail"]

    body = json.loads(file.read_text())
    for change, text in (
        ({"schema_version": 2}, "version 2"),
        ({"log_ratios": [0.0] * 6}, "changed after it was written"),
        ({"format": "other"}, "The rule"),
        ({"process": {**body["process"], "noise_sd": -1.0}, "sha256": None}, "negative"),
        ({"log_ratios": [[1]], "sha256": None}, "do not fit"),
        ({"points": {name: [] for name in body["points"]}, "sha256": None}, "do not fit"),
        ({"points": None, "sha256": None}, "not a readable"),
        ({"log_ratios": [10**400] * 6, "sha256": None}, "not a readable"),
        ({"log_ratios": [50.0] * 6, "sha256": None}, "no measured step leads to"),
        ({"card": {"before_mape_percent": [1], "after_mape_percent": 2}, "sha256": None}, "no number"),
    ):
        changed: dict[str, Any] = {**body, **change}
        if changed["sha256"] is None:
            changed["sha256"] = checksum(changed)
        answer = client.post(path, json=changed)
        assert answer.status_code == 422 and text in answer.json()["detail"], (change, answer.text)
    assert len(client.get(path).json()["calibrations"]) == 1


def test_two_services_on_one_store(tmp_path: Path) -> None:
    settings = Settings.of({"store": f"sqlite:///{tmp_path / 'shared.sqlite'}"})
    with TestClient(create_app(settings)) as one, TestClient(create_app(settings)) as other:
        one.put("/v1/clusters/pod", json={"fields": FIELDS}).raise_for_status()
        usual = asked(other, **JOB, cluster="pod")["step_time_s"]
        for factor in (1.0, 1.3):  # the other one has the first document in its memory by then
            anchor = {**JOB, "step_time_s": factor * usual}
            one.put("/v1/clusters/pod", json={"fields": FIELDS, "anchors": [anchor]}).raise_for_status()
            found = asked(other, **JOB, cluster="pod")["step_time_s"]
            assert found == asked(one, **JOB, cluster="pod")["step_time_s"]
            assert found / usual == pytest.approx(factor, rel=0.1)


def test_versions_that_are_not_there(client: TestClient, versions: str) -> None:
    for body, status in (({"id": 10**9}, 404), ({"id": "1"}, 422), ({"id": True}, 422), ({}, 422)):
        assert client.put(f"{versions}/active", json=body).status_code == status, body
    assert client.get(f"{versions}/{10**9}").status_code == 404
    for path in ("/v1/clusters/nobody/calibrations", "/v1/clusters/nobody/calibrations/1"):
        assert client.get(path).status_code == 404
    assert client.put("/v1/clusters/nobody/calibrations/active", json={"id": None}).status_code == 404
    assert client.post("/v1/clusters/nobody/calibrations", json={}).status_code == 404


def test_other_hardware_under_an_active_calibration_is_said(
    client: TestClient, put: Any, versions: str
) -> None:
    [version] = client.get(versions).json()["calibrations"]
    client.put(f"{versions}/active", json={"id": version["id"]}).raise_for_status()
    assert "warnings" not in put("pod", fields=FIELDS)
    [warning] = put("pod", fields=FIELDS, hardware=HARDWARE)["warnings"]
    assert f"Calibration {version['id']} is active" in warning


def test_nothing_to_learn_from(client: TestClient, put: Any) -> None:
    put("empty", fields=FIELDS)
    answer = client.post("/v1/clusters/empty/calibrations", json={})
    assert answer.status_code == 422 and "no measurements" in answer.json()["detail"]
    unknown = {"model": "nobody-knows-it", "step_time_s": 1.0}
    found = client.post("/v1/clusters/empty/measurements", json={"measurements": [unknown]}).json()
    assert found["stored"] == 1 and "can be priced" in found["problem"]["detail"]
