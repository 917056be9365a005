"""The guide to the service is followed word by word, against a service on a free port."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "docs" / "guides" / "service.md"
HERE = "tests/docs/test_service_guide.py runs it"
BLOCK = re.compile(rf"<!-- not run: {re.escape(HERE)} -->\n\n```(\w+)\n(.*?)```", re.DOTALL)
BLOCKS = BLOCK.findall(GUIDE.read_text(encoding="utf-8"))
ADDRESS = "localhost:8400"
PRINTED = {
    "fits: True", "64 devices", "8 x V100-SXM2-16GB", "[1, 2, 4]", "M parameters", "times 1.2",
    "6 stored; calibration active: True",
}  # fmt: skip
"""What the Python blocks must say, beside ending well."""


@pytest.fixture(scope="module")
def address(
    tmp_path_factory: pytest.TempPathFactory, served: Callable[..., AbstractContextManager[str]]
) -> Iterator[str]:
    """Host and port of a service."""
    with served(tmp_path_factory.mktemp("service")) as found:
        yield found


def test_the_guide_names_this_test() -> None:
    assert {language for language, _ in BLOCKS} == {"bash", "python"}
    assert all(ADDRESS in body for _, body in BLOCKS)


@pytest.mark.slow
def test_python_blocks_run_in_order_and_say_what_is_expected(address: str) -> None:
    said = io.StringIO()
    for body in (body for language, body in BLOCKS if language == "python"):
        with contextlib.redirect_stdout(said):
            exec(compile(body.replace(ADDRESS, address), str(GUIDE), "exec"), {"__name__": "__guide__"})
    assert [text for text in sorted(PRINTED) if text not in said.getvalue()] == []


@pytest.mark.slow
@pytest.mark.parametrize("body", [body for language, body in BLOCKS if language == "bash"])
def test_shell_blocks_run(address: str, body: str, tmp_path: Path) -> None:
    if "curl" in body and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    shutil.copy(ROOT / "docs" / "examples" / "runs.csv", tmp_path)
    program = tmp_path / "precision-time"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m precision_time "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "-euc", body.replace(ADDRESS, address)],
        cwd=tmp_path,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    if "curl" in body:
        assert "status" not in json.loads(done.stdout), done.stdout
    else:
        assert "fp16-mixed" in done.stdout
