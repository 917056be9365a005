"""Every command line of the documents of the release before: it answers, or names its successor."""

from __future__ import annotations

import functools
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from precision_time.cli import main as root

HERE = Path(__file__).parent
LINES = [
    line
    for line in (HERE / "old_lines.txt").read_text(encoding="utf-8").splitlines()
    if not line.startswith("#")
]
WAITS = (
    "measure",
    "campaign run",
    "serve",
    "train",
    "report",
    "compare-predictors",
    "predictddl train",
    "watch",
    "--server",
)
"""Commands that train, measure, serve, wait or ask a service: their words are read, and nothing is run."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the examples, with a user folder of its own."""
    shutil.copytree(HERE.parents[1] / "docs" / "examples", tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path / "home"))


def understood(answer: Any) -> bool:
    """Whether a command line was read: its command and its options are there, or say their new names."""
    return answer.code != 70 and not any(
        said in answer.err for said in ("No such command", "No such option", "--set '")
    )


@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", LINES)
def test_every_old_line_is_read(cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    read = root._command
    monkeypatch.setattr(root, "_command", lambda *place, **how: silenced(read(*place, **how), monkeypatch))
    assert understood(answer := cli(*shlex.split(line))), answer.err


def silenced(command: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A command that does nothing, once."""

    @functools.wraps(command.callback)  # with the fields that it takes
    def nothing(**_: Any) -> None:
        pass

    monkeypatch.setattr(command, "callback", nothing)
    return command


@pytest.mark.nightly(covered_by="tests/cli/test_old_lines.py::test_every_old_line_is_read")
@pytest.mark.usefixtures("folder")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("line", [line for line in LINES if line != "sbatch" and not line.startswith(WAITS)])
def test_every_old_line_answers(cli: Callable[..., Any], line: str) -> None:
    assert understood(answer := cli(*shlex.split(line))), answer.err
