"""What a run costs: terms that add up, whole instances, and rates."""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np
import pytest

from precision_time.errors import CatalogError
from precision_time.hardware.prices.cost import HOURS_PER_MONTH, run_cost, storage_rate
from precision_time.hardware.prices.offer import Market, whole_instances
from precision_time.hardware.prices.offers import offers
from precision_time.io import packaged


def test_the_terms_add_up_over_many_runs() -> None:
    rng = np.random.default_rng(0)
    for hours, devices, per_instance, price in zip(
        rng.uniform(0.1, 1e4, 1000).tolist(),
        rng.integers(1, 5000, 1000).tolist(),
        rng.choice([1, 4, 8, 16], 1000).tolist(),
        rng.uniform(0.5, 100.0, 1000).tolist(),
        strict=True,
    ):
        cost = run_cost(
            hours=hours,
            devices=devices,
            devices_per_instance=per_instance,
            usd_per_instance_hour=price,
            stored_bytes=2e12,
            storage_usd_per_gb_month=0.02,
        )
        assert cost.total_usd == pytest.approx(sum(cost.terms.values()))
        rent = math.ceil(devices / per_instance) * price * hours
        assert cost.devices_usd + cost.idle_devices_usd == pytest.approx(rent)
        assert cost.storage_usd == pytest.approx(2000 * 0.02 * hours / HOURS_PER_MONTH)
        idle = cost.instances * per_instance - devices
        assert 0 <= idle < per_instance
        idle_usd = rent * idle / (cost.instances * per_instance)
        assert cost.idle_devices_usd == pytest.approx(idle_usd, abs=1e-9 * rent)


def test_nobody_rents_a_part_of_an_instance() -> None:
    assert [whole_instances(devices, 8) for devices in (1, 8, 9, 16, 17)] == [1, 1, 2, 2, 3]
    cost = run_cost(hours=1.0, devices=9, devices_per_instance=8, usd_per_instance_hour=8.0)
    assert cost.instances == 2
    assert cost.devices_usd == pytest.approx(9.0)
    assert cost.idle_devices_usd == pytest.approx(7.0)


def test_an_offer_is_priced_in_its_market_or_not_at_all() -> None:
    offer = next(o for o in offers(clouds=["aws"], regions=["us-west-2"]) if o.instance_type == "p5.48xlarge")
    assert offer.stated_price(Market.ON_DEMAND) == pytest.approx(55.04)
    assert offer.usd_per_device_hour(Market.SPOT) < offer.usd_per_device_hour() == pytest.approx(55.04 / 8)
    with pytest.raises(CatalogError, match="reserved"):
        offer.stated_price(Market.RESERVED)


def test_rates_have_a_source_and_none_is_made_up() -> None:
    table = packaged("precision_time.hardware.prices", "data/rates.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(table.splitlines()):
        assert 0.01 < float(row["usd_per_gb"]) <= 0.2
        assert row["source"]
        assert row["date"]
    assert storage_rate("nebius") is None
    page = (Path(__file__).resolve().parents[3] / "docs/reference/prices.md").read_text(encoding="utf-8")
    table = page.partition("## Storage")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.count("|") == 6][2:]
    shown = {cloud.strip(): float(usd) for cloud, usd in rows}
    assert {cloud: rate for cloud in shown if (rate := storage_rate(cloud))} == shown
    assert len(shown) == 5
