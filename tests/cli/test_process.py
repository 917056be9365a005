"""The program as a process: what reaches its stdout, and that it answers with one BLAS thread."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from precision_time.__main__ import run

PROGRAM = """
import os, subprocess, sys
from precision_time.cli import env, main

def loud(_):
    os.write(1, b"chatter of a library\\n")
    subprocess.run(["echo", "chatter of a process"])
    return os.environ["OPENBLAS_NUM_THREADS"]

env._PACKAGES = ("loud",)
env._version_of = loud
sys.argv = ["precision-time", "env", "--json"]
main.main()
"""


def test_an_interrupt_before_the_command_line_is_loaded_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Loading:
        """In the place of a module."""

        @property
        def main(self) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "precision_time.cli.main", Loading())  # type: ignore[arg-type]
    with pytest.raises(SystemExit) as ended:
        run()
    assert (ended.value.code, capsys.readouterr().err) == (130, "Interrupted.\n")


def test_stdout_is_what_a_command_writes() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(found.stdout)["packages"] == {"loud": "1"}
    assert found.stderr.splitlines() == ["chatter of a library", "chatter of a process"]
