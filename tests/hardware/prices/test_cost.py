"""What a run costs: terms that add up, whole instances, and rates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from precision_time.errors import CatalogError
from precision_time.hardware.prices.cost import HOURS_PER_MONTH, Term, list_rate, run_cost
from precision_time.hardware.prices.offer import Market, whole_instances
from precision_time.hardware.prices.offers import offers


def test_the_terms_add_up_over_many_runs_at_once() -> None:
    rng = np.random.default_rng(0)
    hours, devices = rng.uniform(0.1, 1e4, 1000), rng.integers(1, 5000, 1000)
    per_instance, price = rng.choice([1, 4, 8, 16], 1000), rng.uniform(0.5, 100.0, 1000)
    cost = run_cost(
        hours=hours,
        devices=devices,
        devices_per_instance=per_instance,
        usd_per_instance_hour=price,
        stored_bytes=2e12,
        storage_usd_per_gb_month=0.02,
        egress_bytes=5e11,
        egress_usd_per_gb=0.09,
    )
    assert cost.total_usd == pytest.approx(sum(cost.terms.values()))
    assert cost.devices_usd + cost.idle_devices_usd == pytest.approx(
        np.ceil(devices / per_instance) * price * hours
    )
    assert cost.storage_usd == pytest.approx(2000 * 0.02 * hours / HOURS_PER_MONTH)
    assert cost.egress_usd == pytest.approx(np.full(1000, 45.0))
    assert (cost.instances * per_instance - devices == cost.idle_devices).all()
    assert ((cost.idle_devices >= 0) & (cost.idle_devices < per_instance)).all()
    assert (cost.idle_devices_usd[cost.idle_devices == 0] == 0.0).all()


def test_nobody_rents_a_part_of_an_instance() -> None:
    assert whole_instances([1, 8, 9, 16, 17], 8).tolist() == [1, 1, 2, 2, 3]
    cost = run_cost(hours=1.0, devices=9, devices_per_instance=8, usd_per_instance_hour=8.0)
    assert (int(cost.instances), int(cost.idle_devices)) == (2, 7)
    assert float(cost.devices_usd) == pytest.approx(9.0)
    assert float(cost.idle_devices_usd) == pytest.approx(7.0)


def test_an_offer_is_priced_in_its_market_or_not_at_all() -> None:
    offer = next(o for o in offers(clouds=["aws"], regions=["us-west-2"]) if o.instance_type == "p5.48xlarge")
    assert offer.stated_price(Market.ON_DEMAND) == pytest.approx(55.04)
    assert offer.usd_per_device_hour(Market.SPOT) < offer.usd_per_device_hour() == pytest.approx(55.04 / 8)
    with pytest.raises(CatalogError, match="reserved"):
        offer.stated_price(Market.RESERVED)


@pytest.mark.parametrize(
    "wrong",
    [
        {"hours": -1.0},
        {"usd_per_instance_hour": float("nan")},
        {"usd_per_instance_hour": -2.0},
        {"devices": 0},
        {"egress_usd_per_gb": float("inf")},
    ],
)
def test_amounts_that_are_none_are_refused(wrong: dict[str, float]) -> None:
    usual = {"hours": 1.0, "devices": 8, "devices_per_instance": 8, "usd_per_instance_hour": 1.0}
    with pytest.raises(CatalogError, match=f"{next(iter(wrong))} is"):
        run_cost(**{**usual, **wrong})
    assert np.isnan(run_cost(**{**usual, "hours": float("nan")}).total_usd)  # a candidate that cannot run


def test_rates_have_a_source_and_none_is_made_up() -> None:
    for cloud in ("aws", "azure", "gcp", "oci"):
        storage, egress = list_rate(cloud, Term.STORAGE), list_rate(cloud, Term.EGRESS)
        assert storage is not None
        assert egress is not None
        assert 0.01 < storage.usd_per_gb < 0.05
        assert storage.source
        assert egress.date
    assert list_rate("nebius", Term.EGRESS) is None
    page = (Path(__file__).resolve().parents[3] / "docs/reference/prices.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:4] for line in page.splitlines() if line.count("|") == 7]
    shown = {(cloud.strip(), term.strip()): usd for cloud, term, usd in rows if term.strip() in list(Term)}
    known = [rate for cloud, _ in shown for term in Term if (rate := list_rate(cloud, term))]
    assert {(rate.cloud, rate.term): rate.usd_per_gb for rate in known} == {
        k: float(v) for k, v in shown.items()
    }
