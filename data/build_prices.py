"""Make src/precision_time/hardware/prices/data/prices.csv: the curated table of prices.

    python data/build_prices.py ../shared/measurements/prices.csv

Reads that collection of public price lists and `prices_read.toml` beside this file, maps accelerators to
devices of the catalog (`money/data/prices.toml`) and leaves out what is no offer to train on; the reasons are
printed with counts. Takes a second.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from precision_time.hardware.prices.accelerators import words
from precision_time.price_lists.catalogues import listed_device

ROOT = Path(__file__).resolve().parents[1]
TABLE = ROOT / "src/precision_time/hardware/prices/data/prices.csv"
ATTACHED = "(attach accelerator only, host VM extra)"
"""What the collection calls the instance where a price is of the accelerators alone."""
READ = Path(__file__).with_name("prices_read.toml")
COLUMNS = (
    "cloud", "instance_type", "region", "device", "devices_per_instance", "usd_per_hour", "spot_usd_per_hour",
    "reserved_usd_per_hour", "source", "host_included",
)  # fmt: skip
Row = dict[str, Any]


def main() -> None:
    """Write the table and say what was left out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prices", type=Path, help="prices.csv of the measurements")
    rows, broken = collected(parser.parse_args().prices)
    table, left_out = curated([*rows, *read_by_hand(rows)])
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    TABLE.write_text(text.getvalue(), encoding="utf-8")
    print(
        f"{len(rows):,} rows collected, {broken} broken; "
        f"wrote {len(table):,} rows, {len(text.getvalue()):,} bytes"
    )
    for reason, count in sorted(left_out.items()):
        print(f"left out {count:5,}: {reason}")


def collected(path: Path) -> tuple[list[Row], int]:
    """Rows of the collection, and how many of its lines have not one cell per column."""
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    whole = [line for line in lines if None not in line and None not in line.values()]
    return [
        {
            "cloud": line["cloud"],
            "instance_type": line["instance_type"],
            "region": line["region"],
            "accelerator": line["accelerator"],
            "count": float(line["count"]),
            "usd": line["price_usd_h"],
            "spot": line["spot_usd_h"],
            "reserved": "",
            "source": _source(line["cloud"], line["catalog_date"]),
            "host": line["instance_type"] != ATTACHED,
        }
        for line in whole
    ], len(lines) - len(whole)


def read_by_hand(rows: list[Row]) -> Iterator[Row]:
    """The rows that `prices_read.toml` says in short."""
    lists = tomllib.loads(READ.read_text(encoding="utf-8"))
    for part in lists["instances"]:
        regions = set(part.get("regions", ()))
        regions |= {row["region"] for row in rows if row["cloud"] == part.get("regions_of")}
        for text in part.get("rows_in", ()):
            region, name, accelerator, count, *prices = text.split(",")
            yield _row(part, name, region, accelerator, float(count), *prices)
        for text in part.get("rows", ()):
            if "rows_by_region" in part:
                region, *prices = text.split(",")
                name, accelerator, count = part["rows_by_region"].split(",")
                places = [region]
            else:
                name, accelerator, count, *prices = text.split(",")
                places = sorted(regions)
            for region in places:
                yield _row(part, name, region, accelerator, float(count), *prices)
    for part in lists["hosted"]:
        largest = max(float(size.split(",")[1]) for size in part["sizes"])
        for name, count in (size.split(",") for size in part["sizes"]):
            for region, *prices in (text.split(",") for text in part["rows"]):
                share = float(count) / largest
                sums = [_scaled(share, *prices[0::2]), _scaled(share, *prices[1::2])]
                yield _row(part, name, region, part["accelerator"], float(count), *sums)
    for part in lists["slices"]:
        for name, chips in (size.split(",") for size in part["sizes"]):
            for region, *prices in (text.split(",") for text in part["rows"]):
                share = float(chips) / part["chips"]
                yield _row(part, name, region, name, 1.0, *(_scaled(share, price) for price in prices))


def curated(rows: list[Row]) -> tuple[list[Row], Counter[str]]:
    """Rows of the table, and how many were left out for which reason."""
    left_out: Counter[str] = Counter()
    kept: dict[tuple[Any, ...], Row] = {}
    sources = words()["sources"]
    newer = {row["accelerator"] for row in rows if row["source"] == "skypilot-v8-gcp"}
    for row in rows:
        listed = listed_device(row["cloud"], row["instance_type"], row["accelerator"], row["count"])
        if row["region"] == "all-regions":
            left_out["a region that stands for all, read region by region since"] += 1
        elif listed.reason:
            left_out[listed.reason] += 1
        elif not row["usd"] + row["spot"] + row["reserved"]:
            left_out["no price"] += 1
        elif row["source"] == "skypilot-gcp-2023" and row["accelerator"] in newer:
            left_out["an accelerator that a newer list of the same cloud prices"] += 1
        else:
            alone = words()["alone"]["name"]
            whole = re.fullmatch(words()["alone"]["with_host"], row["accelerator"]) is not None
            name = row["accelerator"] if whole else row["instance_type"] if row["host"] else alone
            new = dict(
                zip(
                    COLUMNS,
                    (
                        row["cloud"], name, row["region"], listed.device, listed.devices, row["usd"],
                        row["spot"], row["reserved"], row["source"], int(row["host"] or whole),
                    ),
                    strict=True,
                )
            )  # fmt: skip
            key = (row["cloud"], name, row["region"], listed.device, listed.devices, row["source"])
            if key in kept:
                left_out["the same instance, region and edition twice"] += 1
            kept[key] = new
    order = list(sources)
    table = sorted(
        kept.values(),
        key=lambda row: (row["cloud"], row["instance_type"], row["region"], order.index(row["source"])),
    )
    return table, left_out


def _source(cloud: str, date: str) -> str:
    """Name of the edition that a row of the collection is of."""
    return f"skypilot-v8-{cloud}" if date.startswith("v8") else f"skypilot-{cloud}-2023"


def _row(
    part: Row,
    name: str,
    region: str,
    accelerator: str,
    count: float,
    usd: str,
    spot: str = "",
    reserved: str = "",
) -> Row:
    return {
        "cloud": part["cloud"],
        "instance_type": name,
        "region": region,
        "accelerator": accelerator,
        "count": count,
        "usd": usd,
        "spot": spot,
        "reserved": reserved,
        "source": part["source"],
        "host": part.get("host_included", True),
    }


def _scaled(share: float, *prices: str) -> str:
    """A share of the sum of prices; empty where one is missing."""
    return "" if "" in prices else f"{share * sum(map(float, prices)):.6g}"


if __name__ == "__main__":
    main()
