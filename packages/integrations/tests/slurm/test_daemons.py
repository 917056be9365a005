"""Against real daemons: time limits filled, jobs run to their end, the plugin asked, the history read."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from precision_time.cli.main import main

pytestmark = pytest.mark.slow
_EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "slurm"
_LONG = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=8 --gres=gpu:a100:8 --output=/dev/null
if false; then
    srun python train.py --model resnet50 --batch-size 64 --epochs 90
fi
"""


@pytest.fixture
def submit(
    slurm: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[str, str]]:
    """Calls `precision-time`; its stdout and stderr."""
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("SLURM_CONF", slurm.environment["SLURM_CONF"])
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{slurm.environment['PATH']}")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "long.sh").write_text(_LONG, encoding="utf-8")

    def run(*words: str, code: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as done:
            main(words)
        said = capfd.readouterr()
        assert (done.value.code or 0) == code, said
        return said.out, said.err

    return run


def limit_of(job: dict[str, str]) -> float:
    """Minutes of a job's limit."""
    days, _, clock = job["TimeLimit"].rpartition("-")
    hours, minutes, seconds = map(int, clock.split(":"))
    return int(days or 0) * 1440 + hours * 60 + minutes + seconds / 60


def test_the_example_runs_within_its_limit_and_is_in_the_history(
    slurm: Any, submit: Callable[..., tuple[str, str]], tmp_path: Path
) -> None:
    shutil.copytree(_EXAMPLE, tmp_path, dirs_exist_ok=True)
    number, said = submit("sbatch", "--parsable", "job.sh")
    assert said.startswith("--time=0:02:00: decoder, 1 x A100-SXM4-80GB: 20 steps")
    number = number.strip()
    assert slurm.run("squeue", "-h", "-j", number, "-o", "%l").strip() == "2:00"
    job = slurm.wait_for(number, "COMPLETED")
    assert limit_of(job) == 2
    assert "Trained 20 steps" in (tmp_path / f"toy-{number}.out").read_text(encoding="utf-8")
    found = json.loads(submit("slurm", "history", "--json")[0])
    assert found["source"].startswith("squeue")
    assert [(each["job_id"], each["state"], each["source"]) for each in found["jobs"]] == [
        (int(number), "COMPLETED", "record")
    ]
    assert found["jobs"][0]["elapsed_s"] < 120.0
    page = submit("slurm", "history")[0]
    assert "1 ended jobs with a prediction" in page


def test_limits_are_filled_bounded_kept_and_replaced(
    slurm: Any, submit: Callable[..., tuple[str, str]]
) -> None:
    filled, said = submit("sbatch", "--parsable", "--hold", "long.sh")
    wanted = limit_of(slurm.job(filled.strip()))
    assert 60 < wanted < 1440
    assert "resnet50, 16 x A100-SXM4-80GB on 2 nodes" in said
    higher, _ = submit("sbatch", "--quantile", "0.99", "--margin", "1", "--parsable", "--hold", "long.sh")
    assert limit_of(slurm.job(higher.strip())) > 1.8 * wanted
    short, said = submit("sbatch", "--parsable", "--hold", "--partition=short", "long.sh")
    assert limit_of(slurm.job(short.strip())) == 30
    assert "The partition short allows 0:30:00 at most" in said
    kept, said = submit("sbatch", "--parsable", "--hold", "--time=40", "long.sh")
    assert limit_of(slurm.job(kept.strip())) == 40
    assert "--time=0:40:00 stays" in said
    assert "--replace-time" in said
    replaced, said = submit("sbatch", "--replace-time", "--parsable", "--hold", "-t", "40", "long.sh")
    assert limit_of(slurm.job(replaced.strip())) == wanted
    # What cannot be read is submitted as it is, with one warning; the words of sbatch stay its own.
    out, said = submit("sbatch", "--hold", "--wrap", "hostname")
    assert out.startswith("Submitted batch job")
    assert limit_of(slurm.job(out.split()[-1])) == 1440
    assert said.count("Warning:") == 1
    assert "#PRECISION_TIME model=" in said
    out, said = submit("sbatch", "--hold", "--server", "http://127.0.0.1:9", "long.sh")
    assert limit_of(slurm.job(out.split()[-1])) == 1440
    assert said.count("Warning:") == 1
    assert "submitted unchanged. No answer from http://127.0.0.1:9" in said
    _, said = submit("sbatch", "--partition=none", "long.sh", code=1)
    assert "invalid partition" in said
    slurm.run("scancel", "--user=root")
