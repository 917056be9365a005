"""Routes answer what the library answers, within their limits, and refuse what they cannot take."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time import compare_precisions, find_layouts, plan, predict_run, predict_time, sweep
from precision_time_server.app import create_app
from precision_time_server.settings import Settings

JOB: dict[str, Any] = {
    "model": "resnet50", "device": "A100-SXM4-80GB", "gpus": 8, "precision": "fp16-mixed", "batch_size": 256,
}  # fmt: skip


def said(client: TestClient, path: str, body: dict[str, Any]) -> Any:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client: TestClient, path: str, body: dict[str, Any], status: int = 422) -> str:
    answer = client.post(path, json=body)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    detail: str = answer.json()["detail"]
    assert "To fix" in detail
    return detail


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=str))


def test_a_comparison_is_the_library_s(client: TestClient) -> None:
    job = {"model": "bert-base", "device": "V100-SXM2-16GB", "gpus": 4}
    found = said(client, "/v1/comparisons", {**job, "precisions": ["fp32", "fp16-mixed", "fp8-mixed"]})
    expected = compare_precisions(**job, precisions=["fp32", "fp16-mixed", "fp8-mixed"])
    assert [each["precision"] for each in found["predictions"]] == [each.precision for each in expected]
    for mine, theirs in zip(found["predictions"], expected, strict=True):
        assert mine["step_time_s"] == pytest.approx(theirs.step_time_s, rel=1e-9)
        assert mine["batch_size"] == theirs.batch_size
    assert [each["reason"] for each in found["skipped"]] == [each.reason for each in expected.skipped]
    assert found["skipped"][0]["request"]["precision"] == "fp8-mixed"


def test_a_sweep_is_the_library_s_here_and_in_a_process(client: TestClient) -> None:
    for gpus in ("1..4", ",".join(map(str, range(1, 61)))):
        job = {**JOB, "gpus": gpus, "precision": ["tf32", "bf16-mixed"]}
        found, expected = said(client, "/v1/sweeps", job), sweep(**job)
        steps = [each["step_time_s"] for each in found["predictions"]]
        assert steps == pytest.approx([each.step_time_s for each in expected], rel=1e-9)
        asked = [(each["request"]["gpus"], each["request"]["precision"]) for each in found["predictions"]]
        assert len(set(asked)) == len(expected) == len(steps)


def test_models_of_a_sweep_may_be_several(client: TestClient) -> None:
    config = {
        "model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8,
        "intermediate_size": 1024, "vocab_size": 1000,
    }  # fmt: skip
    found = said(client, "/v1/sweeps", {"model": ["gpt2", config], "batch_size": 1})
    assert [each["request"]["model"] for each in found["predictions"]] == ["gpt2", config]
    assert found["predictions"][0]["params"] > found["predictions"][1]["params"] > 0


def test_a_run_is_the_library_s_with_options_beside_or_below(client: TestClient) -> None:
    expected = predict_run(**JOB, epochs=90, checkpoint_interval="30m")
    beside = said(client, "/v1/runs", {**JOB, "epochs": 90, "checkpoint_interval": "30m"})
    below = said(client, "/v1/runs", {**JOB, "epochs": 90, "run": {"checkpoint_interval": "30m"}})
    assert beside["total_s"] == below["total_s"] == pytest.approx(expected.total_s, rel=1e-9)
    assert sum(beside["terms"].values()) == pytest.approx(beside["total_s"])
    assert beside["p10_s"] <= beside["p50_s"] <= beside["p90_s"]


def test_phases_of_a_run_are_limited(client: TestClient) -> None:
    job = {"model": "bert-base", "gpus": 8, "global_batch_size": 256}
    parts = [{"seq_len": 128, "steps": 900}, {"seq_len": 512, "steps": 100}]
    found = said(client, "/v1/runs", {**job, "phases": parts})
    expected = predict_run(**job, phases=parts)
    assert [each["steps"] for each in found["phases"]] == [900, 100]
    assert found["total_s"] == pytest.approx(expected.total_s, rel=1e-9)
    many = [{"seq_len": "1..5000:1", "steps": 5000}]
    assert "5,000 parts" in refused(client, "/v1/runs", {**job, "phases": many}, 413)


def test_a_plan_is_the_library_s_and_takes_prices(client: TestClient) -> None:
    asked: dict[str, Any] = {
        "model": "resnet50", "epochs": 10, "deadline": "24h", "devices": ["A100-SXM4-80GB"], "max_gpus": 8,
    }  # fmt: skip
    found = said(client, "/v1/plans", asked)
    expected = plain(plan(**asked, workers=1).to_dict())
    assert found["choices"][0]["candidate"]["usd"] == pytest.approx(
        expected["choices"][0]["candidate"]["usd"]
    )
    assert found["counts"] == expected["counts"]
    price = {"cloud": "ours", "device": "A100-SXM4-80GB", "devices_per_instance": 8, "usd_per_hour": 8.0}
    own = said(client, "/v1/plans", {**asked, "prices": [price]})["choices"][0]["candidate"]
    assert own["cloud"] == "ours"
    assert own["usd"] == pytest.approx(8.0 * own["instances"] * own["time_s"] / 3600.0, rel=0.02)


def test_the_size_of_a_plan_is_counted_before_the_work(client: TestClient) -> None:
    asked = {"model": "resnet50", "epochs": 90, "gpus": "1..300:1"}
    started_s = time.process_time()
    detail = refused(client, "/v1/plans", asked)
    assert time.process_time() - started_s < 5.0
    assert "jobs compete" in detail
    assert "1,000" in detail


def test_a_search_is_the_library_s_and_is_counted_before_the_work(client: TestClient) -> None:
    asked: dict[str, Any] = {
        "model": "llama3-8b", "device": "H100-SXM5-80GB", "gpus": 16, "global_batch_size": 64, "top": 2,
        "fix": ["zero_stage=1", "schedule=1f1b"],
    }  # fmt: skip
    found, expected = said(client, "/v1/layouts", asked), find_layouts(**asked)
    assert [each["prediction"]["step_time_s"] for each in found["ranked"]] == pytest.approx(
        [each.step_time_s for each in expected.ranked], rel=1e-9
    )
    assert found["counts"]["enumerated"] == expected.counts.enumerated
    huge = {"model": "deepseek-v3", "device": "H100-SXM5-80GB", "gpus": 46080, "global_batch_size": 46080}
    assert "More than 200,000 layouts" in refused(client, "/v1/layouts", huge)


@pytest.mark.parametrize(
    "job",
    [
        JOB,
        {"model": "llama3-8b", "device": "H100-SXM5-80GB", "gpus": 8, "pp": 4, "global_batch_size": 16},
        {
            "model": "llama3-8b", "device": "H100-SXM5-80GB", "gpus": 8, "pp": 4, "schedule": "zero-bubble",
            "global_batch_size": 16,
        },
        {"model": "llama3-8b", "device": "H100-SXM5-80GB", "gpus": 8, "zero_stage": 3, "method": "grpo"},
        {"model": "bert-base", "gpus": 8, "batch_size": 2, "num_microbatches": 4000},
    ],
)  # fmt: skip
def test_segments_of_a_timeline_add_up_to_the_step(client: TestClient, job: dict[str, Any]) -> None:
    found, expected = said(client, "/v1/timelines", job), predict_time(**job)
    step_s = found["step_time_s"]
    assert step_s == pytest.approx(expected.step_time_s, rel=1e-9)
    assert sum(found["seconds_by_kind"].values()) == pytest.approx(step_s, rel=1e-9)
    # What has a term of its own lasts as long as it, generation of a training method among it.
    for name in ("optimizer", "data_exposed", "tensor_exposed", "decode", "prefill", "reference"):
        term_s = expected.terms.get(f"{name}_s", 0.0)
        assert found["seconds_by_kind"].get(name, 0.0) == pytest.approx(term_s, rel=1e-9)
    rows = [found["segments"], *(stage["segments"] for stage in found["stages"])]
    assert len(rows) == (1 + found["pipeline_stages"] if found["simulated"] else 1)
    assert found["simulated"] == (job.get("num_microbatches") != 4000)
    assert ("sum" in found["meaning"]) != ("simulation" in found["meaning"])
    for row in rows:
        bars = [bar for bar in row if bar["stream"] != "overlapped communication"]
        assert bars[0]["start_s"] == 0.0
        assert bars[-1]["end_s"] == pytest.approx(step_s)
        for before, after in pairwise(bars):
            assert after["start_s"] == pytest.approx(before["end_s"], abs=1e-9 * step_s)
    memory = found["memory"]
    if memory is not None:
        assert len(memory["times_s"]) <= 501
        totals = [sum(held) for held in zip(*memory["held_bytes"].values(), strict=True)]
        assert max(totals) == pytest.approx(memory["peak_bytes"])
        assert memory["peak_bytes"] == pytest.approx(expected.memory_bytes_per_device, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "search", "first"),
    [
        ("models", "llama3-8b", "llama3-8b"),
        ("models", "resnet 50", "resnet50"),
        ("devices", "h100 sxm", "H100-SXM5-80GB"),
        ("node-types", "dgx h100", "DGX-H100"),
        ("precisions", "bf16", "bf16-mixed"),
        ("stacks", "ngc", "ngc-pytorch"),
        ("datasets", "squad", "squad1.1"),
        ("optimizers", "fusedadam", "adam"),
    ],
)
def test_catalogs_are_searched(client: TestClient, name: str, search: str, first: str) -> None:
    everything = client.get(f"/v1/catalogs/{name}", params={"limit": 10_000}).json()
    assert len(everything["items"]) == everything["total"] > 5
    found = client.get(f"/v1/catalogs/{name}", params={"search": search, "limit": 10_000}).json()
    assert first in [item["name"] for item in found["items"]]
    assert 0 < found["total"] < everything["total"]


def test_prices_are_listed_cheapest_first(client: TestClient) -> None:
    found = client.get("/v1/catalogs/prices", params={"search": "H100 aws", "limit": 5}).json()
    assert 0 < len(found["items"]) <= 5
    hours = [item["usd_per_device_hour"] for item in found["items"] if item["usd_per_device_hour"]]
    assert hours == sorted(hours)
    assert {item["cloud"] for item in found["items"]} == {"aws"}


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("comparisons", {**JOB, "precisions": ["fp32"]}, 422, "leave out precision"),
        ("comparisons", {"model": "resnet50", "precisions": []}, 422, "names no precision"),
        ("comparisons", {"model": "resnet50", "precisions": ["/etc/x.yaml"]}, 422, "names no files"),
        ("comparisons", {"model": "resnet50", "precisions": "/etc/x.yaml,fp32"}, 422, "names no files"),
        ("sweeps", {**JOB, "precision": "/etc/x.yaml,fp32"}, 422, "names no files"),
        ("sweeps", {**JOB, "custom": ["/etc/passwd"]}, 422, "names no files"),
        ("sweeps", {**JOB, "model": ["net.py"]}, 422, "code or a file"),
        ("sweeps", {**JOB, "model": [["resnet50"]]}, 422, "no model"),
        ("sweeps", {**JOB, "model": []}, 422, "names nothing"),
        ("sweeps", {**JOB, "gpus": "1..1001:1"}, 413, "1,001 jobs"),
        ("sweeps", {**JOB, "gpus": ["1..9999:1", "1..9999:1"]}, 422, "more than 10,000 values"),
        ("sweeps", {**JOB, "phases": []}, 422, "/v1/runs"),
        ("runs", JOB, 422, "How long is the run"),
        ("runs", {**JOB, "epochs": 1, "grid_hours": "/etc/passwd"}, 422, "names a file"),
        ("runs", {**JOB, "epochs": 1, "run": {"grid_hours": "x.csv"}}, 422, "names a file"),
        ("runs", {**JOB, "epochs": 1, "mtbf": "9h", "run": {"mtbf": "9h"}}, 422, "given twice"),
        ("runs", {**JOB, "epochs": 1, "run": {"mtb": "9h"}}, 422, "mtbf"),
        ("runs", {**JOB, "phases": [{"precision": "/etc/x.yaml", "steps": 9}]}, 422, "names no files"),
        ("plans", {"model": "resnet50"}, 422, "How long the run is"),
        ("plans", {"epochs": 1}, 422, "model is missing"),
        ("plans", {"model": "resnet50", "epochs": 1, "ray": "auto"}, 422, "operator"),
        ("plans", {"model": "resnet50", "epochs": 1, "workers": 64}, 422, "operator"),
        ("plans", {"model": "resnet50", "epochs": 1, "prices": "/etc/prices.csv"}, 422, "prices"),
        ("plans", {"model": "resnet50", "epochs": 1, "prices": [{"cloud": "x"}]}, 422, "device is missing"),
        ("plans", {"model": "resnet50", "epochs": 1, "confidence": "high"}, 422, "confidence"),
        ("plans", {"model": "resnet50", "epochs": 1, "layouts": 100}, 422, "at most 8"),
        ("plans", {"model": "resnet50", "epochs": 1, "gpus": "many"}, 422, "gpus"),
        ("plans", {"model": "resnet50", "epochs": 1, "batch_size": [64, None]}, 422, "holds null"),
        ("plans", {"model": "resnet50", "epochs": 1, "tp": 2, "nodes": 2}, 422, "what a plan chooses"),
        ("layouts", {"model": "llama3-8b", "tp": 8}, 422, "tp=8"),
        ("layouts", {"model": "llama3-8b", "top": 0}, 422, "top"),
        ("layouts", {"model": "llama3-8b", "fix": ["tpx=8"]}, 422, "tpx"),
        ("layouts", {"model": "llama3-8b", "trace": "x.json"}, 422, "/v1/timelines"),
        ("timelines", {"model": "net.py"}, 422, "code or a file"),
        ("timelines", {**JOB, "cluster": "nowhere"}, 404, "nowhere"),
    ],
)  # fmt: skip
def test_what_a_route_cannot_take_is_refused_with_the_reason(
    client: TestClient, path: str, body: dict[str, Any], status: int, words: str
) -> None:
    assert words in refused(client, f"/v1/{path}", body, status)


def test_long_work_is_ended_at_the_time_limit(tmp_path: Path, long_plan: dict[str, Any]) -> None:
    chosen = {"store": f"sqlite:///{tmp_path / 's.sqlite'}", "time_limit_s": 0.5}
    with TestClient(create_app(Settings.of(chosen))) as client:
        started_s = time.perf_counter()
        assert "0.5 s" in refused(client, "/v1/plans", long_plan, 504)
        assert time.perf_counter() - started_s < 30.0, "of more than a minute"


@pytest.mark.parametrize(
    "options",
    [
        {"coverage": 5e-324},
        {"coverage": 0.9999999999999999},
        {"async_checkpoints": True, "checkpoint_bytes": 1e15, "storage_rate": 1e-9},
    ],
)
def test_a_run_without_a_finite_answer_is_refused(client: TestClient, options: dict[str, Any]) -> None:
    refused(client, "/v1/runs", {"model": "resnet50", "epochs": 90, **options})


def test_a_run_of_more_checkpoints_than_can_be_drawn_is_answered(client: TestClient) -> None:
    asked = {"model": "resnet50", "checkpoint_steps": 1, "checkpoint_bytes": 1e-9}
    found = said(client, "/v1/runs", {**asked, "epochs": 1e15, "samples": 10**15})
    assert 0 < found["p10_s"] < found["total_s"] < 10 * found["p90_s"]
