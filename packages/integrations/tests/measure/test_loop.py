"""The loop from measuring to asking: what `measure` writes, predict, evaluate and calibrate read as it is."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from precision_time import predict_time
from precision_time.cli.main import app
from precision_time.corpus.own import read_own_steps
from precision_time.request.request import Request

NET = """
from torch import nn
def build(width=64):
    body = nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(body, nn.Linear(width, 10))
"""
JOB = {"precision": "fp32", "image_size": 32}

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)

    def command(*words: str) -> Result:
        done = CliRunner().invoke(app, [*words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return command


@pytest.mark.filterwarnings("ignore")
def test_what_measure_writes_is_read_as_it_is(run: Run) -> None:
    words = ["-b", "4,8", "-p", "fp32", "--image-size", "32", "--on", "cpu", "--device", "my-box"]
    words += ["--seconds-per-point", "0.01", "--size", "width=32"]
    run("measure", "net.py:build", *words)
    steps = Path("measured/own-my-box.csv")
    with steps.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["model"], row["gpus"], row["batch_size"]) for row in rows] == [
        ("net.py:build", "1", "4"), ("net.py:build", "1", "8"),
    ]  # fmt: skip
    for row, step in zip(rows, read_own_steps(steps), strict=True):
        # What was measured and what is asked are one job: the same operators on the same device.
        asked = Request.of(
            {
                "model": "net.py:build", "sizes": {"width": 32}, "calibration": steps, **JOB,
                "stack": "pytorch-eager", "batch_size": row["batch_size"], "optimizer": row["optimizer"],
            }
        ).resolve()  # fmt: skip
        assert step.job is not None and step.measured_s == float(row["step_time_s"])
        captured = [replace(node, layer="") for node in asked.workload.graph.nodes]
        assert list(step.job.workload.graph.nodes) == captured
        assert step.job.cluster.device == asked.cluster.device
        assert step.job.layout == asked.layout
        assert step.job.precision.name == asked.precision.name
    assert asked.cluster.device.name == "my-box"
    report = json.loads(run("evaluate", str(steps), "--json").stdout)
    assert (report["n"], report["n_unsupported"]) == (2, 0)
    told = json.loads(run("calibrate", str(steps), "--out", "box.json", "--force", "--json").stdout)
    assert told["configurations"] == 2
    again = {"model": "net.py:build", "sizes": {"width": 32}, "batch_size": 16, **JOB}
    direct, saved = (predict_time(**again, calibration=file) for file in (steps, "box.json"))
    assert direct.step_time_s == saved.step_time_s
    assert direct.device == saved.device == "my-box"
    assert direct.params == 32 * 27 + 32 + 32 * 10 + 10
    # What is there is not measured again, and carried to more devices.
    told = json.loads(run("measure", "net.py:build", *words, "--project-to", "4", "--json").stdout)
    assert (told["measured_steps"], told["projected"]["gpus"]) == (0, 4)
    asked = {"sizes": {"width": 32}, "batch_size": 4, **JOB, "stack": "pytorch-eager", "gpus": 4}
    assert (
        told["projected"]["step_time_s"]
        == predict_time("net.py:build", **asked, calibration=steps).step_time_s
    )


def test_tables_of_options_are_the_requests_that_they_spell(run: Run) -> None:
    Path("runs.csv").write_text(
        "model,device,gpus,batch_size,seq_len,zero,samples_per_s,notes\n"
        "llama3-8b,H100,8,1,2048,3,40,mine\n"
        "net.py:build,H100,1,8,,,100,\n"
    )
    known, unknown = read_own_steps("runs.csv")
    asked = Request.of(
        {"model": "llama3-8b", "device": "H100", "gpus": 8, "batch_size": 1, "seq_len": 2048, "zero_stage": 3}
    )
    assert known.job == asked.resolve()  # stack, precision and links as predict assumes them
    assert known.measured_s == 8 / 40
    assert unknown.job is None and "net.py:build" in unknown.remedy
    scored = json.loads(run("evaluate", "runs.csv", "--group-by", "gpus", "--json").stdout)
    assert list(scored["groups"]["gpus"]) == ["8"]
    assert scored["unsupported_reasons"] == {"model not known": 1}


def test_a_calibration_that_does_not_help_is_not_written(run: Run) -> None:
    rows = [("resnet50", 64, 4.0), ("bert-large", 8, 0.25), ("vgg16", 32, 0.25), ("gpt2", 4, 4.0)]
    device = "A100-SXM4-80GB"  # times as answered, by turns much longer and much shorter
    times = [predict_time(model, device=device, batch_size=batch).step_time_s for model, batch, _ in rows]
    text = "".join(
        f"{model},{device},{batch},{seconds * factor}\n"
        for (model, batch, factor), seconds in zip(rows, times, strict=True)
    )
    Path("odd.csv").write_text(f"model,device,batch_size,step_time_s\n{text}")
    told = json.loads(run("calibrate", "odd.csv", "--json").stdout)
    assert not told["helps"], "choose rows that contradict each other more"
    refused = run("calibrate", "odd.csv", "--out", "odd.json")
    assert refused.exit_code == 1 and not Path("odd.json").exists()
    assert re.search(r"not written.*--force", refused.output, re.DOTALL)
    assert run("calibrate", "odd.csv", "--out", "odd.json", "--force").exit_code == 0
    assert Path("odd.json").exists()


def test_anchors_in_the_words_of_users() -> None:
    words = ("gpus=1,batch=32,step=0.21", "gpus=1,batch_size=32,step_time_s=0.21")
    job = {"model": "resnet50", "device": "T4", "batch_size": 64}
    first, second = (predict_time(**job, anchors=[text]).step_time_s for text in words)
    assert first == second != predict_time(**job).step_time_s
