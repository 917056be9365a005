"""The two commands, and the map."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from precision_time.errors import ConfigError
from precision_time_papers.cli import architectures as commands

app = typer.Typer()
app.command(epilog=commands.EXAMPLES)(commands.architectures)
app.command("train-ghn", epilog=commands.TRAIN_EXAMPLES)(commands.train_ghn)


def run(*words: str):
    return CliRunner().invoke(app, list(words))


def test_nearest_as_json() -> None:
    answer = run("architectures", "resnet50", "--nearest", "3", "--json")
    assert answer.exit_code == 0, answer.output
    data = json.loads(answer.stdout)
    assert len(data["nearest"]) == 3
    assert len(data["embedding"]) == 32
    assert data["unknown_ops"] == {}
    assert {"name", "family", "similarity", "same_as"} <= data["nearest"][0].keys()


def test_nearest_as_a_table() -> None:
    answer = run("architectures", "bert-base")
    assert answer.exit_code == 0, answer.output
    assert "Nearest to bert-base" in answer.stdout


def test_nothing_to_do_and_impossible_files_are_refused(tmp_path: Path) -> None:
    for words in ([], ["--map", str(tmp_path / "map.gif")], ["--map", str(tmp_path / "none" / "map.svg")]):
        answer = run("architectures", *words)
        assert isinstance(answer.exception, ConfigError)
        assert "To fix" in str(answer.exception)
    answer = run("train-ghn", "--out", str(tmp_path / "none" / "x.safetensors"))
    assert isinstance(answer.exception, ConfigError)


@pytest.mark.parametrize("suffix", ["svg", "png"])
def test_the_map_is_written_and_the_same_each_time(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"map.{suffix}"
    answer = run("architectures", "resnet50", "--map", str(path), "--json")
    assert answer.exit_code == 0, answer.output
    assert json.loads(answer.stdout)["map"] == str(path)
    first = path.read_bytes()
    assert len(first) > 10_000
    run("architectures", "resnet50", "--map", str(path), "--json")
    assert path.read_bytes() == first


def test_training_writes_a_hypernetwork_with_its_card(tmp_path: Path) -> None:
    from precision_time_papers.ghn.weights import load_weights

    path = tmp_path / "ghn.safetensors"
    answer = run(
        "train-ghn", "--steps", "2", "--held-out", "2", "--networks", "3", "--out", str(path), "--json"
    )
    assert answer.exit_code == 0, answer.output
    data = json.loads(answer.stdout)
    assert data["steps"] == 2
    assert [score["split"] for score in data["scores"]] == ["test", "wide", "deep", "dense", "norm-free"]
    assert json.loads(load_weights(path).card)["steps"] == 2
    assert load_weights(path).version == data["weights_version"]
