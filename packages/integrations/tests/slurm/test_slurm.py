"""What a job asks of Slurm is read, limits follow from the prediction, ended jobs are held against it."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from precision_time.cli.main import main
from precision_time.errors import ConfigError
from precision_time.predict.api import predict
from precision_time.request.request import Request
from precision_time_integrations.job_files import estimate_file
from precision_time_integrations.recipes.files import read_recipe
from precision_time_integrations.slurm.devices import device_of, read_names
from precision_time_integrations.slurm.history import FEWEST, history_of, live_jobs
from precision_time_integrations.slurm.jobs import SlurmJob, jobs_of_json, jobs_of_rows
from precision_time_integrations.slurm.limits import time_limit, too_short
from precision_time_integrations.slurm.options import command_line, resources, time_of, time_text, without
from precision_time_integrations.slurm.script import estimate_script, read_script
from precision_time_integrations.slurm.submissions import Submission, keep, read_submissions

_SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 -t 10:00
#SBATCH --gres=gpu:a100:8,tmpdisk:100   # eight

#SBATCH --partition gpu
srun --ntasks-per-node=1 torchrun --nnodes=$SLURM_NNODES --nproc-per-node=gpu train.py \\
    --model resnet50 --batch-size ${1:-128} --epochs 90
#SBATCH --nodes=9
"""
_ROWS = (
    "1|1|train|COMPLETED|2026-11-23T04:01:12|2026-11-23T04:01:14|2026-11-23T04:01:16|2|7|gpu|test\n"
    "1.batch|1.batch|batch|COMPLETED|2026-11-23T04:01:14|2026-11-23T04:01:14|2026-11-23T04:01:16|2|||test\n"
    "4|4|wrap|RUNNING|2026-11-23T04:01:12|2026-11-23T04:01:17|Unknown|4|1440|gpu|test\n"
    "5|3_0|j.sh|CANCELLED by 0|2026-11-23T04:01:12|None|2026-11-23T04:01:16|0|1440|gpu|test\n"
)


def test_the_command_line_wins_over_variables_and_these_over_the_script() -> None:
    alone = resources(_SCRIPT)
    assert (alone.nodes, alone.gpus, alone.gpus_per_node, alone.gpu_type) == (2, 16, 8, "a100")
    assert (alone.partition, alone.time_s) == ("gpu", 600.0)
    line = command_line(["-N1", "--gpus-per-node", "v100:4", "-Jx", "job.sh", "--nodes=7", "64"])
    assert (line.script, line.arguments) == ("job.sh", ("--nodes=7", "64"))
    found = resources(_SCRIPT, line=line, environment={"SBATCH_PARTITION": "big", "SBATCH_TIMELIMIT": "1-0"})
    assert (found.nodes, found.gpus, found.gpu_type) == (1, 4, "v100")
    assert (found.partition, found.time_s, found.job_name) == ("big", 86400.0, "x")
    assert without(["-t", "5", "-N2", "--time=3", "--time", "8", "-p", "x"], "time") == ["-N2", "-p", "x"]
    with pytest.raises(ConfigError, match="lacks its value"):
        command_line(["-N"])


def test_counts_that_follow_from_others() -> None:
    def of(*options: str) -> tuple[int | None, int | None, int | None]:
        found = resources("".join(f"#SBATCH {option}\n" for option in options))
        return found.nodes, found.gpus, found.tasks

    assert of("--ntasks=16", "--ntasks-per-node=8", "--gpus-per-task=1") == (2, 16, 16)
    assert of("--gpus=16", "--gpus-per-node=8") == (2, 16, None)
    assert of("--gres=gpu:4") == (1, 4, None)
    assert of("--nodes=2-4", "--gres=gpu:4") == (None, None, None)
    assert "--nodes=2-4" in resources("#SBATCH --nodes=2-4\n").unread[0]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 5400),
        ("90:30", 5430),
        ("2:30:00", 9000),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("2-00:00:01", 172801),
    ],
)
def test_times_of_slurm(text: str, seconds: float) -> None:
    assert time_of(text) == seconds
    assert time_of(time_text(seconds)) == seconds
    assert time_of("UNLIMITED") == float("inf")
    with pytest.raises(ConfigError, match="To fix"):
        time_of("soon")


def test_devices_by_the_file_of_names(tmp_path: Path) -> None:
    path = tmp_path / "slurm.toml"
    path.write_text(
        '[gres]\na100 = "A100-SXM4-40GB"\n[partition]\nold = "V100-SXM2-32GB"\n"*" = "H100-SXM5-80GB"\n',
        encoding="utf-8",
    )
    names = read_names(path)
    stated = {
        "#SBATCH --gres=gpu:a100:4": "A100-SXM4-40GB",
        "#SBATCH --gres=gpu:l40s:4": "L40S",
        "#SBATCH --gres=gpu:4 -p old": "V100-SXM2-32GB",
        "#SBATCH --gres=gpu:4 -C v100": "V100-SXM2-16GB",
        "#SBATCH --gres=gpu:4": "H100-SXM5-80GB",
    }
    for text, device in stated.items():
        assert device_of(resources(text), names)[0] == device
    assert device_of(resources("#SBATCH --gres=gpu:4"), {}) == ("", "")
    path.write_text('[gres]\na = "no such device"\n', encoding="utf-8")
    with pytest.raises(ConfigError, match="no such device"):
        read_names(path)


def test_a_script_is_a_run_and_its_quantiles_are_limits() -> None:
    script = read_script(_SCRIPT, environment={}, line=command_line(["job.sh", "64"]))
    assert script.fields == {
        "model": "resnet50", "batch_size": 64, "epochs": 90, "gpus": 16, "nodes": 2,
        "device": "A100-SXM4-80GB",
    }  # fmt: skip
    estimate = estimate_script(_SCRIPT, environment={})
    run = estimate.run
    assert run is not None
    limits = [time_limit(estimate, quantile=each, margin=0.0) for each in (0.5, 0.9, 0.99)]
    for limit, share in zip(limits, (0.5, 0.9, 0.99), strict=True):
        assert limit.seconds is not None
        assert 0 <= limit.seconds - run.quantiles_s[round(100 * share)] < 60  # the next whole minute
        assert limit.seconds % 60 == 0
        assert limit.probability is not None
        assert share <= limit.probability < share + 0.02
    more = time_limit(estimate, quantile=0.5, margin=0.5).seconds
    assert more == pytest.approx(1.5 * run.p50_s, abs=60)
    short = time_limit(estimate, longest_s=1800.0, partition="debug")
    assert short.seconds == 1800
    assert "debug allows 0:30:00" in short.warnings[0]
    assert too_short(estimate, 10 * run.p90_s, quantile=0.95) == ""
    large = estimate_script("#PRECISION_TIME model=llama3-70b device=A100 gpus=1 steps=9\npython train.py\n")
    assert time_limit(large).why.startswith("does not fit in memory; if it did, llama3-70b, 1 x A100")
    for wrong in ({"quantile": 1.0}, {"margin": -0.1}):
        with pytest.raises(ConfigError, match="To fix"):
            time_limit(estimate, **wrong)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("#!/bin/bash\nhostname\n", "which model it trains and for how long"),
        ("#!/bin/bash\n#SBATCH --gres=gpu:4\npython train.py --model resnet50 --epochs 3\n", "on which GPU"),
        ("#!/bin/bash\n#SBATCH --gres=gpu:a100:4\npython train.py --model resnet5O --epochs 3\n", "resnet5O"),
        ("#!/bin/bash\npython 'train.py\n", "quote"),
        ("\x7fELF\0\0", "binary"),
        ("x" * 10_000_000, "1,000,000"),
        ("#PRECISION_TIME model=net.py steps=3 device=A100\npython train.py\n", "net.py"),
    ],
)
def test_what_cannot_be_read_is_a_reason(text: str, reason: str) -> None:
    estimate = estimate_script(text, environment={})
    limit = time_limit(estimate)
    assert (limit.seconds, limit.text, limit.probability) == (None, "", None)
    assert reason in limit.why
    assert "To fix" in limit.why


@pytest.fixture
def fake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str, str]]:
    """Calls `precision-time` where `sbatch` keeps its words: exit code, stdout, stderr, words."""
    for name, text in {
        "sbatch": f'#!/bin/sh\nprintf "%s|" "$@" > {tmp_path}/words\ncase "$*" in *--fail*) exit 3;; esac\n'
        f"cat > {tmp_path}/stdin\necho 'Submitted batch job 77'\n",
        "sinfo": "#!/bin/sh\necho 'gpu*|1-00:00:00'\necho 'long|infinite'\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.sh").write_text(_SCRIPT.replace("-t 10:00", ""), encoding="utf-8")

    def run(*words: str) -> tuple[int, str, str, str]:
        with pytest.raises(SystemExit) as done:
            main(words)
        said = capfd.readouterr()
        file = tmp_path / "words"
        return int(done.value.code or 0), said.out, said.err, file.read_text() if file.exists() else ""

    return run


def test_sbatch_gets_its_words_and_one_more(
    fake: Callable[..., tuple[int, str, str, str]], tmp_path: Path
) -> None:
    code, out, said, words = fake("sbatch", "-J", "a b", "--mem=4G", "job.sh", "32", "--time=5")
    assert (code, out) == (0, "Submitted batch job 77\n")
    first, *rest = words.split("|")
    assert first.startswith("--time=")
    assert rest == ["-J", "a b", "--mem=4G", "job.sh", "32", "--time=5", ""]
    assert "resnet50, 16 x A100-SXM4-80GB" in said
    [kept], broken = read_submissions(tmp_path / "data" / "slurm" / "submissions.jsonl")
    assert (kept.job_id, kept.name, kept.limit_s, broken) == (77, "a b", time_of(first[7:]), 0)
    assert kept.share_within(kept.quantile_s(0.95)) == pytest.approx(0.95)
    (tmp_path / "words").unlink()
    code, out, _, words = fake("sbatch", "--dry-run", "--json", "job.sh")
    assert (code, words, json.loads(out)["command"][-1]) == (0, "", "job.sh")
    assert fake("sbatch", "--fail", "x", "job.sh")[0] == 3
    # MaxTime of one partition is a day, the other one has none.
    asked = ("sbatch", "--dry-run", "--set", "epochs=9000", "-p")
    assert "allows 1-00:00:00 at most" in fake(*asked, "gpu", "job.sh")[2]
    assert "allows" not in fake(*asked, "long", "job.sh")[2]


@pytest.mark.parametrize("content", [b"\x7fELF\0\0\0", b"#!/bin/bash\necho 'x\n", b"x" * 10_000_000], ids=len)
def test_a_script_that_cannot_be_read_is_submitted_unchanged(
    fake: Callable[..., tuple[int, str, str, str]], tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "odd.sh").write_bytes(content)
    code, out, said, words = fake("sbatch", "--mem=4G", "odd.sh", "1")
    assert (code, out, words) == (0, "Submitted batch job 77\n", "--mem=4G|odd.sh|1|")
    assert said.count("Warning:") == 1
    assert "submitted unchanged" in said


def _job(number: int, elapsed_s: float, state: str = "COMPLETED", **more: Any) -> SlurmJob:
    stated: dict[str, Any] = {
        "job_id": number, "array_id": None, "name": "a", "cluster": "", "partition": "gpu", "state": state,
        "submitted_s": 1000.0 + number, "started_s": 2000.0, "ended_s": 2000.0 + elapsed_s, "limit_s": 6000.0,
    }  # fmt: skip
    return SlurmJob(**stated | more)


def _kept(number: int, longest_s: float = 2000.0) -> Submission:
    quantiles = tuple(longest_s * (0.5 + place / 40) for place in range(21))
    return Submission(
        job_id=number, cluster="", submitted_s=1000.0 + number, name="a", quantile=0.95, margin=0.1,
        limit_s=None, quantiles_s=quantiles, request={},
    )  # fmt: skip


def test_quantiles_that_hold_are_suggested_as_they_are() -> None:
    rng = random.Random(0)
    record = [_kept(number) for number in range(2000)]
    right = [_job(number, record[number].quantile_s(rng.random())) for number in range(2000)]
    found = history_of(right, record, quantile=0.95)
    assert found.in_time == pytest.approx(0.95, abs=0.02)
    assert found.inside == pytest.approx(0.8, abs=0.03)
    assert found.suggested_quantile == pytest.approx(0.95, abs=0.02)
    # All take 1.3 times as long: no quantile is enough, a margin is.
    slow = [_job(number, 1.3 * record[number].quantile_s(rng.random())) for number in range(2000)]
    found = history_of(slow, record, quantile=0.95)
    assert found.median_ratio == pytest.approx(1.3, rel=0.03)
    assert found.suggested_quantile is None
    assert found.suggested_margin == pytest.approx(0.3, abs=0.03)
    few = history_of(right[: FEWEST - 1], record, quantile=0.9)
    assert (few.suggested_quantile, few.suggested_margin) == (None, None)


def test_jobs_that_did_not_complete_are_left_out_and_timeouts_count_as_late() -> None:
    record = [_kept(1), _kept(2), _kept(3)]
    jobs = [_job(1, 10.0, "FAILED"), _job(2, 1200.0, "TIMEOUT"), _job(3, 1500.0), _job(9, 5.0)]
    # Numbers of jobs begin again after a while: this one was submitted long after the record's.
    jobs.append(_job(3, 7.0, submitted_s=9e6))
    found = history_of(jobs, record, quantile=0.95)
    assert [(job.job_id, job.share) for job in found.jobs] == [(2, 1.0), (3, 0.5)]
    assert (found.num_left_out, found.in_time) == (1, 0.5)
    running = _job(3, 0.0, "RUNNING", ended_s=None, started_s=2000.0)
    [live] = live_jobs([running], record, now_s=3400.0)
    assert (live.elapsed_s, live.limit_left_s) == (1400.0, 4600.0)
    assert 0.0 < live.remaining_s < 600.0


def test_what_sacct_said_is_read() -> None:
    recorded = (Path(__file__).parent / "sacct-22.05.json").read_text(encoding="utf-8")
    found = {job.job_id: job for job in jobs_of_json(recorded)}
    assert {number: (job.state, job.elapsed_s, job.limit_s) for number, job in found.items()} == {
        1: ("COMPLETED", 2.0, 420.0), 2: ("FAILED", 0.0, 420.0), 4: ("RUNNING", None, 86400.0),
        5: ("COMPLETED", 2.0, 86400.0),
    }  # fmt: skip
    assert found[5].array_id == 3
    rows = jobs_of_rows(_ROWS)
    assert [(job.job_id, job.array_id, job.state, job.elapsed_s) for job in rows] == [
        (1, None, "COMPLETED", 2.0), (4, None, "RUNNING", None), (5, 3, "CANCELLED", None),
    ]  # fmt: skip
    assert [job.job_id for job in history_of(rows, [_kept(1, 4.0)], quantile=0.95).jobs] == []
    # Newer versions have objects for numbers, and lists for states.
    newer = {
        "job_id": 7, "name": "x", "cluster": "c", "job_state": ["RUNNING"],
        "time_limit": {"set": True, "number": 5},
        "start_time": {"set": True, "infinite": False, "number": 100},
        "end_time": {"set": False, "number": 0},
    }  # fmt: skip
    [job] = jobs_of_json(json.dumps({"jobs": [newer]}))
    assert (job.state, job.limit_s, job.started_s, job.ended_s) == ("RUNNING", 300.0, 100.0, None)
    for broken in ("", "[]", '{"jobs": 3}', recorded[:500]):
        with pytest.raises(ConfigError, match="To fix"):
            jobs_of_json(broken)
    with pytest.raises(ConfigError, match="columns"):
        jobs_of_rows("1|2|3\n")


def test_a_record_that_is_damaged_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "slurm" / "record.jsonl"
    keep(_kept(1), path)
    with path.open("a", encoding="utf-8") as file:
        file.write('{"job_id": 2}\n\nnonsense\n')
    keep(_kept(3), path)
    found, broken = read_submissions(path)
    assert ([each.job_id for each in found], broken) == ([1, 3], 2)
    assert found[0] == _kept(1)


def test_a_script_is_one_question_for_estimate_and_for_predict(tmp_path: Path) -> None:
    settings = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}}
    (tmp_path / "ds.json").write_text(json.dumps(settings))
    script = tmp_path / "ds.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=a100:8\n"
        "deepspeed --num_nodes 2 --num_gpus 8 train.py --model_name_or_path meta-llama/Meta-Llama-3-8B "
        "--deepspeed ds.json --bf16 True --per_device_train_batch_size 2 --gradient_accumulation_steps 8 "
        "--model_max_length 4096 --num_train_epochs 3 --dataset_name tatsu-lab/alpaca\n"
    )
    [estimate] = estimate_file(script)
    read = read_recipe(str(script), "shell")
    request = Request.of({"device": "A100-SXM4-80GB", **read.fields})
    assert estimate.run is not None
    assert estimate.run.phases[0].prediction.step_time_s == pytest.approx(
        predict(request).step_time_s, rel=1e-9
    )
    assert any("mean_seq_len" in note for note in estimate.notes)
