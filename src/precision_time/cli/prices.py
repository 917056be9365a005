"""`precision-time list prices`: what an hour of a device costs, where, since when, and who says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from datetime import date as day
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ..errors import ConfigError, printable, shown
from .options import JsonOption, declared, words_of
from .output import message, write_json, write_rows

if TYPE_CHECKING:
    from ..hardware.prices.currency import Currency
    from ..hardware.prices.offer import Market, Offer
    from ..hardware.prices.reading import PriceList

_MOST_TEXT = 40
_MOST_CLOUDS = 4


@declared("prices")
def prices(
    what: list[str] | None = None,
    *,
    cloud: str | None = None,
    region: str | None = None,
    market: str = "on-demand",
    cheapest: bool = False,
    gpus: int | None = None,
    own: Path | None = None,
    update: Path | None = None,
    reserved_discount: float | None = None,
    currency: str | None = None,
    as_of: str | None = None,
    top: int = 20,
    regions: bool = False,
    date: str | None = None,
    out: Path | None = None,
    json_output: JsonOption = False,
) -> None:
    """Show what an hour of a device costs, where, and since when.

    List prices in USD with date and source; they change, so state your own where it matters (--prices). An
    instance is rented as a whole.
    """
    from ..hardware.device_table import device_assumption
    from ..hardware.prices.currency import parse_currency
    from ..hardware.prices.offer import Market
    from ..hardware.prices.offers import known_regions, offers, ranked, with_reserved
    from ..hardware.prices.reading import read_prices, written_table

    if what and what[0] == "import":
        _import(what[1:], cloud, date, out, json_output)
        return
    if update is not None:
        _update(update, cloud, date, json_output)
        return
    if what and len(what) > 1:
        raise ConfigError(f"One device at a time, not {shown(what)}. To fix: name one, or none for all.")
    if market not in list(Market):
        raise ConfigError(f"--market {market!r} is none. To fix: on-demand, spot or reserved.")
    shown_in, chosen = parse_currency(currency), Market(market)
    read = None if own is None else read_prices(own, cloud=None, date=date)
    found = offers(
        devices=what or None,
        clouds=words_of(cloud) or None,
        regions=words_of(region) or None,
        prices=None if read is None else read.offers,
        without_host=True,
    )
    if read is not None:
        _say(read)
    known = {offer.device for offer in found}
    if what and what[0] not in known and (assumption := device_assumption(what[0])) is not None:
        message(f"Assumed: {assumption}")
    if reserved_discount is not None:
        found = with_reserved(found, reserved_discount)
    if regions:
        _write_regions(known_regions(found), json_output)
        return
    if out is not None:
        _write_file(out, written_table(found))
        return
    best_of = ("device", "cloud") if cheapest else () if what else ("device",)
    shown_offers = ranked(found, chosen, devices=gpus, best_of=best_of)
    if not shown_offers:
        _refuse(what, found, chosen)
    age = day.today() if as_of is None else _day(as_of)
    if json_output:
        rows = [_as_dict(offer, chosen, gpus, shown_in, age) for offer in shown_offers]
        write_json({"market": chosen.value, "currency": asdict(shown_in), "offers": rows})
        return
    _write_table(shown_offers[:top], chosen, gpus, shown_in, age)
    _notes(shown_offers, top, age)
    unpriced = sum(offer.price(chosen) is None for offer in found)
    if unpriced:
        message(f"{unpriced:,} of {len(found):,} offers have no {chosen.value} price.")


def _write_file(path: Path, text: str) -> None:
    from ..io import write_atomically

    if str(path) == "-":
        typer.echo(text, nl=False)
        return
    write_atomically(path, text)
    message(f"Wrote {path}")


def _import(
    rest: Sequence[str], cloud: str | None, date: str | None, out: Path | None, json_output: bool
) -> None:
    from ..hardware.prices.reading import read_prices, written_table
    from ..io import write_atomically

    if len(rest) != 1 or out is None:
        raise ConfigError(
            "`prices import` takes one folder or file and --out. To fix: precision-time list prices import "
            "catalogs/v8 --out prices.csv."
        )
    read = read_prices(Path(rest[0]), cloud=cloud, date=date)
    write_atomically(out, written_table(read.offers))
    if json_output:
        write_json(
            {
                "written": str(out),
                "offers": len(read.offers),
                "rows": read.rows,
                "left_out": dict(read.left_out),
                "cells": dict(read.cells),
                "notes": list(read.notes),
            }
        )
        return
    _say(read)
    message(f"Wrote {out}")


def _update(path: Path, cloud: str | None, date: str | None, json_output: bool) -> None:
    """A list into the user's own folder, under its date; one that is there is never replaced."""
    from ..hardware.prices.reading import own_lists_folder, read_prices, written_table
    from ..io import read_input, write_atomically

    read = read_prices(path, cloud=cloud, date=date)
    if read.undated:
        raise ConfigError(
            f"The list of {', '.join(read.undated)} states no date, and a price without one is not taken. To "
            "fix: --date 2026-11-28, the day on which you downloaded it."
        )
    dates = sorted({offer.date for offer in read.offers})
    clouds = sorted({offer.cloud for offer in read.offers})
    named = "-".join(clouds) if len(clouds) <= _MOST_CLOUDS else f"{len(clouds)}-clouds"
    target = own_lists_folder() / f"{dates[-1]}-{named}.csv"
    text = written_table(read.offers)
    if target.exists() and read_input(target) != text:
        raise ConfigError(
            f"{target} is another list of that date, and is not replaced. To fix: remove it, or state "
            "another --date."
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, text)
    said = dates[0] + (f" to {dates[-1]}" if len(dates) > 1 else "")
    if json_output:
        write_json(
            {
                "written": str(target),
                "offers": len(read.offers),
                "dates": dates,
                "clouds": clouds,
                "left_out": dict(read.left_out),
                "cells": dict(read.cells),
            }
        )
        return
    _say(read)
    message(
        f"Wrote {len(read.offers):,} offers of {', '.join(clouds)}, of {said}, to {target}. They stand "
        "beside the lists that ship; of one instance and region the newest counts. Remove it to undo this."
    )


def _say(read: PriceList) -> None:
    for line in read.summary():
        message(printable(line, longest=300))


def _refuse(what: list[str] | None, found: Sequence[Offer], market: Market) -> None:
    others = sorted({m.value for m in type(market) for offer in found if offer.price(m) is not None})
    named = f"of {what[0]}" if what else "here"
    fix = (
        f"take --market {' or '.join(others)}" if others else "name other clouds or regions, or state a price"
    )
    raise ConfigError(
        f"No {market.value} price {named} is known ({len(found)} offers). To fix: {fix}, or give a file of "
        "--prices (`precision-time list prices --out -` shows its columns)."
    )


def _write_table(
    ranked: Sequence[Offer], market: Market, gpus: int | None, money: Currency, today: day
) -> None:
    lists = {f"{offer.date}, {offer.source}": offer for offer in ranked}
    numbers = {text: number for number, text in enumerate(lists, 1)}

    def cell(usd: float | None) -> str:
        return "-" if usd is None else f"{usd * money.per_usd:,.2f}"

    columns = ["device", "where", "instance", ">devices", ">on demand", ">spot"]
    has_reserved = any(offer.reserved_usd_per_hour is not None for offer in ranked)
    columns += [">reserved"] if has_reserved else []
    columns += [">per device"] if gpus is None else [">rented", ">idle", ">in all"]
    columns += [">list"]
    rows = []
    for offer in ranked:
        row = [
            *(offer.device, f"{offer.cloud}:{offer.region}", _short(offer.instance_type)),
            *(str(offer.devices_per_instance), cell(offer.usd_per_hour), cell(offer.spot_usd_per_hour)),
        ]
        row += [cell(offer.reserved_usd_per_hour)] if has_reserved else []
        host = "" if offer.host_included else "*"
        if gpus is None:
            row += [f"{cell(offer.usd_per_device_hour(market))}{host}"]
        else:
            count, idle, usd = offer.rented(market, gpus)
            row += [str(count), str(idle), f"{cell(usd)}{host}"]
        row += [f"[{numbers[f'{offer.date}, {offer.source}']}]"]
        rows.append(tuple(printable(text) for text in row))
    last = f"{market.value} price per device" if gpus is None else f"whole instances for {gpus} devices"
    write_rows(f"{money.code} per hour of an instance; {last}", columns, rows)
    for text, offer in lists.items():
        age = offer.age_words(today)
        typer.echo(f"[{numbers[text]}] {printable(text)}{f' ({age})' if age else ''}")


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else f"{text[: _MOST_TEXT - 3]}..."


def _notes(ranked: Sequence[Offer], top: int, today: day) -> None:
    by_date = sorted(ranked[:top], key=lambda offer: offer.date)
    dates = list(dict.fromkeys(offer.date for offer in by_date))
    if len(ranked) > top:
        message(f"{len(ranked) - top:,} dearer offers are not shown (--top).")
    if any(not offer.host_included for offer in ranked[:top]):
        message("* without the host, which is paid beside it.")
    said = f"Prices are of {dates[0]}" + (f" to {dates[-1]}" if len(dates) > 1 else "")
    age = by_date[0].age_words(today)
    old = f", some {age}" if age else ""
    message(f"{said}{old}: lists change. `precision-time list prices --update FOLDER` reads a newer one.")


def _day(text: str) -> day:
    try:
        return day.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"--as-of {text!r} is no date. To fix: write it like 2025-03-07.") from None


def _as_dict(offer: Offer, market: Market, gpus: int | None, money: Currency, today: day) -> dict[str, Any]:
    node = offer.node_type
    more: dict[str, Any] = {
        "usd_per_device_hour": offer.usd_per_device_hour(market),
        "per_device_hour": offer.usd_per_device_hour(market) * money.per_usd,
        "node_type": None if node is None else node.name,
        "age_months": offer.age_months(today),
        "old": bool(offer.age_words(today)),
    }
    if gpus is not None:
        names = ("instances", "idle_devices", "usd_per_hour_in_all")
        more |= dict(zip(names, offer.rented(market, gpus), strict=True))
    return {**asdict(offer), **more}


def _write_regions(known: dict[str, tuple[str, ...]], json_output: bool) -> None:
    if json_output:
        write_json(known)
    else:
        write_rows("", ("cloud", "regions"), [(cloud, ", ".join(names)) for cloud, names in known.items()])
