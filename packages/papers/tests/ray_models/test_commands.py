from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from precision_time.errors import ConfigError
from precision_time_papers.cli.performance import performance_models, performance_predict

APP = typer.Typer()
APP.command()(performance_models)
APP.command()(performance_predict)
STUDY = """
data: points.csv
target: epoch_time_s
columns: [num_workers, num_samples]
roles: {workers: num_workers, size: num_samples}
features: {inverse: all, terms: [ernest]}
techniques: [ridge, nnls]
validation: {method: extrapolation, bounds: {num_samples: 600}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    lines = [
        f"{w},{s},{0.5 + 0.01 * s / w + 0.1 * w}" for w in (1, 2, 4) for s in (100, 200, 400, 600, 800, 1000)
    ]
    text = "num_workers,num_samples,epoch_time_s\n" + "\n".join(lines)
    (tmp_path / "points.csv").write_text(text, encoding="utf-8")
    (tmp_path / "study.yaml").write_text(STUDY, encoding="utf-8")
    return tmp_path


def run(*arguments: object) -> str:
    done = CliRunner().invoke(APP, [str(item) for item in arguments])
    if done.exception is not None:
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_fit_then_predict(folder: Path) -> None:
    text = run("performance-models", folder / "study.yaml", "--out", folder / "m.ptm")
    assert "nnls" in text and "Validated by extrapolation: 6 points" in text
    asked = ("--set", "num_workers=4", "--set", "num_samples=2000")
    told = json.loads(run("performance-predict", folder / "m.ptm", *asked, "--json"))
    (answer,) = told["predictions"]
    assert answer["epoch_time_s"] == pytest.approx(0.5 + 0.01 * 2000 / 4 + 0.4, rel=0.05)
    assert told["remarks"] == ["num_samples = 2000 lies outside the measured 100 to 1000: extrapolated."]
    assert answer["flags"] == []


def test_strict_refuses_what_is_flagged(folder: Path) -> None:
    run("performance-models", folder / "study.yaml", "--out", folder / "m.ptm")
    asked = ("--set", "num_workers=4", "--set", "num_samples=90000")
    told = json.loads(run("performance-predict", folder / "m.ptm", *asked, "--json"))
    (answer,) = told["predictions"]
    assert [flag["kind"] for flag in answer["flags"]] == ["beyond"]
    assert any(line.startswith("Flagged, beyond: num_samples lies 90 times") for line in told["remarks"])
    with pytest.raises(ConfigError, match="Row 1 is refused by --strict: num_samples lies 90 times"):
        run("performance-predict", folder / "m.ptm", *asked, "--strict")


def test_the_cheapest_under_a_deadline(folder: Path) -> None:
    run("performance-models", folder / "study.yaml", "--out", folder / "m.ptm")
    asked = (
        "--set",
        "num_samples=1000",
        "--ray-workers",
        "1..4",
        "--price-per-hour",
        "2",
        "--deadline",
        "5s",
    )
    told = json.loads(run("performance-predict", folder / "m.ptm", *asked, "--json"))
    times = {row["num_workers"]: row["epoch_time_s"] for row in told["predictions"]}
    assert times[1.0] > 5.0 >= times[3.0]
    assert told["cheapest"]["num_workers"] == min(count for count, time in times.items() if time <= 5.0)
    cost = next(row["cost"] for row in told["predictions"] if row["num_workers"] == 4.0)
    assert cost == pytest.approx(2.0 * 4.0 * times[4.0] / 3600.0)


def test_json_is_all_there_is_on_stdout(folder: Path) -> None:
    told = json.loads(run("performance-models", folder / "study.yaml", "--json"))
    assert [row["technique"] for row in told["techniques"]][0] == told["chosen"][0]["technique"]
    assert {row["line"] for row in told["held_out"]} == {6, 7, 12, 13, 18, 19}


def test_questions_from_a_file(folder: Path) -> None:
    run("performance-models", folder / "study.yaml", "--out", folder / "m.ptm")
    told = json.loads(run("performance-predict", folder / "m.ptm", "--jobs", folder / "points.csv", "--json"))
    assert len(told["predictions"]) == 18


def test_plots_are_written(folder: Path) -> None:
    run("performance-models", folder / "study.yaml", "--plots", folder / "plots", "--json")
    names = {path.name for path in (folder / "plots").iterdir()}
    assert names == {"predicted-against-measured.svg", "time-against-num-workers.svg"}
    assert all("<svg" in path.read_text(encoding="utf-8") for path in (folder / "plots").iterdir())


def test_what_cannot_be_asked_is_refused(folder: Path) -> None:
    run("performance-models", folder / "study.yaml", "--out", folder / "m.ptm")
    with pytest.raises(ConfigError, match="Give either --set COLUMN=VALUE or --jobs"):
        run("performance-predict", folder / "m.ptm")
    with pytest.raises(ConfigError, match="--set num_workers is not of the form COLUMN=VALUE"):
        run("performance-predict", folder / "m.ptm", "--set", "num_workers")
    with pytest.raises(ConfigError, match="its folder does not exist"):
        run("performance-models", folder / "study.yaml", "--out", folder / "none" / "m.ptm")
