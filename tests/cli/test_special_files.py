"""A pipe without a writer, an endless device, an output that is the input: refused in words, nothing lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from fuzz_targets import run_command

COMMANDS = [
    ("predict", "job.yaml"),
    ("predict", "job.toml"),
    ("predict", "job.json"),
    ("predict", "config.json"),
    ("predict", "--jobs", "jobs.csv"),
    ("predict", "--jobs", "jobs.jsonl"),
    ("predict", "resnet50", "--calibration", "own.json"),
    ("predict", "resnet50", "--calibration", "own.csv"),
    ("predict", "resnet50", "--custom", "own.toml"),
    ("predict", "resnet50", "--custom", "own.yaml"),
    ("predict", "resnet50", "-p", "policy.yaml"),
    ("evaluate", "runs.csv"),
    ("calibrate", "runs.csv"),
    ("sweep", "grid.yaml", "--out", "out.csv"),
    ("sweep", "grid.csv", "--out", "out.csv"),
    ("estimate", "job.sh"),
    ("estimate", "job.yaml"),
    ("schedule", "jobs.yaml", "--cluster", "cluster.yaml"),
    ("plan", "resnet50", "--samples", "1000", "--prices", "prices.csv"),
    ("layout", "job.yaml"),
    ("run", "job.yaml"),
    ("sensitivity", "job.yaml"),
    ("devices", "--custom", "own.toml"),
    ("import", "run.log"),
    ("campaign", "run", "plan.yaml"),
    ("train", "--measurements", "runs.csv", "--out", "folder"),
    ("kubernetes", "annotate", "pod.yaml"),
]


@pytest.fixture(autouse=True)
def _no_hang() -> Iterator[None]:
    """A test that hangs fails: nothing below waits, however slow the machine."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        pytest.fail("it waits for the file")

    usual = signal.signal(signal.SIGALRM, stop)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, usual)


@pytest.mark.parametrize("kind", ["fifo", "endless"])
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_special_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for word in command:
        if "." in word and not word.startswith("out"):
            if kind == "fifo":
                os.mkfifo(word)
            else:
                os.symlink("/dev/zero", word)
    code, out, told = run_command(command)
    assert (code, out) == (2, "")
    assert "no regular file" in told and "To fix" in told


@pytest.mark.parametrize(
    "command",
    [
        ("calibrate", "own.csv", "--out", "own.csv"),
        ("calibrate", "own.csv", "-o", "link.csv"),
        ("sweep", "own.csv", "--out", "./own.csv"),
        ("predict", "--jobs", "own.csv", "--out", "own.csv"),
        ("predict", "resnet50", "--calibration", "own.csv", "--out", "other.csv", "--out", "own.csv"),
        ("plan", "resnet50", "--epochs", "1", "--calibration", "own.csv", "--out", "own.csv"),
        ("layout", "own.csv", "--trace", "own.csv"),
        ("import", "own.csv", "--out", "own.csv"),
        ("papers", "campaign", "export", "own.csv", "--out", "own.csv"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_file_that_is_read_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    own = tmp_path / "own.csv"
    own.write_text("model,step_time_s\nresnet50,0.1\n", encoding="utf-8")
    os.symlink(own, "link.csv")
    code, out, told = run_command(command)
    assert (code, out) == (2, "")
    assert f"{command[-1].removeprefix('./')} is a file that is read" in told and "To fix" in told
    assert own.read_text(encoding="utf-8") == "model,step_time_s\nresnet50,0.1\n"
    assert sorted(os.listdir()) == ["link.csv", "own.csv"]
