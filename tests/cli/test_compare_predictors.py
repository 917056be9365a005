"""`compare-predictors` prints tables and JSON, and refuses wrong options."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from precision_time.errors import ConfigError, UnknownNameError
from precision_time_papers.cli.report import compare_predictors, complete_predictor

app = typer.Typer()
app.command()(compare_predictors)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (["--only", "ours,ernst"], UnknownNameError, "Unknown predictor 'ernst'"),
        (["--seeds", "0"], ConfigError, "--seeds 0: at least one seed"),
        (["--out", "no-such-folder/a.md"], ConfigError, "its folder does not exist"),
    ],
)
def test_wrong_options_are_refused(words: list[str], error: type[Exception], message: str) -> None:
    answer = CliRunner().invoke(app, words)
    assert isinstance(answer.exception, error)
    assert message in str(answer.exception)
    assert answer.stdout == ""


def test_names_are_completed_after_a_comma() -> None:
    assert complete_predictor("ernest") == ["ernest-pooled", "ernest", "ernest-free"]
    assert complete_predictor("ours,opt") == ["ours,optimus"]


@pytest.mark.nightly(
    covered_by="packages/papers/tests/evaluation/test_comparison.py::test_the_page_and_the_json_say_the_same"
)
def test_tables_json_and_markdown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path))
    monkeypatch.setattr("precision_time_papers.evaluation.comparison.QUICK_ROWS", 250)
    words = ["--quick", "--only", "flops,ernest-pooled", "--out", str(tmp_path / "page.md")]
    answer = CliRunner().invoke(app, words)
    assert answer.exit_code == 0, answer.exception
    assert "unseen architectures" in answer.stdout
    assert "| Optimus |" in (tmp_path / "page.md").read_text(encoding="utf-8")
    said = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert {item["name"] for item in said["scores"]} >= {"flops", "ernest", "ernest-pooled"}
