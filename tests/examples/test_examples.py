"""Every example runs in an interpreter and an empty folder of its own, and prints what it says it prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PRINTS, NEEDS = "# prints: ", "# needs: "


def lines_of(example: Path, mark: str) -> list[str]:
    return [line[len(mark) :] for line in example.read_text("utf-8").splitlines() if line.startswith(mark)]


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(example: Path, tmp_path: Path) -> None:
    for needed in " ".join(lines_of(example, NEEDS)).split():
        if find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed")
    patterns = lines_of(example, PRINTS)
    assert patterns, "it does not say what it prints"
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HOME": str(tmp_path),
        "KERAS_BACKEND": "torch",
        "OMP_NUM_THREADS": "1",
        "PRECISION_TIME_HOME": str(tmp_path / "own"),
        "PYTHONPATH": str(ROOT / "src"),
        "RAY_AUTH_MODE": "disabled",
        "TMPDIR": str(tmp_path),
    }
    with TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as short:
        environment["RAY_TMPDIR"] = short  # paths of sockets have at most 107 bytes
        done = subprocess.run(
            [sys.executable, str(example)], cwd=tmp_path, env=environment, capture_output=True,
            text=True, timeout=300, check=False,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    for pattern in patterns:
        assert re.search(pattern, done.stdout), (
            f"{pattern!r} is not in what it printed:\n{done.stdout[-3000:]}"
        )
