"""`precision-time papers predictddl`: its commands, run on a registry of the user's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from precision_time.cli.main import app
from precision_time.cli.options import complete_dataset
from precision_time.errors import ConfigError, CorpusError, UnknownNameError
from precision_time_papers.cli.predictddl import complete_type

SCONTROL = "NodeName=n1 CPUTot=64 Gres=gpu:v100:4(S:0-1) RealMemory=385000 State=IDLE Partitions=gpu\n"
Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "160")
    runner = CliRunner()
    return lambda *words, text=None: runner.invoke(app, ["papers", "predictddl", *words], input=text)


def test_predict_says_which_predictor_answered(run: Run) -> None:
    words = ("predict", "resnet50", "--device", "A100", "--gpus", "8", "--batch-size", "128")
    found = run(*words, "--precision", "fp16-mixed", "--epochs", "90", "--json")
    assert found.exit_code == 0, found.output
    answer = json.loads(found.stdout)
    assert answer["task"] == "hit"
    assert answer["predictor"]["dataset_type"] == "imagenet"
    assert answer["steps_per_epoch"] == -(-1281167 // 1024)
    assert answer["training_time_s"] == pytest.approx(90 * answer["steps_per_epoch"] * answer["step_time_s"])
    table = run(*words)
    assert table.exit_code == 0
    assert "imagenet v1" in table.stdout
    assert "A100-SXM4-80GB" in table.stderr


def test_a_batch_answers_the_good_lines_and_names_the_bad(run: Run, tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yaml"
    inventory.write_text("nodes: [{device: V100, devices: 4, count: 2}]\n")
    requests = tmp_path / "requests.jsonl"
    good = json.dumps({"model": "resnet18", "batch_size": 64})
    requests.write_text(f'{good}\n{{"model": \n{json.dumps({"model": "vgg16", "batch_size": 32})}\n')
    output = tmp_path / "answers.jsonl"
    found = run("batch", str(requests), "--inventory", str(inventory), "--json", "--output", str(output))
    assert found.exit_code == 1
    answers = json.loads(found.stdout)
    assert answers["refused"] == 1
    assert [item["name"] for item in answers["answers"]] == ["line 1", "line 2", "line 3"]
    assert "line 2" in found.stderr
    assert [json.loads(line) for line in output.read_text().splitlines()] == answers["answers"]


def test_collect_reads_slurm_from_a_pipe(run: Run) -> None:
    found = run("collect", "--slurm", "-", "--json", text=SCONTROL)
    assert found.exit_code == 0, found.output
    collected = json.loads(found.stdout)
    cluster = collected["cluster"]
    assert (cluster["num_nodes"], cluster["num_devices"], cluster["device"]) == (1, 4, "V100-SXM2-16GB")
    assert collected["nodes"][0]["cores"] == 64
    assert run("collect", "--slurm", "-", text=SCONTROL).exit_code == 0
    assert run("collect").exit_code == 2
    assert run("collect", "--local", "--slurm", "-", text=SCONTROL).exit_code == 2


def test_collect_shows_what_it_cannot_map(run: Run) -> None:
    text = SCONTROL.replace("v100", "warp9000")
    found = run("collect", "--slurm", "-", "--json", text=text)
    collected = json.loads(found.stdout)
    assert found.exit_code == 1
    assert collected["unmapped"] == ["warp9000"]
    assert collected["cluster"] is None
    assert "To fix" in collected["problem"]
    table = run("collect", "--slurm", "-", text=text)
    assert "warp9000" in table.stdout
    assert isinstance(table.exception, ConfigError)


def test_registry_lists_what_ships_and_refuses_to_delete_it(run: Run) -> None:
    found = run("registry", "--json")
    versions = json.loads(found.stdout)["versions"]
    assert {"imagenet", "cifar", "language-model"} <= {version["type"] for version in versions}
    assert all(version["shipped"] and not version["problem"] for version in versions)
    assert "imagenet" in run("registry").stdout
    refused = run("registry", "--delete", "imagenet", "--version", "1")
    assert isinstance(refused.exception, ConfigError)
    assert run("registry", "--delete", "imagenet").exit_code == 2


def test_train_writes_a_version_and_it_can_be_deleted(run: Run, tmp_path: Path) -> None:
    csv = tmp_path / "runs.csv"
    lines = [
        "source,model,task,dataset,framework,device,devices,nodes,precision,batch_per_device,step_time_s"
    ]
    for place, model in enumerate(("alexnet", "resnet18", "resnet34", "vgg11")):
        for batch in (1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256):
            seconds = 0.001 * (place + 1) * (batch + 4)
            lines.append(f"lab,{model},imagenet-train,imagenet,pytorch,T4,1,1,fp32,{batch},{seconds}")
    csv.write_text("\n".join(lines) + "\n")
    found = run("train", "imagenet", "--csv", str(csv), "--alone", "--quick", "--json")
    assert found.exit_code == 0, found.output
    (trained,) = json.loads(found.stdout)["trained"]
    assert (trained["type"], trained["version"], trained["rows"], trained["architectures"]) == (
        "imagenet",
        2,
        60,
        4,
    )
    answer = run("predict", "resnet50", "--device", "T4", "--batch-size", "32", "--json")
    assert json.loads(answer.stdout)["predictor"]["version"] == 2
    assert run("registry", "--delete", "imagenet", "--version", "2").exit_code == 0
    answer = run("predict", "resnet50", "--device", "T4", "--batch-size", "32", "--json")
    assert json.loads(answer.stdout)["predictor"]["version"] == 1


def test_too_few_runs_and_unknown_types_are_refused(run: Run, tmp_path: Path) -> None:
    csv = tmp_path / "runs.csv"
    csv.write_text("model,device,devices,precision,step_time_s\n")
    assert isinstance(run("train", "graph", "--csv", str(csv), "--alone").exception, CorpusError)
    csv.write_text(csv.read_text() + "resnet50,T4,1,fp32,0.1\n")
    assert isinstance(run("train", "graph", "--csv", str(csv), "--alone").exception, ConfigError)
    assert isinstance(run("train", "imagenett").exception, UnknownNameError)
    assert isinstance(run("train", "--csv", str(csv), "--alone").exception, ConfigError)
    assert run("train", "--alone").exit_code == 2


def test_predict_assumes_a_device_and_says_so(run: Run) -> None:
    assert "Device not given" in run("predict", "resnet50", "--batch-size", "8").stderr


def test_predict_takes_an_inventory_or_a_device(run: Run, tmp_path: Path) -> None:
    inventory = tmp_path / "lab.yaml"
    inventory.write_text("nodes: [{device: V100, devices: 4, count: 2}]\n")
    words = ("predict", "resnet50", "--batch-size", "64", "--inventory", str(inventory))
    answer = json.loads(run(*words, "--json").stdout)
    assert answer["steps_per_epoch"] == -(-1281167 // 512)
    assert isinstance(run(*words, "--device", "V100").exception, ConfigError)


@pytest.mark.parametrize("command", ["predict", "batch", "train", "registry", "collect"])
def test_help_has_examples(run: Run, command: str) -> None:
    found = run(command, "--help")
    assert found.exit_code == 0
    assert f"precision-time papers predictddl {command}" in found.stdout


def test_names_complete() -> None:
    assert complete_type("im") == ["imagenet"]
    assert "tiny-imagenet" in complete_dataset("tiny")
