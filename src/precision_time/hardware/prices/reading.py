"""Price tables read and checked: the one that ships, and a user's CSV.

A row or a cell that cannot be a price is left out, counted and said; nothing is put in its place.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from datetime import date as day
from pathlib import Path

from ...cache import data
from ...errors import CatalogError, UnknownNameError, shown
from ...io import data_folder, once_per_file, packaged, read_input, table_cell
from ...plugins import plugins
from ...records import dataclass
from ..device_table import canonical_device
from .accelerators import words
from .offer import Offer

COLUMNS = tuple(field.name for field in fields(Offer))
_REQUIRED = ("cloud", "instance_type", "region", "device", "devices_per_instance")
_PRICES = ("usd_per_hour", "spot_usd_per_hour", "reserved_usd_per_hour")
_DATE = re.compile(r"\d{4}(-\d\d(-\d\d)?)?")
_NO = frozenset({"0", "false", "no"})
_MOST_TEXT = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class PriceList:
    """Offers that were read, and what was not taken and why."""

    offers: tuple[Offer, ...]
    rows: int
    """Rows of the file that name an accelerator."""
    left_out: Mapping[str, int]
    """Reason -> rows that are no offer."""
    cells: Mapping[str, int]
    """Reason -> prices that are none, of rows that were taken."""
    notes: tuple[str, ...] = ()
    undated: tuple[str, ...] = ()
    """Clouds whose list states no date."""

    def summary(self) -> tuple[str, ...]:
        """What was read, left out and why, one line each."""
        lines = [f"Read {len(self.offers):,} offers of {self.rows:,} rows."]
        lines += [f"Left out {count:,} rows: {reason}." for reason, count in sorted(self.left_out.items())]
        lines += [f"No price in {count:,} cells: {reason}." for reason, count in sorted(self.cells.items())]
        return (*lines, *self.notes)


@data
def read_table(*, reference: bool = False, device: str | None = None) -> PriceList:
    """The table that ships.

    Args:
        reference: The editions on which published comparisons stand, in the place of all that no newer one
            replaces.
        device: Rows of this one alone, by its name in the catalog: an answer asks for no other.
    """
    lines = packaged(__package__, "data/prices.csv").read_text(encoding="utf-8").splitlines()
    if device is not None:
        lines = [lines[0], *(line for line in lines if f",{device}," in line)]
    known = words()["sources"]
    void = {old for source in known.values() for old in source.get("replaces", ())}
    wanted = {
        name for name, source in known.items() if (source.get("reference") if reference else name not in void)
    }
    found = Reader()
    for row in csv.DictReader(lines):
        if row["source"] in wanted:
            source = known[row["source"]]
            found.take({**row, "source": source["text"], "date": source["date"]})
    return found.result()


def read_prices(
    path: Path, *, cloud: str | None = None, date: str | None = None, own: Collection[str] = ()
) -> PriceList:
    """Prices of a user: a CSV like the table that ships, or a catalogue of SkyPilot or gpuhunt.

    Args:
        path: A CSV, or a folder of CSVs (catalogs/v8, catalogs/v8/aws; gpuhunt's aws.csv, runpod.csv, ...).
        cloud: Of a catalogue of one cloud; by default the name of its folder.
        date: Of a catalogue, which states none; by default today.
        own: Names of devices of the user's own.

    Raises:
        CatalogError: If the file cannot be read, lacks columns, or holds no price at all.
    """
    if date is not None and not _is_date(date):
        raise CatalogError(f"{shown(date)} is no date. To fix: write it like 2025-03-07.")
    found = Reader(own=frozenset(own))
    rows = [] if path.is_dir() else table_of(path, found)
    if rows and "InstanceType" not in rows[0] and "instance_name" not in rows[0]:
        _read_own(path, rows, found)
    else:
        plugins("price_lists")["catalogues"].load()(path, rows, cloud, date, found)
    result = found.result()
    if not result.offers:
        raise CatalogError(
            f"{path.name} holds no price that can be taken. {' '.join(result.summary()[1:])} To fix: see the "
            "columns that `precision-time list prices --out -` writes."
        )
    return result


def own_lists_folder() -> Path:
    """Where the lists lie that a user brought (`precision-time list prices --update`)."""
    return data_folder() / "prices"


def read_own_lists() -> tuple[Offer, ...]:
    """The offers of the lists that a user brought; none where there are none.

    Raises:
        CatalogError: If one of them cannot be read.
    """
    folder = own_lists_folder()
    lists = (once_per_file(read_prices, path) for path in sorted(folder.glob("*.csv")))
    return tuple(offer for found in lists for offer in found.offers)


def written_table(found: Iterable[Offer]) -> str:
    """Offers as the text of a CSV that `read_prices` reads."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for offer in found:
        writer.writerow([_cell(getattr(offer, name)) for name in COLUMNS])
    return text.getvalue()


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return "" if value is None else repr(value) if isinstance(value, float) else table_cell(str(value))


class Reader:
    """Collects offers, and counts what is left out."""

    def __init__(self, own: frozenset[str] = frozenset()) -> None:
        self.own = own
        self.offers: dict[tuple[object, ...], Offer] = {}
        self.rows = 0
        self.left_out: Counter[str] = Counter()
        self.cells: Counter[str] = Counter()
        self.notes: list[str] = []
        self.undated: list[str] = []

    def take(self, row: Mapping[str, str | None]) -> None:
        """One row with the columns of `Offer` as text."""
        self.rows += 1
        cells = {name: (row.get(name) or "").strip() for name in COLUMNS}
        money = (row.get("currency") or "USD").strip().upper()
        reason = self._wrong(cells) if money == "USD" else f"in {money[:20]}, of which no rate is known"
        if reason:
            self.left_out[reason] += 1
            return
        device = cells["device"]
        count = int(cells["devices_per_instance"])
        prices = [self._price(cells[name], count) for name in _PRICES]
        if prices[0] is not None and prices[1] is not None and prices[0] < prices[1]:
            self.cells["on demand below spot, so of another kind of offer"] += 1
            prices[0] = None
        if not any(price is not None for price in prices):
            self.left_out["no price"] += 1
            return
        self._keep(
            Offer(
                cloud=cells["cloud"].lower(),
                instance_type=cells["instance_type"][:_MOST_TEXT],
                region=cells["region"],
                device=device if device in self.own else canonical_device(device),
                devices_per_instance=count,
                usd_per_hour=prices[0],
                spot_usd_per_hour=prices[1],
                reserved_usd_per_hour=prices[2],
                date=cells["date"],
                source=cells["source"][:_MOST_TEXT],
                host_included=cells["host_included"].lower() not in _NO,
            )
        )

    def _keep(self, offer: Offer) -> None:
        """The newest of several rows of one instance, region and source date."""
        key = (
            offer.cloud,
            offer.region,
            offer.instance_type,
            offer.device,
            offer.devices_per_instance,
            offer.source,
        )
        known = self.offers.get(key)
        if known is not None:
            self.left_out["an older or equal row of the same instance and region"] += 1
        if known is None or known.date <= offer.date:
            self.offers[key] = offer

    def _wrong(self, cells: Mapping[str, str]) -> str:
        """Why a row is no offer; empty where it is one."""
        missing = [name for name in _REQUIRED if not cells[name]]
        if missing:
            return f"no {missing[0]}"
        if not cells["devices_per_instance"].isdecimal() or int(cells["devices_per_instance"]) < 1:
            return "no whole number of devices"
        if not _is_date(cells["date"]):
            return "no date (like 2025-03-07)"
        if cells["date"] > day.today().isoformat():
            return "a date in the future"
        if cells["device"] not in self.own:
            try:
                canonical_device(cells["device"])
            except UnknownNameError:
                return f"unknown device {cells['device'][:60]!r}"
        return ""

    def _price(self, cell: str, count: int) -> float | None:
        if not cell:
            return None
        try:
            price = float(cell)
        except ValueError:
            price = math.nan
        limit = words()["limits"]
        reasons = (
            (not math.isfinite(price), "not a number"),
            (price < 0.0, "below zero"),
            (price == 0.0, "zero"),
            (price > count * limit["most_usd_per_device_hour"], limit["reason"]),
        )
        wrong = next((reason for is_wrong, reason in reasons if is_wrong), None)
        if wrong is None:
            return price
        self.cells[wrong] += 1
        return None

    def result(self) -> PriceList:
        """What was read so far."""
        return PriceList(
            offers=tuple(self.offers.values()),
            rows=self.rows,
            left_out=dict(self.left_out),
            cells=dict(self.cells),
            notes=tuple(self.notes),
            undated=tuple(self.undated),
        )


def _is_date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        day.fromisoformat(f"{text}-01-01"[:10])
    except ValueError:
        return False
    return True


def table_of(path: Path, found: Reader) -> list[dict[str, str]]:
    """The rows of a CSV, the header as keys; those with shifted columns are left out."""
    try:
        text = read_input(path, encoding="utf-8-sig")
        lines = list(csv.DictReader(io.StringIO(text, newline="")))
    except FileNotFoundError:
        raise CatalogError(f"No such file: {path}. To fix: name a CSV or a folder of prices.") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise CatalogError(f"{path.name} is no CSV in UTF-8: {error}. To fix: save it as one.") from None
    rows = [line for line in lines if None not in line and None not in line.values()]
    if len(rows) < len(lines):
        found.rows += len(lines) - len(rows)
        found.left_out["not one cell per column"] += len(lines) - len(rows)
    if not rows:
        raise CatalogError(f"{path.name} has no rows. To fix: name a table of prices.")
    return rows


def _read_own(path: Path, rows: list[dict[str, str]], found: Reader) -> None:
    missing = [name for name in (*_REQUIRED, "date") if name not in rows[0]]
    if missing or not set(_PRICES) & set(rows[0]):
        raise CatalogError(
            f"{path.name} lacks the columns {', '.join(missing) or 'of prices'}. To fix: give it "
            f"{', '.join(COLUMNS)}; `precision-time list prices --out -` writes such a table."
        )
    for row in rows:
        found.take({"source": path.name, **{name: cell for name, cell in row.items() if cell}})
