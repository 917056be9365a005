"""Money, energy and carbon of a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from precision_time import predict_run
from precision_time.errors import ConfigError

ASKED: dict[str, Any] = {"model": "resnet50", "device": "A100", "gpus": 8, "batch_size": 256, "epochs": 2}


def hours(path: Path, values: list[float]) -> Path:
    path.write_text("hour,g_per_kwh\n" + "".join(f"{hour},{value}\n" for hour, value in enumerate(values)))
    return path


def test_money_for_a_unit_adds_up_to_the_run() -> None:
    run = predict_run(**ASKED)
    assert run.cost_usd is not None
    phase = run.phases[0]
    images = phase.steps * phase.prediction.global_batch_size
    assert run.cost_per_usd["image"] * images == pytest.approx(run.cost_usd)
    assert run.cost_per_usd["epoch"] * 2 == pytest.approx(run.cost_usd, rel=1e-3)
    low, high = run.cost_interval_usd or (math.nan, math.nan)
    assert low < run.cost_usd < high


def test_energy_is_less_sure_than_time() -> None:
    run = predict_run(**ASKED)
    assert run.energy_kwh is not None and run.energy_interval_kwh is not None
    low, high = run.energy_interval_kwh
    assert low / run.energy_kwh < run.interval.low_s / run.total_s
    assert high / run.energy_kwh > run.interval.high_s / run.total_s


def test_codecarbon_has_the_same_sums_over_phases() -> None:
    halves = predict_run(**ASKED, region="aws:us-east-1", phases=[{"share": 0.5}, {"share": 0.5}])
    assert halves.carbon_g is not None and halves.energy_kwh is not None
    assert halves.codecarbon["emissions"] == pytest.approx(halves.carbon_g / 1e3)
    assert halves.codecarbon["energy_consumed"] == pytest.approx(halves.energy_kwh)
    assert halves.codecarbon["duration"] == pytest.approx(halves.total_s)


def test_a_grid_by_the_hour(tmp_path: Path) -> None:
    flat = predict_run(**ASKED, grid_hours=hours(tmp_path / "flat.csv", [400.0] * 24))
    assert flat.carbon_g == pytest.approx(400.0 * (flat.energy_kwh or 0.0))
    night = hours(tmp_path / "night.csv", [100.0] * 12 + [500.0] * 12)
    early, late = (predict_run(**ASKED, grid_hours=night, start_hour=hour) for hour in (0, 12))
    assert early.carbon_g == pytest.approx(100.0 * (early.energy_kwh or 0.0))
    assert late.carbon_g == pytest.approx(500.0 * (late.energy_kwh or 0.0))
    with pytest.raises(ConfigError, match="grid_hours"):
        predict_run(**ASKED, start_hour=3)


def test_a_measured_power_and_the_making_of_the_hardware() -> None:
    run = predict_run(**ASKED, power=300.0, region="france", embodied_g_per_device_hour=20.0)
    busy_s = math.fsum(run.terms[name] for name in ("warm_up", "steps", "evaluation", "lost_work"))
    assert run.energy_terms_j["devices_busy"] == pytest.approx(8 * 300.0 * busy_s)
    assert run.carbon_terms_g["embodied"] == pytest.approx(20.0 * run.device_hours)


def test_own_devices_cost_their_electricity() -> None:
    card = {"model": "resnet50", "device": "RTX3090", "batch_size": 64, "epochs": 2}
    own = predict_run(**card, own=True, kwh_price=0.5)
    assert own.energy_kwh is not None
    assert own.cost_usd == pytest.approx(0.5 * own.energy_kwh)
    assert "cooling" not in {name for name, joules in own.energy_terms_j.items() if joules > 0.0}
    assert own.cost_usd < (predict_run(**card).cost_usd or 0.0)
    silent = predict_run(**card, own=True)
    assert silent.cost_usd is None
    assert "kwh_price" in " ".join(item.text for item in silent.diagnostics)
    for wrong in (
        {"kwh_price": 0.5},
        {"own": True, "cloud": "aws"},
        {"own": True, "usd_per_device_hour": 1.0},
    ):
        with pytest.raises(ConfigError, match="To fix"):
            predict_run(**card, **wrong)
