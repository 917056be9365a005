"""Power, energy and carbon: terms that add up, bounds, published figures, codecarbon's arithmetic by hand."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precision_time.arrays import Number
from precision_time.cost.terms import METHOD_TERMS, TERMS
from precision_time.errors import CatalogError, ConfigError, UnknownNameError
from precision_time.hardware.catalog import get_device, known_devices
from precision_time.hardware.prices.offers import offers
from precision_time.planning.energy.energy import Pue, pue_of, run_energy
from precision_time.planning.energy.grid import (
    HourlyIntensity,
    intensity,
    known_intensities,
    read_hourly,
    table,
)
from precision_time.planning.energy.power import (
    device_power_w,
    host_power_w,
    idle_power_w,
    log_power_spread,
    power_constants,
)

H100 = get_device("H100-SXM5-80GB")
A100 = get_device("A100-SXM4-80GB")
STEP = {"gemm_s": 0.6, "memory_bound_s": 0.1, "data_exposed_s": 0.2, "host_stall_s": 0.1}


def test_named_terms_are_those_of_a_step() -> None:
    named = power_constants()["terms"]
    assert {name for names in named.values() for name in names} <= {t.name for t in (*TERMS, *METHOD_TERMS)}
    assert not set(named["waiting"]) & set(named["memory"])


def test_power_lies_between_idle_and_the_tdp() -> None:
    random = np.random.default_rng(0)
    seconds = random.exponential(size=(len(TERMS), 500))
    terms: dict[str, Number] = {term.name: row for term, row in zip(TERMS, seconds, strict=True)}
    for device in known_devices():
        power_w = device_power_w(device, terms, mfu=random.uniform(0.0, 1.0, 500))
        assert np.all(idle_power_w(device) <= power_w)
        assert np.all(power_w <= device.tdp_w)
        assert 0.0 < host_power_w(device) < device.tdp_w + 200.0


def test_measured_devices_have_their_own_share() -> None:
    p100 = get_device("P100-PCIE-16GB")
    assert device_power_w(p100, {"gemm_s": 1.0}, mfu=0.5) < 0.7 * p100.tdp_w
    assert log_power_spread(p100) < log_power_spread(get_device("MI300X"))
    assert set(power_constants()["busy_of"]) <= {device.name for device in known_devices()}


def test_power_grows_with_utilization_and_falls_with_waiting() -> None:
    utilizations = np.linspace(0.0, 0.6, 20)
    assert np.all(np.diff(device_power_w(H100, STEP, mfu=utilizations)) > 0.0)
    waiting: dict[str, Number] = {**STEP, "host_stall_s": np.linspace(0.0, 5.0, 20)}
    assert np.all(np.diff(device_power_w(H100, waiting, mfu=0.4)) < 0.0)
    assert device_power_w(H100, {"host_stall_s": 1.0}, mfu=0.0) == pytest.approx(idle_power_w(H100))


def test_arrays_give_what_scalars_give() -> None:
    random = np.random.default_rng(1)
    count = 50
    terms: dict[str, Number] = {name: random.uniform(0.01, 1.0, count) for name in STEP}
    asked: dict[str, Any] = {
        "mfu": random.uniform(0.0, 0.7, count),
        "devices": random.integers(1, 99, count),
        "busy_s": random.uniform(10.0, 1e6, count),
        "waiting_s": random.uniform(0.0, 1e4, count),
    }
    place = intensity("DEU")
    together = run_energy(device=A100, terms=terms, intensity=place, pue=1.2, **asked)
    for i in range(count):
        alone = run_energy(
            device=A100,
            terms={name: np.asarray(value)[i] for name, value in terms.items()},
            intensity=place,
            pue=1.2,
            **{name: value[i] for name, value in asked.items()},
        )
        assert float(together.energy_j[i]) == pytest.approx(float(alone.energy_j), rel=1e-12)
        assert together.carbon_g is not None and alone.carbon_g is not None
        assert float(together.carbon_g[i]) == pytest.approx(float(alone.carbon_g), rel=1e-12)


def test_terms_add_up() -> None:
    found = run_energy(
        device=H100,
        devices=16,
        busy_s=3600.0,
        waiting_s=600.0,
        power_w=500.0,
        host_w=200.0,
        network_w=50.0,
        pue=1.25,
        intensity=intensity("FRA"),
        embodied_g_per_device_hour=10.0,
    )
    busy_j, waiting_j = 16 * 3600 * 500.0, 16 * 600 * idle_power_w(H100)
    beside_j = 16 * 4200 * 250.0
    assert float(found.energy_j) == pytest.approx(1.25 * (busy_j + waiting_j + beside_j))
    assert float(found.terms_j["cooling"]) == pytest.approx(0.2 * float(found.energy_j))
    per_kwh = intensity("FRA").g_per_kwh
    assert found.carbon_g is not None
    embodied_g = 16 * 4200 / 3600 * 10.0
    assert float(found.carbon_g) == pytest.approx(float(found.energy_kwh) * per_kwh + embodied_g)


@pytest.mark.parametrize("row", table("measured_power.csv")[::9], ids=lambda row: row["source"])
def test_the_table_of_measurements_is_in_its_units(row: dict[str, str]) -> None:
    device = get_device(json.loads(row["job"])["device"])
    devices = 8 if row["scope"] == "node" else 1
    assert 0.1 * device.tdp_w < float(row["power_w"]) / devices < 1.4 * device.tdp_w


def test_published_nodes_are_in_band() -> None:
    # SMC, MLPerf Training v4.0, 64 nodes of 8 H100, GPT-3 175B: 6,849 W at the node.
    step = {"gemm_s": 0.76, "memory_bound_s": 0.04, "tensor_exposed_s": 0.2}
    node_w = 8 * (device_power_w(H100, step, mfu=0.43) + host_power_w(H100))
    assert 0.85 * 6849 < node_w < 1.15 * 6849
    # BLOOM, 1,082,990 device-hours: its 433 MWh take the whole TDP, so a draw must be 60 to 100 % of it.
    bloom = run_energy(
        device=A100, devices=384, busy_s=1_082_990 / 384 * 3600, terms=step, mfu=0.4, pue=1.0, host_w=0.0
    )
    assert 0.6 * 433.2e3 < float(bloom.energy_kwh) < 433.2e3


def test_codecarbon_counts_the_same() -> None:
    # By hand as its tracker does: each power x hours x PUE, added; emissions = energy x intensity / 1000.
    hours, gpu_w, host_w, pue = 3.0, 300.0, 85.0, 1.2
    found = run_energy(
        device=A100,
        devices=1,
        busy_s=hours * 3600,
        power_w=gpu_w,
        host_w=host_w,
        pue=pue,
        intensity=intensity("DEU"),
    ).to_codecarbon()
    gpu_kwh, cpu_kwh = gpu_w * hours / 1e3 * pue, host_w * hours / 1e3 * pue
    assert found["gpu_energy"] == pytest.approx(gpu_kwh)
    assert found["cpu_energy"] == pytest.approx(cpu_kwh)
    assert found["energy_consumed"] == pytest.approx(gpu_kwh + cpu_kwh)
    assert found["emissions"] == pytest.approx((gpu_kwh + cpu_kwh) * 380.95 / 1e3)
    assert found["emissions_rate"] == pytest.approx(found["emissions"] / (hours * 3600))
    assert found["gpu_power"] == pytest.approx(gpu_w) and found["cpu_power"] == pytest.approx(host_w)
    assert (found["country_iso_code"], found["country_name"], found["on_cloud"]) == ("DEU", "Germany", "N")


def test_every_place_is_found_by_its_name() -> None:
    places = known_intensities()
    for each in places:
        assert intensity(each.name) == each and each.country_name
        assert 0.0 <= each.g_per_kwh < 1400.0
    assert len({each.name for each in places}) == len(places) > 500


def test_a_region_has_the_figure_of_its_cloud_or_its_grid() -> None:
    assert intensity("us-central1", cloud="gcp").g_per_kwh == 430.0
    assert intensity("AWS:us-east-1").g_per_kwh == intensity("US-MIDA-PJM").g_per_kwh
    assert intensity("germany") == intensity("DEU")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("Germny", "Germany"),
        ("aws:us-est-1", "aws:us-east-1"),
        ("asw:us-east-1", "aws"),
    ],
)
def test_unknown_places_name_the_nearest(place: str, words: str) -> None:
    with pytest.raises(UnknownNameError, match=words):
        intensity(place)


def test_a_name_of_two_places_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"GEO, US-GA"):
        intensity("Georgia")


def test_pue_says_whose_it_is() -> None:
    assert pue_of("aws", "us-east-1").cloud == "aws"
    assert pue_of("nebius").cloud == "" and "Uptime" in pue_of("nebius").source
    with pytest.raises(ConfigError, match="cannot be"):
        Pue(value=0.9, year=None, source="given")


def test_mean_of_hours(tmp_path: Path) -> None:
    day = HourlyIntensity(g_per_kwh=tuple(map(float, range(24))), source="day")
    start, hours = np.array([0.0, 23.0, 12.0, 1.5]), np.array([24.0, 2.0, 30.0, 1.0])
    found = day.mean_g_per_kwh(start_hour=start, duration_s=hours * 3600)
    assert found == pytest.approx([11.5, 11.5, 363 / 30, 1.5])
    path = tmp_path / "hours.csv"
    path.write_text("hour,g_per_kwh\n" + "".join(f"{hour},{hour}\n" for hour in range(24)))
    assert read_hourly(path).g_per_kwh == day.g_per_kwh
    path.write_text("hour,g_per_kwh\n0,100\n")
    with pytest.raises(ConfigError, match="at least 24"):
        read_hourly(path)
    path.write_text("hour,grams\n0,100\n")
    with pytest.raises(ConfigError, match="To fix"):
        read_hourly(path)


def test_devices_without_a_tdp_are_said() -> None:
    unknown = dataclasses.replace(H100, name="my-gpu", tdp_w=0.0)
    with pytest.raises(CatalogError, match="my-gpu.*tdp_w"):
        device_power_w(unknown, STEP)


@pytest.mark.parametrize(
    "wrong",
    [{"devices": -1}, {"busy_s": np.nan}, {"power_w": -1.0}, {"mfu": -0.1}, {"pue": 0.5}, {"terms": {}}],
)
def test_wrong_numbers_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="To fix"):
        run_energy(**{"device": H100, "devices": 8, "busy_s": 60.0, "terms": STEP, **wrong})  # type: ignore[arg-type]


def test_no_place_no_carbon() -> None:
    found = run_energy(device=H100, devices=8, busy_s=60.0, terms=STEP)
    assert found.carbon_g is None
    with pytest.raises(ConfigError, match="known place"):
        found.to_codecarbon()
    assert float(found.energy_j) / 3.6e6 == pytest.approx(float(found.energy_kwh))


WITHOUT_PLACE = {"crusoe", "hyperbolic", "lium", "runpod", "spheron", "vast", "yotta"}
"""Marketplaces, and lists that name a country or no place at all: which grid feeds them is not known."""


def test_every_region_with_a_price_has_an_intensity() -> None:
    regions = {(offer.cloud, offer.region) for offer in offers() if offer.cloud not in WITHOUT_PLACE}
    assert len(regions) > 50
    for cloud, region in regions:
        assert intensity(region, cloud=cloud).g_per_kwh > 0.0
