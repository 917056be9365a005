"""Catalogues of prices that others keep (SkyPilot's, gpuhunt's), as offers of ours.

A row that cannot be a price is left out, counted and said; nothing is put in its place.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import date as day
from pathlib import Path
from typing import NamedTuple

from ..cache import data
from ..errors import CatalogError, UnknownNameError
from ..hardware.device_table import canonical_device, devices_in_name
from ..hardware.prices.accelerators import node_of_instance, words
from ..hardware.prices.reading import Reader, table_of

_SKYPILOT = frozenset({"InstanceType", "AcceleratorName", "AcceleratorCount", "Price", "Region"})
_GPUHUNT = frozenset({"instance_name", "location", "price", "gpu_count", "gpu_name", "spot"})


class Listed(NamedTuple):
    """What one row of a list offers; `reason` says why it is left out, and is empty where it is not."""

    device: str = ""
    devices: int = 0
    reason: str = ""


def read_catalogues(
    path: Path, rows: list[dict[str, str]], cloud: str | None, date: str | None, found: Reader
) -> None:
    """Offers of a catalogue, or of a folder of them: the plug-in `catalogues` of the group `price_lists`.

    Args:
        path: A CSV, or a folder of CSVs (catalogs/v8, catalogs/v8/aws; gpuhunt's aws.csv, runpod.csv, ...).
        rows: Of the CSV.
        cloud: Of a catalogue of one cloud; by default the name of its folder.
        date: Of a catalogue, which states none; by default today.
        found: Collects the offers.

    Raises:
        CatalogError: If a file cannot be read, or lacks columns.
    """
    for file in _catalogues(path, found) if path.is_dir() else (path,):
        named = file.parent.name if file.stem == "vms" else file.stem
        _read_catalogue(file, rows or table_of(file, found), cloud or named, date, found)


def _catalogues(folder: Path, found: Reader) -> Iterator[Path]:
    """The newest vms.csv of each cloud below a folder (v8/aws, not v7/aws), or gpuhunt's tables."""
    newest: dict[str, Path] = {}
    for path in sorted(folder.rglob("vms.csv"), key=_natural):
        if path.parent.name in newest:
            found.notes.append(f"Not read: {newest[path.parent.name].relative_to(folder)}, an older edition.")
        newest[path.parent.name] = path
    found_tables = list(newest.values()) or sorted(folder.glob("*.csv"))
    if not found_tables:
        raise CatalogError(
            f"No vms.csv lies in {folder}, and no table of gpuhunt. To fix: name a folder of a SkyPilot "
            "catalogue (catalogs/v8) or of gpuhunt's CSVs."
        )
    yield from found_tables


def _natural(path: Path) -> list[tuple[int, str]]:
    return [(int(part) if part.isdecimal() else 0, part) for part in re.split(r"(\d+)", str(path))]


def _read_catalogue(
    path: Path, rows: list[dict[str, str]], cloud: str, date: str | None, found: Reader
) -> None:
    """A catalogue of SkyPilot or gpuhunt: one row per zone; the region's lowest spot price is taken."""
    maker = "SkyPilot"
    if set(rows[0]) >= _GPUHUNT:
        maker, rows = "gpuhunt", [_as_skypilot(row) for row in rows]
    elif not set(rows[0]) >= _SKYPILOT:
        raise CatalogError(
            f"{path} lacks the columns {', '.join(sorted(_SKYPILOT - set(rows[0])))}. To fix: name a "
            "catalogue of SkyPilot or gpuhunt."
        )
    cloud = cloud.lower()
    if date is None:
        date = day.today().isoformat()
        found.undated.append(cloud)
        found.notes.append(
            f"{cloud}: the catalogue states no date; today's, {date}, was put. --date states another."
        )
    alone = words()["alone"]
    zones: dict[tuple[str, str, str, int, bool], list[tuple[str, str]]] = {}
    for name, accelerator, count, row, host in _offered(rows):
        listed = listed_device(cloud, name or accelerator, accelerator, count, found.own)
        if listed.reason:
            found.rows += 1
            found.left_out[listed.reason] += 1
            continue
        has_host = host or bool(name) or re.fullmatch(alone["with_host"], accelerator) is not None
        instance = name or (accelerator if has_host else alone["name"])
        key = (instance, row["Region"], listed.device, listed.devices, has_host)
        zones.setdefault(key, []).append((row.get("Price") or "", row.get("SpotPrice") or ""))
    for (instance, region, device, number, has_host), prices in zones.items():
        found.take(
            {
                "cloud": cloud,
                "instance_type": instance,
                "region": region,
                "device": device,
                "devices_per_instance": str(number),
                "usd_per_hour": _lowest(price for price, _ in prices),
                "spot_usd_per_hour": _lowest(spot for _, spot in prices),
                "date": date,
                "source": f"{maker} catalogue {path.parent.name}/{path.name}",
                "host_included": str(int(has_host)),
            }
        )


def _is_device(name: str) -> bool:
    try:
        return bool(canonical_device(name))
    except UnknownNameError:
        return False


def _as_skypilot(row: Mapping[str, str]) -> dict[str, str]:
    """A row of gpuhunt in the columns of SkyPilot, its memory in the name where the catalog has it so."""
    name = row["gpu_name"].strip()
    sized = f"{name}-{_number(row.get('gpu_memory') or ''):g}GB"
    if row.get("gpu_vendor") == "google":
        name = f"tpu-{name.removeprefix('tpu-')}"
    elif _is_device(sized):
        name = sized
    spot = row["spot"].strip().lower() in ("true", "1")
    return {
        "InstanceType": row["instance_name"],
        "AcceleratorName": name,
        "AcceleratorCount": row["gpu_count"] if name else "",
        "Region": row["location"],
        "Price": "" if spot else row["price"],
        "SpotPrice": row["price"] if spot else "",
    }


_CatalogueRow = tuple[str, str, float, Mapping[str, str], bool]
"""Instance (empty: the accelerator alone), accelerator, count, the row, whether hosts were joined."""


def _offered(rows: Sequence[Mapping[str, str]]) -> Iterator[_CatalogueRow]:
    """Rows with an accelerator; hosts and their accelerators that the list prices apart as one."""
    apart: dict[tuple[str, float, str], Mapping[str, str]] = {}
    hosts: list[Mapping[str, str]] = []
    for row in rows:
        name, accelerator = row.get("InstanceType") or "", (row.get("AcceleratorName") or "").strip()
        if not accelerator:
            hosts.append(row)
        elif name:
            yield name, accelerator, _number(row["AcceleratorCount"]), row, False
        else:
            apart[accelerator, _number(row["AcceleratorCount"]), _zone(row)] = row
    kinds = [(re.compile(kind["pattern"]), kind["accelerator"]) for kind in words()["joined"]]
    joined = set()
    for row in hosts if apart else ():
        for pattern, accelerator in kinds:
            match = pattern.fullmatch(row.get("InstanceType") or "")
            key = (accelerator, float(match["count"]), _zone(row)) if match else None
            if key in apart:
                other = apart[key]
                both = {name: _sum(row.get(name), other.get(name)) for name in ("Price", "SpotPrice")}
                yield row["InstanceType"], accelerator, key[1], {**row, **both}, True
                joined.add(key)
    for key, row in apart.items():
        if key not in joined:
            yield "", key[0], key[1], row, False


def _zone(row: Mapping[str, str]) -> str:
    return row.get("AvailabilityZone") or row["Region"]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _sum(first: str | None, second: str | None) -> str:
    """The sum of two prices; empty where one is missing."""
    return f"{_number(first) + _number(second):.6g}" if first and second else ""


def _lowest(prices: Iterable[str]) -> str:
    """The lowest of the zones' prices that are some; a cell that is no number where there is no other."""
    cells = [price for price in prices if price.strip()]
    numbers = [cell for cell in cells if _number(cell) > 0.0]
    return min(numbers, key=_number) if numbers else next(iter(cells), "")


def listed_device(
    cloud: str, instance_type: str, accelerator: str, count: float, own: Collection[str] = frozenset()
) -> Listed:
    """Catalog device and number of devices that a row of a price list means.

    Args:
        cloud: As the list says, in lower case.
        instance_type: As the list says.
        accelerator: As the list says; the size of a slice is read from its name ("tpu-v5p-8").
        count: As the list says.
        own: Names of devices of the user's own.
    """
    whole = f"{cloud}:{instance_type}:{accelerator}"
    for pattern, reason in _left_out():
        if pattern.fullmatch(whole):
            return Listed(reason=reason)
    if 0.0 < count < 1.0:
        return Listed(reason="a part of a device")
    if not (math.isfinite(count) and count >= 1.0 and count == int(count)):
        return Listed(reason="no whole number of devices")
    if accelerator in own:
        return Listed(accelerator, int(count))
    named = words()["accelerator"].get(accelerator, accelerator)
    try:
        device, size = canonical_device(named), devices_in_name(named) or 1
    except UnknownNameError:
        return Listed(reason=f"unknown device {accelerator[:60]!r}")
    for pattern, meant in _instances():
        if pattern.fullmatch(f"{cloud}:{instance_type}"):
            return Listed(meant, int(count))
    host = node_of_instance(instance_type, device, int(count))
    if host is not None and host.devices == count:
        device = host.device
    return Listed(device, int(count) * size)


@data
def _left_out() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(row["pattern"]), row["reason"]) for row in words()["left_out"])


@data
def _instances() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(row["pattern"]), row["device"]) for row in words()["instance"])
