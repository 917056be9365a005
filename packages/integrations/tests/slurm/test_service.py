"""The route that job_submit.lua asks: a limit, or why there is none; scripts are text and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from precision_time_integrations.slurm.limits import time_limit
from precision_time_integrations.slurm.script import estimate_script
from precision_time_server.app import create_app
from precision_time_server.settings import Settings

_PATH = "/v1/slurm/time-limits"
_SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=8 --gres=gpu:a100:8
touch /MARK; srun python train.py --model resnet50 --batch-size 64 --epochs 90 --deepspeed_config ds.json
"""


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(Settings.of({"store": "sqlite://"}))) as found:
        yield found


def test_the_limit_is_the_one_of_the_library(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    script = _SCRIPT.replace("/MARK", str(mark))
    answer = client.post(_PATH, json={"script": script, "quantile": 0.9, "margin": 0.0})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    expected = time_limit(estimate_script(script), quantile=0.9, margin=0.0)
    assert (found["seconds"], found["text"]) == (expected.seconds, expected.text)
    assert answer.text.startswith('{"seconds":')  # the plugin knows no JSON
    assert found["comment"].startswith("precision-time p10=")
    assert "zero_stage" not in found["fields"]  # the file is not read
    assert any("ds.json" in each for each in found["unread"])
    assert not mark.exists()
    # What the job asks for wins over the script, and the partition bounds the limit.
    options = {"gres": "gpu:v100:4", "nodes": "1", "ntasks-per-node": "4", "partition": "debug"}
    other = client.post(_PATH, json={"script": script, "options": options, "longest_s": 1800}).json()
    assert (other["fields"]["device"], other["fields"]["gpus"]) == ("V100-SXM2-16GB", 4)
    assert other["seconds"] == 1800
    assert "debug" in other["warnings"][0]
    given = client.post(
        _PATH, json={"script": script, "job": {"epochs": 1, "device": "H100-SXM5-80GB"}}
    ).json()
    assert given["seconds"] < found["seconds"] / 20


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("#!/bin/bash\nhostname\n", "#PRECISION_TIME"),
        ("\x7fELF\0", "binary"),
        ("echo 'x", "quote"),
        ("", "model"),
    ],
)
def test_a_script_that_says_nothing_gets_no_limit(client: TestClient, script: str, why: str) -> None:
    answer = client.post(_PATH, json={"script": script})
    assert answer.status_code == 200
    assert answer.json()["seconds"] is None
    assert why in answer.json()["why"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422), ({"script": 3}, 422), ({"script": "x", "quantile": 1}, 422),
        ({"script": "x", "margin": -1}, 422),
        ({"script": "x", "options": {"nodes": [1]}}, 422), ({"script": "x", "job": 3}, 422),
        ({"script": "x", "job": {"calibration": "/etc/passwd"}}, 422), ({"script": "x", "wrong": 1}, 422),
        ({"script": "x" * 1_001_000}, 422), ({"script": "x" * 10_000_000}, 413),
    ],
    ids=lambda value: str(value)[:50],
)  # fmt: skip
def test_what_is_wrong_is_refused(client: TestClient, body: Any, status: int) -> None:
    answer = client.post(_PATH, json=body)
    assert answer.status_code == status, answer.text[:300]
    assert "To fix" in answer.json()["detail"]
