"""`evaluate` scores the shipped predictor on a file and drops no row."""

from __future__ import annotations

import csv
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

COLUMNS = (
    *("source", "model", "framework", "device", "devices", "precision"),
    *("batch_per_device", "throughput", "throughput_unit"),
)
ROWS = [
    ("mine", "resnet50", "pytorch", "A100-SXM4-40GB", "1", "fp16-mixed", "128", "1250", "images/s"),
    ("mine", "resnet50", "pytorch", "V100-SXM2-16GB", "8", "fp32", "64", "2900", "images/s"),
    ("mine", "no-such-network", "pytorch", "V100-SXM2-16GB", "1", "fp32", "64", "100", "images/s"),
]


@pytest.fixture
def measurements(tmp_path: Path) -> Path:
    path = tmp_path / "runs.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerows([COLUMNS, *ROWS])
    return path


def test_json_holds_the_scores_and_the_groups(cli: Callable[..., Any], measurements: Path) -> None:
    answer = cli("evaluate", "--measurements", str(measurements), "--group-by", "precision", "--json")
    report = json.loads(answer.out)
    assert (report["n"], report["n_unsupported"]) == (2, 1)
    assert sum(report["unsupported_reasons"].values()) == 1
    assert {"mape_percent", "median_ape_percent", "p90_ape_percent", "interval_coverage"} <= report.keys()
    assert set(report["groups"]["precision"]) == {"fp16-mixed", "fp32"}
    assert report["mape_percent"] == pytest.approx(
        sum(group["mape_percent"] for group in report["groups"]["precision"].values()) / 2
    )


def test_rows_come_back_whole(cli: Callable[..., Any], measurements: Path, tmp_path: Path) -> None:
    out = tmp_path / "scored.csv"
    answer = cli("evaluate", "--measurements", str(measurements), "--rows", str(out))
    assert answer.code == 0
    assert str(out) in answer.err
    with out.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [tuple(row[name] for name in COLUMNS) for row in rows] == ROWS
    assert [row["supported"] for row in rows] == ["true", "true", "false"]
    assert float(rows[0]["measured_step_time_s"]) == pytest.approx(128 / 1250)
    assert float(rows[0]["interval_low_s"]) < float(rows[0]["predicted_step_time_s"])
    assert rows[2]["reason"]


def test_the_table_names_the_reasons(cli: Callable[..., Any], measurements: Path) -> None:
    out = cli("evaluate", "--measurements", str(measurements), "--group-by", "device").out
    assert "A100-SXM4-40GB" in out
    assert "Not predicted: 1" in out


def test_an_unknown_column_to_group_by_is_an_error(cli: Callable[..., Any], measurements: Path) -> None:
    answer = cli("evaluate", "--measurements", str(measurements), "--group-by", "colour")
    assert (answer.code, answer.out) == (2, "")
    assert "colour" in answer.err


@pytest.mark.parametrize("command", ["evaluate", "calibrate", "train"])
@pytest.mark.parametrize("name", ["campaign.sqlite", "trials.csv"])
def test_a_campaign_is_exported_before_it_is_read(
    cli: Callable[..., Any], tmp_path: Path, command: str, name: str
) -> None:
    """Trials become steps where campaigns are run; what reads steps says how."""
    path = tmp_path / name
    if path.suffix == ".csv":
        path.write_text("model,num_workers,batch_per_worker,step_time_s\nresnet50,2,8,0.1\n")
    else:
        with closing(sqlite3.connect(path)) as store:
            store.execute("CREATE TABLE points (key)")
    given = (
        ["--out", str(tmp_path / "mine"), "--measurements", str(path)] if command == "train" else [str(path)]
    )
    answer = cli(command, *given)
    assert answer.code == 2
    assert "precision-time papers campaign export" in answer.err and "--corpus --out" in answer.err
