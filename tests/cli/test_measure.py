"""`precision-time measure`: listing, a run on the processor, going on where it stopped."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

PLAN = str(Path(__file__).parents[2] / "packages/integrations/tests/measure/tiny.toml")


def test_the_list_needs_no_device(cli: Callable[..., object]) -> None:
    answer = cli("measure", "--list", "--plan", "cuda", "--what", "steps", "--models", "resnet50", "--json")
    points = json.loads(answer.out)["points"]
    assert answer.code == 0
    assert "resnet50/bf16-mixed/b128/sgd_with_momentum/i224" in points
    assert all(point.startswith("resnet50/") for point in points)
    table = cli("measure", "--list", "--plan", "cuda", "--ops", "bmm", "--what", "ops")
    assert "40 trials of the plan cuda" in table.out


def test_a_run_writes_rows_and_goes_on_where_it_stopped(cli: Callable[..., object], tmp_path: Path) -> None:
    words = (
        *("measure", "--what", "ops", "--plan", PLAN, "--ops", "linear,optimizer", "--out", str(tmp_path)),
        *("--on", "cpu", "--device", "CPU-Xeon-Platinum-8480+", "--json"),
    )
    first = json.loads(cli(*words).out)
    assert (first["measured_ops"], first["skipped"], first["failed"]) == (10, 0, {})
    with open(first["files"]["ops"], encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["device"] for row in rows} == {"CPU-Xeon-Platinum-8480+"}
    assert {row["source"] for row in rows} == {"own-cpu-xeon-platinum-8480"}
    assert {(row["op"], row["phase"]) for row in rows} == {
        ("linear", "fwd"), ("linear", "bwd"), ("optimizer", "step"),
    }  # fmt: skip
    assert all(float(row["latency_ms"]) > 0 and json.loads(row["shape"]) for row in rows)
    again = cli(*words[:-1])
    assert "already stored" in again.out and "10" in again.out
    with open(first["files"]["ops"], encoding="utf-8", newline="") as file:
        assert len(list(csv.DictReader(file))) == 10


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--what", "nothing", "--list", "--plan", "cuda"), "ops, steps or all"),
        (("--plan", "no-such.toml", "--list"), "cannot be read"),
        (("--precisions", "fp33", "--list", "--plan", "cuda"), "fp33"),
        (("--on", "abacus"), "auto, cuda or cpu"),
    ],
)
def test_mistakes_exit_with_two_and_a_way_out(
    cli: Callable[..., object], words: tuple[str, ...], says: str
) -> None:
    answer = cli("measure", *words)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err and "To fix" in answer.err
