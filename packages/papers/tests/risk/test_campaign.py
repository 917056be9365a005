"""A campaign's file, its table of gaps, and the command."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest

from measure_risk import main
from precision_time.errors import ConfigError, UnknownNameError
from risk_study.campaign import run_campaign
from risk_study.plan import load_risk_plan
from risk_study.summary import additivity, read_table, summarize, table_text

TINY = Path(__file__).with_name("risk.toml")


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return [{**row, "cpu_s": ""} for row in csv.DictReader(file)]


def test_a_resumed_campaign_writes_the_same_rows(tmp_path: Path) -> None:
    plan = load_risk_plan(str(TINY))
    whole, torn = tmp_path / "whole.csv", tmp_path / "torn.csv"
    assert run_campaign(plan, whole) == (10, 10)
    lines = whole.read_text().splitlines(keepends=True)
    torn.write_text("".join(lines[:4]) + lines[4][:20])
    started: list[str] = []
    assert run_campaign(plan, torn, progress=lambda *step: started.append(step[2])) == (10, 10)
    assert len(started) == 7
    assert rows_of(torn) == rows_of(whole)
    rows = summarize(rows_of(whole), "test")
    assert [row.layer_group for row in rows] == ["all", "first", "mlp", "head"]
    assert {row.seeds for row in rows} == {2}


def row(recipe: str, group: str, seed: int, loss: float, **other: object) -> dict[str, str]:
    usual: dict[str, object] = {
        "kind": "mlp", "model": "m", "recipe": recipe, "layer_group": group, "seed": seed, "optimizer": "sgd",
        "steps": 10, "planned_steps": 10, "first_loss": 6.0, "loss": loss, "diverged": 0,
        "underflow_share": 0.5, "overflow_steps": 1, "parameters": 7, "data": "d", "execution": "emulated",
        "device": "cpu", "fingerprint": "f",
    }  # fmt: skip
    return {name: str(value) for name, value in {**usual, **other}.items()}


FP32 = [row("fp32", "all", seed, loss) for seed, loss in enumerate((1.0, 2.0, 3.0))]


def test_gaps_are_taken_seed_by_seed() -> None:
    narrow = [row("fp8-mixed/current", "all", seed, loss) for seed, loss in enumerate((1.1, 2.4))]
    (found,) = summarize([*FP32, *narrow], "here")
    assert (found.precision, found.recipe, found.seeds) == ("fp8-mixed", "current", 2)
    assert found.loss_gap == pytest.approx(0.15)
    assert found.gap_spread == pytest.approx(0.1 / math.sqrt(2.0))
    assert found.fp32_spread == pytest.approx(0.5)
    assert found.baseline_loss == pytest.approx(1.5)
    assert found.progress_lost == pytest.approx((0.1 / 5.0 + 0.4 / 4.0) / 2.0)
    assert not found.counts
    assert found.overflow_share == pytest.approx(0.1)


def test_seeds_that_diverged_are_counted_and_left_out_of_the_gap() -> None:
    narrow = [row("fp16/nearest", "all", 0, 1.1), row("fp16/nearest", "all", 1, math.nan, diverged=1)]
    (found,) = summarize([*FP32, *narrow], "here")
    assert (found.diverged, found.loss_gap) == (0.5, pytest.approx(0.1))
    assert found.counts


def test_rows_of_another_plan_are_not_compared() -> None:
    other = row("bf16/nearest", "all", 0, 9.0, fingerprint="g")
    assert summarize([*FP32, other], "here") == ()


def test_the_table_is_read_back_as_it_was(tmp_path: Path) -> None:
    narrow = [row("fp16/nearest", "all", 0, math.nan, diverged=1), row("fp8-mixed/current", "a", 1, 2.5)]
    path = tmp_path / "risk.csv"
    path.write_text(table_text(summarize([*FP32, *narrow], "here")))
    assert table_text(read_table(path)) == path.read_text()
    path.write_text("kind,model\na,b\n")
    with pytest.raises(ConfigError, match="no table of measured risk.*To fix"):
        read_table(path)


def test_additivity_adds_groups_and_what_leaving_them_out_saves() -> None:
    recipe = "fp8-mixed/current"
    losses = {"all": 1.5, "a": 1.1, "b": 1.2, "all-but-a": 1.3, "all-but-b": 1.25}
    rows = summarize([FP32[0], *(row(recipe, group, 0, loss) for group, loss in losses.items())], "here")
    (found,) = additivity(rows, {"m": ("a", "b")})
    more = summarize([*FP32, *(row(recipe, name, 0, loss) for name, loss in losses.items()),
                      row(recipe, "all", 1, 9.0)], "here")  # fmt: skip
    (again,) = additivity(more, {"m": ("a", "b")})
    assert again.gap_of_all == pytest.approx(found.gap_of_all), "over the seed that all of them have"
    assert found.sum_of_gaps == pytest.approx(0.3)
    assert found.sum_of_savings == pytest.approx(0.2 + 0.25)
    assert found.gap_of_all == pytest.approx(0.5)
    assert additivity(rows, {"m": ("a", "b", "c")}) == ()


def called(*words: str) -> int:
    """Exit status of the command."""
    try:
        main(words)
    except SystemExit as done:
        return int(done.code or 0)
    return 0


def test_the_command_stores_and_shows_what_it_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, table = str(tmp_path / "risk.csv"), tmp_path / "table.csv"
    assert called("--plan", str(TINY), "--out", out, "--table", str(table), "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["trainings"], answer["planned"], len(answer["risks"])) == (10, 10, 4)
    assert [risk.layer_group for risk in read_table(table)] == [
        risk["layer_group"] for risk in answer["risks"]
    ]
    assert called("--plan", str(TINY), "--out", out) == 0
    assert "fp16-mixed/no-loss-scaling" in capsys.readouterr().out


def test_a_device_that_torch_lacks_is_refused() -> None:
    with pytest.raises(SystemExit, match="--on abacus: torch cannot use it"):
        main(("--on", "abacus"))


WRONG = {
    "no such file": (None, ConfigError, "cannot be read"),
    "no TOML": ("[[part", ConfigError, "is not TOML"),
    "no models": ("part = []", ConfigError, "model: "),
    "unknown recipe": ('recipes = ["fp16-mixed/no-loss-scaling"]', UnknownNameError, "Unknown recipe"),
    "unknown model": ('models = ["tiny"]', UnknownNameError, "Unknown model"),
    "unknown group": ('groups = ["all", "each"]', UnknownNameError, "Unknown group of layers"),
    "no steps": ("steps = 20", ConfigError, "steps"),
}


@pytest.mark.parametrize("what", WRONG)
def test_wrong_plans_say_what_to_do(what: str, tmp_path: Path) -> None:
    text, error, says = WRONG[what]
    path = tmp_path / "plan.toml"
    if text is not None:
        good = TINY.read_text()
        name, _, value = text.partition(" = ")
        wrong = f"{name} = 0" if value.isdigit() else f'{name} = ["tyni"]'
        path.write_text(good.replace(text, wrong) if text in good else text)
    with pytest.raises(error, match=f"{says}.*To fix"):
        load_risk_plan(str(path))
