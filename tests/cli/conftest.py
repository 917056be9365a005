"""Run the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from precision_time.cli.main import main


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    code: int
    out: str
    err: str


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """`cli("predict", "resnet50")`: exit code, stdout and stderr of a command."""
    monkeypatch.setenv("COLUMNS", "120")

    def run(*words: str) -> Answer:
        capsys.readouterr()
        try:
            main(words)
            code = 0
        except SystemExit as done:
            code = int(done.code or 0)
        said = capsys.readouterr()
        return Answer(code, said.out, said.err)

    return run
