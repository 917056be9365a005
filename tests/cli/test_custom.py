"""A device of the user's own goes through every door that takes one."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from precision_time.planning.decision.api import plan
from precision_time.predict.api import predict_time
from precision_time.predict.changes import what_matters
from precision_time.request.request import Request

HARDWARE = str(Path(__file__).parents[2] / "docs" / "examples" / "cluster.toml")
OWN = ("-d", "A100-96", "--custom", HARDWARE)


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "resnet50", "-g", "8", "-b", "128"),
        ("predict", "resnet50", "-g", "1,8", "-b", "128"),
        ("predict", "llama3-70b", "-g", "8"),
        ("predict", "resnet50", "-g", "8", "--why"),
        ("run", "resnet50", "-g", "8", "-b", "128", "--epochs", "2"),
        ("layout", "llama3.2-1b", "-g", "4", "--workers", "1", "--top", "2"),
        ("sensitivity", "resnet50", "-g", "8", "-b", "128"),
        ("explain", "resnet50", "-p", "bf16-mixed"),
        ("precisions", "advise", "resnet50", "-g", "8"),
        ("precisions", "search", "resnet50", "-g", "8", "-p", "tf32"),
        ("plan", "resnet50", "--epochs", "2", "--max-gpus", "8", "--workers", "1"),
    ],
    ids=" ".join,
)
def test_every_command_knows_it(cli: Callable[..., Any], words: tuple[str, ...]) -> None:
    answer = cli(*words, *OWN)
    assert answer.code in (0, 3), answer.err
    assert "Unknown device" not in answer.err and "Unexpected error" not in answer.err


def test_a_sweep_knows_it(cli: Callable[..., Any], tmp_path: Path) -> None:
    grid, out = tmp_path / "grid.json", tmp_path / "grid.csv"
    given = {"model": "resnet50", "device": "A100-96", "custom": HARDWARE, "gpus": [1, 8], "batch_size": 64}
    grid.write_text(json.dumps(given))
    assert cli("sweep", str(grid), "--out", str(out), "--workers", "1").code == 0
    rows = [*csv.DictReader(out.read_text().splitlines())]
    assert [row["device"] for row in rows] == ["A100-96"] * 2 and not any(row["error"] for row in rows)


def test_a_name_of_the_file_stands_for_that_device_alone(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"  # "V100" alone may mean three devices of the catalog
    file.write_text('[device.V100]\nbase = "V100-SXM2-16GB"\nmemory_gib = 24\n')
    request = Request.of({"model": "resnet50", "device": "V100", "batch_size": 64, "custom": file})
    found = what_matters(predict_time(request), request=request)
    assert "device" not in {each.field for each in found}
    of_catalog = Request.of({"model": "resnet50", "device": "V100", "batch_size": 64})
    assert "device" in {each.field for each in what_matters(predict_time(of_catalog), request=of_catalog)}


def test_a_plan_has_the_times_links_and_prices_of_the_file(tmp_path: Path) -> None:
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "cloud,instance_type,region,device,devices_per_instance,usd_per_hour,date,source\n"
        "lab,rack,cellar,A100-96,4,8.0,2025-01-01,made up for a test\n"
    )
    asked = {"epochs": 2, "global_batch_size": 512, "custom": HARDWARE, "workers": 1}
    found = plan("resnet50", devices="a100-96", max_gpus=8, prices=prices, **asked)
    columns = found.columns()
    assert {*columns["device"]} == {"A100-96"} and sorted(columns["gpus"]) == [4, 8]
    assert found.best is not None and found.best.request["node_type"] == "our-host"
    for gpus, step_s, usd in zip(columns["gpus"], columns["step_time_s"], columns["usd"], strict=True):
        alone = predict_time("resnet50", device="A100-96", gpus=gpus, precision="bf16-mixed",
                             global_batch_size=512, epochs=2, custom=HARDWARE)  # fmt: skip
        assert step_s == pytest.approx(alone.step_time_s, rel=1e-9)
        assert usd > 0.0
    assert not found.unpriced
    assert plan("resnet50", devices="A100-96,T4", max_gpus=8, **asked).unpriced == ("A100-96",)
