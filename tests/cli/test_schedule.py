"""`precision-time schedule`: its output in the three forms, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "docs/examples"
JOBS = """\
version: 1
gpus: [4, 8]
jobs:
  - {name: one, model: resnet50, steps: 20000, batch_size: 64, deadline: 1m}
  - {name: two, model: resnet50, steps: 20000, batch_size: 64, precision: [fp32, fp16-mixed]}
"""


def test_plan_as_json_and_pictures(cli: Callable[..., Any], tmp_path: Path) -> None:
    jobs, chart, page = tmp_path / "jobs.yaml", tmp_path / "plan.svg", tmp_path / "plan.html"
    jobs.write_text(JOBS)
    cluster = str(EXAMPLES / "queue-cluster.yaml")
    call = ["schedule", str(jobs), "--inventory", cluster, "--objective", "deadlines", "--time-limit", "60"]
    found = cli(*call, "--json", "--out", str(chart), "--out", str(page))
    assert found.code == 3, "a deadline of a minute is missed"
    plan = json.loads(found.out)
    assert [job["name"] for job in plan["jobs"]] == ["one", "two"]
    assert plan["jobs"][1]["precision"] == "fp16-mixed" and plan["jobs"][0]["on_time_probability"] == 0.0
    assert "<svg" in chart.read_text() and "even alone" in page.read_text()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--objective", "speed"], "Unknown objective 'speed'"),
        (["--quantile", "1"], "between 0 and 1"),
        (["--time-limit", "0"], "above 0"),
        (["--start", "tomorrow"], "not a date"),
        (["--out", "plan.pdf"], "said by its ending"),
    ],
)
def test_options_that_break_a_rule(
    cli: Callable[..., Any], tmp_path: Path, options: list[str], said: str
) -> None:
    jobs = tmp_path / "jobs.yaml"
    jobs.write_text(JOBS)
    found = cli("schedule", str(jobs), "--inventory", str(EXAMPLES / "queue-cluster.yaml"), *options)
    assert found.code == 2
    assert said in found.err and "To fix" in found.err
