"""Prices: the table that ships, what is read of others, and the one figure that compares devices."""

from __future__ import annotations

import csv
import datetime
import json
from pathlib import Path

import pytest

from precision_time.cli.main import main
from precision_time.errors import CatalogError, UnknownNameError
from precision_time.hardware.catalog import get_device
from precision_time.hardware.prices.currency import Currency, parse_currency
from precision_time.hardware.prices.offer import Market
from precision_time.hardware.prices.offers import (
    cheapest_offer,
    known_regions,
    newest_lists,
    offers,
    ranked,
    usd_per_device_hour,
    with_reserved,
)
from precision_time.hardware.prices.reading import (
    COLUMNS,
    read_own_lists,
    read_prices,
    read_table,
    written_table,
)

PUBLISHED = {
    "A100": 1.10, "A100-SXM4-40GB": 1.10, "A100-PCIE-40GB": 1.10, "A100-SXM4-80GB": 1.50, "A10": 0.60,
    "A100-PCIE-80GB": 1.50, "A10G": 1.006, "A6000": 0.80, "B200-SXM-180GB": 5.50, "Gaudi": 1.638625,
    "H100-PCIE-80GB": 1.99, "H100-SXM5-80GB": 2.95, "H200-SXM-141GB": 3.50, "K80": 0.90, "L40S": 1.5484,
    "M60": 0.75, "P100": 1.275, "P100-PCIE-16GB": 1.275, "RTX6000-Quadro": 0.50, "QuadroRTX6000": 0.50,
    "T4": 0.526, "V100": 0.55, "V100-SXM2-16GB": 0.55, "V100-SXM2-32GB": 2.754,
}  # fmt: skip
"""What the published comparisons of predictors took; the pages of evaluation stand on it."""

CATALOGUE = """\
InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,SpotPrice,Region,AvailabilityZone
p4d.24xlarge,A100,8.0,96,1152,21.96,7.50,us-east-1,use1-az1
p4d.24xlarge,A100,8.0,96,1152,21.96,2.50,us-east-1,use1-az2
g5.xlarge,A10G,1.0,4,16,1.006,,us-east-1,use1-az1
inf2.xlarge,Inferentia2,1.0,4,16,0.758,,us-east-1,use1-az1
weird.large,Warp-9000,1.0,4,16,1.0,,us-east-1,use1-az1
part.large,A10G,0.5,4,16,1.0,,us-east-1,use1-az1
m5.large,,,2,8,0.096,,us-east-1,use1-az1
"""
ATTACHED = """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice
a2-highgpu-8g,96.0,680.0,,,,us-central1,us-central1-a,5.9,2.9
,,,A100,8,,us-central1,us-central1-a,23.5,11.5
,,,T4,1,,us-central1,us-central1-a,0.35,0.1
,,,tpu-v5p-8,1,tpu-v5p-8,us-central1,us-central1-a,16.8,3.3
,,,tpu-v6e-4,1,tpu-v6e-4,us-central2,us-central2-b,700.0,700.0
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    """A folder like that of SkyPilot, with an older edition beside."""
    for name, text in (
        ("v7/aws", CATALOGUE.replace("21.96", "32.77")),
        ("v8/aws", CATALOGUE),
        ("v8/gcp", ATTACHED),
    ):
        (tmp_path / "catalogs" / name).mkdir(parents=True)
        (tmp_path / "catalogs" / name / "vms.csv").write_text(text)
    return tmp_path / "catalogs"


def own_table(tmp_path: Path, *rows: dict[str, str]) -> Path:
    usual = {
        "cloud": "mine", "instance_type": "box", "region": "cellar", "device": "A100-SXM4-80GB",
        "devices_per_instance": "8", "usd_per_hour": "10", "date": "2025-01-01", "source": "bill",
    }  # fmt: skip
    path = tmp_path / "own.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows([{**usual, **row} for row in rows])
    return path


def test_every_row_that_ships_is_taken_and_its_device_is_known() -> None:
    for reference in (False, True):
        table = read_table(reference=reference)
        assert not table.left_out
        assert len(table.offers) == table.rows > 1000
    for offer in read_table().offers:
        assert get_device(offer.device).name == offer.device
        node = offer.node_type
        assert node is None or node.device == offer.device or node.domain > 0
    found = {offer.instance_type: offer.node_type for offer in offers(clouds=["aws"])}
    assert found["p4d.24xlarge"] is not None
    assert found["p4d.24xlarge"].inter_node == "efa 4x100Gbps"


def test_the_published_figures_are_those_of_the_rule() -> None:
    assert {name: usd_per_device_hour(name) for name in PUBLISHED} == pytest.approx(PUBLISHED)
    assert usd_per_device_hour("A100-SXM4") is None  # a name the lists do not have: not guessed
    assert usd_per_device_hour("MI300X") is None  # has an offer now, but none in the reference editions
    assert offers(devices=["MI300X"])


def test_offers_are_the_newest_of_each_place() -> None:
    places = [(offer.cloud, offer.region, offer.instance_type, offer.device) for offer in offers()]
    assert len(places) == len(set(places))
    p4d = next(o for o in offers(clouds=["aws"], regions=["us-east-1"]) if o.instance_type == "p4d.24xlarge")
    assert p4d.usd_per_hour == 21.9576  # 32.77 in 2023
    assert all(offer.host_included for offer in offers())
    assert not all(offer.host_included for offer in offers(without_host=True))


def test_unknown_names_offer_the_nearest() -> None:
    for options, nearest in (
        ({"clouds": ["asw"]}, "aws"),
        ({"regions": ["us-est-1"]}, "us-east-1"),
        ({"regions": ["aws:us-central1"]}, "us-central1"),
        ({"devices": ["H10"]}, "H100"),
    ):
        with pytest.raises(UnknownNameError, match=nearest):
            offers(**options)  # type: ignore[arg-type]
    assert "us-east-1" in known_regions()["aws"]
    with pytest.raises(UnknownNameError, match="EUR"):
        parse_currency("ERU=1")
    for rate in ("EUR", "EUR=0", "EUR=-1", "EUR=nan", "EUR=x", "USD=2"):
        with pytest.raises(CatalogError, match="To fix"):
            parse_currency(rate)
    assert parse_currency("eur=0.5") == Currency(code="EUR", per_usd=0.5)


def test_a_market_without_a_price_is_said() -> None:
    offer = next(o for o in offers(clouds=["gcp"], devices=["H100"]) if o.usd_per_hour is None)
    assert offer.price(Market.RESERVED) is None
    with pytest.raises(CatalogError, match="take spot"):
        offer.stated_price(Market.ON_DEMAND)
    discounted = with_reserved(offers(devices=["A10"]), 0.4)
    assert all(o.reserved_usd_per_hour == pytest.approx(0.6 * (o.usd_per_hour or 0)) for o in discounted)
    for discount in (1.0, -0.1, float("nan")):
        with pytest.raises(CatalogError, match="share"):
            with_reserved((), discount)


def test_a_catalogue_is_read_as_it_is_meant(catalogue: Path) -> None:
    read = read_prices(catalogue, date="2025-11-01")
    found = {offer.instance_type: offer for offer in read.offers}
    assert len(found) == len(read.offers) == 5
    assert found["p4d.24xlarge"].spot_usd_per_hour == 2.5  # the lowest zone
    assert found["p4d.24xlarge"].usd_per_hour == 21.96  # of v8, not of v7
    assert found["p4d.24xlarge"].device == "A100-SXM4-40GB"
    assert found["a2-highgpu-8g"].usd_per_hour == pytest.approx(29.4)  # host and accelerators
    assert found["tpu-v5p-8"].devices_per_instance == 4
    assert found["tpu-v5p-8"].host_included
    assert not found["accelerator"].host_included
    assert sum(read.left_out.values()) == 4  # Inferentia, unknown, a part, the slice without a price
    assert read.left_out["unknown device 'Warp-9000'"] == 1
    assert read.cells == {"a placeholder, no price": 2}
    assert any("older edition" in note for note in read.notes)


def test_what_is_written_is_read_back(catalogue: Path, tmp_path: Path) -> None:
    read = read_prices(catalogue, date="2025-11-01")
    (tmp_path / "prices.csv").write_text(written_table(read.offers))
    assert set(read_prices(tmp_path / "prices.csv").offers) == set(read.offers)


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("-1", "below zero"),
        ("0", "zero"),
        ("nan", "not a number"),
        ("inf", "not a number"),
        ("=1+1", "not a number"),
    ],
)
def test_a_price_that_is_none_is_left_out_and_said(tmp_path: Path, cell: str, reason: str) -> None:
    path = own_table(tmp_path, {}, {"instance_type": "other", "usd_per_hour": cell, "spot_usd_per_hour": "2"})
    read = read_prices(path)
    assert read.cells == {reason: 1}
    assert [offer.usd_per_hour for offer in read.offers] == [10.0, None]
    with pytest.raises(CatalogError, match=reason):
        read_prices(own_table(tmp_path, {"usd_per_hour": cell}))


def test_rows_that_are_no_offer_are_counted_by_reason(tmp_path: Path) -> None:
    wrong = {
        "unknown device 'X1'": {"device": "X1"},
        "no region": {"region": ""},
        "no whole number of devices": {"devices_per_instance": "0.5"},
        "no date (like 2025-03-07)": {"date": "yesterday"},
        "a date in the future": {"date": "2999-01-01"},
        "an older or equal row of the same instance and region": {"date": "2024-01-01", "usd_per_hour": "99"},
    }
    read = read_prices(own_table(tmp_path, {}, *wrong.values()))
    assert read.left_out == dict.fromkeys(wrong, 1)
    assert [offer.usd_per_hour for offer in read.offers] == [10.0]
    path = own_table(tmp_path, {})
    path.write_text(path.read_text() + "mine,box,cellar, an unquoted comma,T4,1,1,,,2025,bill,1\nmine\n")
    assert read_prices(path).left_out == {"not one cell per column": 2}
    assert read_prices(own_table(tmp_path, {"device": "X1"}), own=["X1"]).offers[0].device == "X1"
    for text in ("", "a,b\n1,2\n", "\x00\n"):
        (tmp_path / "own.csv").write_text(text)
        with pytest.raises(CatalogError, match="To fix"):
            read_prices(tmp_path / "own.csv")


def test_formulas_in_cells_stay_data(tmp_path: Path) -> None:
    read = read_prices(own_table(tmp_path, {"instance_type": "=cmd()", "source": "@SUM(1)"}))
    lines = written_table(read.offers).splitlines()
    assert "'=cmd()" in lines[1]
    assert "'@SUM(1)" in lines[1]


def asked(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    with pytest.raises(SystemExit) as stopped:
        main(["list", "prices", *words, "--json"])
    assert stopped.value.code == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_command_ranks_whole_instances(capsys: pytest.CaptureFixture[str]) -> None:
    found = asked(
        capsys,
        "H100-SXM5-80GB",
        "--gpus",
        "12",
        "--cloud",
        "lambda,oci",
        "--cheapest",
        "--currency",
        "EUR=0.5",
    )
    rows = found["offers"]
    assert isinstance(rows, list)
    assert [(row["cloud"], row["instances"] * row["devices_per_instance"] - 12) for row in rows] == [
        ("lambda", 0), ("oci", 4),
    ]  # fmt: skip
    assert rows[1]["usd_per_hour_in_all"] == 160.0
    assert rows[1]["per_device_hour"] == 5.0
    assert rows[1]["source"].startswith("skypilot-org/skypilot-catalog@")


def test_the_command_imports_and_takes_its_own_table(
    catalogue: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "prices.csv"
    found = asked(capsys, "import", str(catalogue), "--date", "2025-11-01", "--out", str(out))
    assert found["offers"] == 5
    rows = asked(capsys, "A100-SXM4-40GB", "--prices", str(out), "--as-of", "2026-11-22", "--market", "spot")[
        "offers"
    ]
    assert isinstance(rows, list)
    assert [(row["instance_type"], row["age_months"]) for row in rows] == [
        ("p4d.24xlarge", 12),
        ("a2-highgpu-8g", 12),
    ]
    with pytest.raises(SystemExit) as stopped:
        main(["list", "prices", "Gaudi3"])
    assert stopped.value.code == 2
    assert "To fix" in capsys.readouterr().err


GPUHUNT = """\
instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags
1xA100,US,1.6,8,117,1,A100,80.0,False,,nvidia,
1xA100,US,0.9,8,117,1,A100,80.0,True,,nvidia,
2xRTX4090,CA,1.4,16,62,2,RTX4090,24.0,False,,nvidia,
cpu-2,US,0.05,2,8,0,,,False,,,
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own data folder."""
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_cards_that_people_rent_have_dated_offers() -> None:
    for device in ("RTX3090", "RTX4090", "RTX5090", "A4000", "A5000", "A6000", "L40S", "RTX6000Ada"):
        found = ranked(offers(devices=[device]), Market.ON_DEMAND)
        assert found, device
        assert all(offer.date >= "2024" and offer.source and offer.region for offer in found)
    clouds = {offer.cloud for offer in offers()}
    assert clouds >= {
        "runpod",
        "vast",
        "lium",
        "cudo",
        "hyperstack",
        "verda",
        "vultr",
        "paperspace",
        "crusoe",
    }


def test_an_old_list_goes_below_a_newer_one_of_the_same_device_and_is_marked() -> None:
    today = datetime.date(2026, 11, 28)
    found = ranked(offers(devices=["V100-SXM2-16GB"], without_host=True), Market.ON_DEMAND)
    newest = max(offer.listed for offer in found if offer.host_included)
    void = [(newest - offer.listed).days >= 548 for offer in found if offer.host_included]
    assert True in void
    assert False in void
    assert void == sorted(void)
    # One of 2023 that nothing newer prices is still taken.
    assert newest_lists(offers(devices=["M60"])) == offers(devices=["M60"]) != ()
    stamped = {offer.date: offer for offer in offers()}
    assert stamped["2026-09-25"].dated(today) == "list of 2026-09-25"
    assert stamped["2026-08"].dated(today) == "list of 2026-08, over 90 days old"
    assert cheapest_offer("no such card") is None


def test_hosts_that_have_to_talk_are_of_a_known_network() -> None:
    alone = cheapest_offer("H100-SXM5-80GB", devices=8)
    joined = cheapest_offer("H100-SXM5-80GB", devices=16, nodes=2)
    assert alone is not None
    assert joined is not None
    assert joined.node_type is not None
    assert alone.usd_per_device_hour() <= joined.usd_per_device_hour()


def test_an_update_is_said_dated_and_never_replaced(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "gpuhunt"
    folder.mkdir()
    (folder / "runpod.csv").write_text(GPUHUNT)
    before = cheapest_offer("RTX4090", devices=2)
    with pytest.raises(SystemExit) as stopped:
        main(["list", "prices", "--update", str(folder)])
    assert stopped.value.code == 2
    assert "states no date" in capsys.readouterr().err
    assert not (home / "prices").exists()

    found = asked(capsys, "--update", str(folder), "--date", "2026-11-01")
    assert (found["offers"], found["dates"], found["clouds"]) == (2, ["2026-11-01"], ["runpod"])
    [own] = (home / "prices").iterdir()
    assert found["written"] == str(own)
    read = {offer.instance_type: offer for offer in read_own_lists()}
    assert (read["1xA100"].device, read["1xA100"].usd_per_hour) == ("A100-SXM4-80GB", 1.6)
    assert read["1xA100"].spot_usd_per_hour == 0.9
    assert {"1xA100", "2xRTX4090"} <= {offer.instance_type for offer in offers(clouds=["runpod"])}

    asked(capsys, "--update", str(folder), "--date", "2026-11-01")  # the same once more is no other list
    (folder / "runpod.csv").write_text(GPUHUNT.replace("1.4", "0.1"))
    with pytest.raises(SystemExit) as stopped:
        main(["list", "prices", "--update", str(folder), "--date", "2026-11-01"])
    assert stopped.value.code == 2
    assert "not replaced" in capsys.readouterr().err
    asked(capsys, "--update", str(folder), "--date", "2026-11-02")
    after = cheapest_offer("RTX4090", devices=2)
    assert before is not None
    assert after is not None
    assert (after.date, after.usd_per_hour) == ("2026-11-02", 0.1)


def test_a_currency_without_a_rate_is_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    head = "cloud,instance_type,region,device,devices_per_instance,usd_per_hour,date,currency"
    path.write_text(f"{head}\nmine,a,cellar,T4,1,0.5,2025-01-01,EUR\nmine,b,cellar,T4,1,0.5,2025-01-01,USD\n")
    read = read_prices(path)
    assert read.left_out == {"in EUR, of which no rate is known": 1}
    assert [offer.instance_type for offer in read.offers] == ["b"]
