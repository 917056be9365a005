"""`schedule` from files to a plan, with the shipped predictor."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from precision_time.errors import ConfigError, MissingExtraError
from precision_time.planning.run.api import predict_run
from precision_time_papers.queue.api import schedule

CLUSTER = "nodes: [{device: H100-SXM5-80GB, devices: 8}]\n"
JOB = {"model": "bert-large", "steps": 20_000, "batch_size": 16, "seq_len": 384, "precision": "bf16-mixed"}


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(CLUSTER)
    return path


def test_plan_of_predicted_durations(cluster: Path) -> None:
    jobs = [
        {**JOB, "name": "urgent", "gpus": [4, 8], "deadline": "2h", "weight": 2},
        {**JOB, "name": "other", "gpus": 8, "precision": ["bf16-mixed", "fp8-mixed"]},
        {**JOB, "name": "hopeless", "gpus": 4, "deadline": "5m"},
    ]
    plan = schedule(jobs, cluster, objective="deadlines", time_limit_s=60.0)
    urgent, other, hopeless = plan.jobs
    run = predict_run(**{**JOB, "device": "H100-SXM5-80GB", "gpus": urgent.gpus})
    assert urgent.duration_s == pytest.approx(run.p50_s, rel=0.05), "a whole run, over other draws"
    assert urgent.planned_s > urgent.duration_s, "padded to the 80 % quantile"
    assert urgent.lateness_s == 0.0 and hopeless.on_time_probability < 0.01
    assert "even alone" in hopeless.reason and "x as fast as in" in other.reason
    assert {remedy.one_more_host_of for remedy in plan.remedies} == {"H100-SXM5-80GB"}
    assert plan.makespan_low_s < plan.makespan_median_s < plan.makespan_high_s
    json.dumps(plan.to_dict(), allow_nan=False)
    assert "1 of 3 jobs end after their deadline" in str(plan)


def test_a_job_that_fits_nowhere_has_its_nearest_miss(cluster: Path) -> None:
    with pytest.raises(ConfigError, match=r"big fits in no pool.*Nearest: .* lacks .*To fix"):
        schedule([{"name": "big", "model": "llama3-70b", "steps": 1, "batch_size": 1, "gpus": 8}], cluster)
    with pytest.raises(ConfigError, match="asks for 64 devices, and H100-SXM5-80GB has 8"):
        schedule([{**JOB, "gpus": 64}], cluster)
    with pytest.raises(ConfigError, match="fits in no pool"):
        schedule([{**JOB, "device": "A100-SXM4-80GB"}], cluster)
    with pytest.raises(ConfigError, match="job 1: Unknown device 'NoSuchDevice'"):
        schedule([{**JOB, "device": "NoSuchDevice"}], cluster)
    with pytest.raises(ConfigError, match="length is not given"):
        schedule([{"model": "gpt2"}], cluster)
    with pytest.raises(ConfigError, match="holds no job"):
        schedule([], cluster)
    old = cluster.with_name("old.yaml")
    old.write_text("version: 2\njobs: [{model: gpt2, steps: 1}]\n")
    with pytest.raises(ConfigError, match="version 1 is read"):
        schedule(old, cluster)


def test_without_ortools_the_extra_is_named(cluster: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ortools.sat.python.cp_model", None)
    with pytest.raises(MissingExtraError, match=r"precision-time-papers\[schedule\]"):
        schedule([JOB], cluster)
