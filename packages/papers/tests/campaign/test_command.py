"""The command: campaigns listed, stores shown and exported, and what cannot be refused in one line."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from precision_time.cli.main import app
from precision_time.corpus.schema import OPTION_COLUMNS
from precision_time.errors import ConfigError, CorpusError
from precision_time_integrations.measure.report import TrialReport
from precision_time_papers.campaign.result import COLUMNS, TrialResult, read_results_csv
from precision_time_papers.campaign.store import CampaignStore, read_store

STORED = Path(__file__).resolve().parents[2] / "studies" / "campaigns" / "own-ray-cpu.csv"


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["papers", "campaign", *words])


@pytest.fixture
def store(tmp_path: Path, result_of: Callable[..., TrialResult]) -> Path:
    path = tmp_path / "trials.sqlite"
    with CampaignStore(path) as opened:
        opened.add(result_of(step_time_sd_s=0.002, epoch_time_s=0.16, num_steps=8))
        opened.add(result_of(repeat=1, status="failed", error="out of memory", step_time_s=None))
    return path


def test_flags_and_files_list_the_same_trials(tmp_path: Path) -> None:
    file = tmp_path / "campaign.yaml"
    file.write_text("sweeps: [{models: [cnn, mlp], workers: [1, 2], fractions: [0.5, 1]}]", encoding="utf-8")
    by_file = json.loads(call("run", str(file), "--list", "--json").stdout)
    flags = ("--models", "cnn,mlp", "--ray-workers", "1,2", "--fractions", "0.5,1")
    by_flags = json.loads(call("run", *flags, "--list", "--json").stdout)
    assert by_file == by_flags
    assert len(by_file["points"]) == 8
    assert "cnn/synthetic-2048x0.5/w1c1/b32/fp32/adam#0" in call("run", *flags, "--list").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "FILE or --models"),
        (("x.yaml", "--models", "cnn"), "FILE or --models"),
        (("--models", "cnn", "--ray-workers", "two"), "--ray-workers 'two' is not a list of numbers"),
        (("--models", "cnn", "--ray-workers", "0"), "greater than or equal to 1"),
        (("--models", "cnn", "--time-budget", "soon"), "--time-budget 'soon' is not a duration"),
        (("--models", "cnn", "--time-budget", "0m"), "--time-budget '0m' is not a duration"),
        (("--models", "cnn", "--data", "nowhere"), "ImageFolder nowhere is not a folder"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], said: str) -> None:
    error = call("run", *words).exception
    assert isinstance(error, ConfigError)
    assert said in str(error)
    assert "To fix" in str(error)


def test_a_store_is_shown(store: Path) -> None:
    shown = call("show", str(store)).stdout
    assert "2 trials, 1 failed" in shown
    assert "20 ms" in shown
    assert "failed: out of memory" in shown
    trials = json.loads(call("show", str(store), "--json").stdout)["points"]
    assert [trial["status"] for trial in trials] == ["ok", "failed"]
    assert list(trials[0]) == list(COLUMNS)


def test_a_store_is_exported(store: Path, tmp_path: Path) -> None:
    trials, corpus = tmp_path / "trials.csv", tmp_path / "corpus.csv"
    answer = json.loads(call("export", str(store), "--out", str(trials), "--json").stdout)
    assert answer["rows"] == len(read_results_csv(trials)) == 2
    call("export", str(store), "--out", str(corpus), "--corpus", "--source", "own-ray-cpu")
    with corpus.open(encoding="utf-8", newline="") as file:
        header, row = csv.reader(file)
    assert header == OPTION_COLUMNS
    assert row[0] == "own-ray-cpu"


def test_a_store_that_is_none_is_an_error(tmp_path: Path) -> None:
    assert isinstance(call("show", str(tmp_path / "none")).exception, CorpusError)


def test_a_campaign_that_measures_nothing_ends_with_one_line_and_a_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = "its 1 workers could not be started: not ready within 180 s; is the cluster busy?"
    about = {"campaign": "campaign", "store": "x", "points": 2}
    report = TrialReport(about=about, failed={"a#0": error, "a#1": error}, seconds=180.0)
    monkeypatch.setattr("precision_time_papers.campaign.ray.run_campaign", lambda *_, **__: report)
    words = ("run", "--models", "cnn", "--store", str(tmp_path / "x.sqlite"))
    ended = call(*words)
    assert ended.exit_code == 1
    assert ended.stderr.splitlines()[-1] == f"Error: No trial could be measured, 2 failed; the first: {error}"
    assert "Failed: 2" in ended.stdout
    assert json.loads(call(*words, "--json").stdout)["failed"] == {"a#0": error, "a#1": error}


def test_the_stored_campaign_can_be_read() -> None:
    results = read_store(STORED)
    assert len(results) > 250
    assert {result.campaign for result in results} == {"own-ray-cpu"}
    assert sum(result.valid for result in results) >= 190
