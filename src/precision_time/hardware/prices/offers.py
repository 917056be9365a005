"""The offers of the list that ships or of the user's own, by device, cloud and region.

Prices are list prices of the date of each row (`data/prices.csv`, made by data/build_prices.py). They
change: an answer says the date of what it took, and `precision-time list prices --update` brings more.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...cache import data
from ...errors import CatalogError, UnknownNameError
from ..device_table import canonical_device
from .accelerators import words
from .offer import Market, Offer
from .reading import read_own_lists, read_table


def offers(
    *,
    devices: Collection[str] | None = None,
    clouds: Collection[str] | None = None,
    regions: Collection[str] | None = None,
    prices: Sequence[Offer] | None = None,
    without_host: bool = False,
) -> tuple[Offer, ...]:
    """The newest offer of every instance type and region.

    Args:
        devices: Only these, in any spelling; all by default.
        clouds: Only these.
        regions: Only these: "us-east-1", or "aws:us-east-1" where several clouds have one of that name.
        prices: Offers of your own (`reading.read_prices`) in the place of those that ship.
        without_host: Also those whose price leaves out the host.

    Raises:
        UnknownNameError: A device, a cloud or a region is not known; offers the nearest.
    """
    found = _newest(prices) if prices is not None else _shipped_newest()
    wanted = None if devices is None else _device_names(devices, found)
    clouds = None if clouds is None else _cloud_names(clouds, found)
    places = None if regions is None else _places(regions, clouds, found)
    return tuple(
        offer
        for offer in found
        if (wanted is None or offer.device in wanted)
        and (clouds is None or offer.cloud in clouds)
        and (places is None or (offer.cloud, offer.region) in places)
        and (without_host or offer.host_included)
    )


def known_regions(prices: Sequence[Offer] | None = None) -> dict[str, tuple[str, ...]]:
    """Regions by cloud, in alphabetical order."""
    found: dict[str, set[str]] = {}
    for offer in _shipped_newest() if prices is None else prices:
        found.setdefault(offer.cloud, set()).add(offer.region)
    return {cloud: tuple(sorted(found[cloud])) for cloud in sorted(found)}


def with_reserved(found: Iterable[Offer], discount: float) -> tuple[Offer, ...]:
    """Offers with a reserved price that lies a share below on demand, where none is stated.

    No list that ships states one: what a commitment saves is what you were offered.

    Raises:
        CatalogError: If it is not at least 0 and below 1.
    """
    if not 0.0 <= discount < 1.0:
        raise CatalogError(
            f"A reserved discount of {discount!r} is no share. To fix: give one of 0 to below 1, as 0.4."
        )
    return tuple(
        offer
        if offer.usd_per_hour is None or offer.reserved_usd_per_hour is not None
        else replace(offer, reserved_usd_per_hour=offer.usd_per_hour * (1.0 - discount))
        for offer in found
    )


def ranked(
    found: Iterable[Offer], market: Market, *, devices: int | None = None, best_of: Sequence[str] = ()
) -> tuple[Offer, ...]:
    """Offers with a price in the market, cheapest first.

    Lists that newer ones make void come below them, prices without the host last.
    """
    priced = [offer for offer in found if offer.price(market) is not None]
    current = frozenset(newest_lists(priced))

    def key(offer: Offer) -> tuple[Any, ...]:
        if devices is None:
            usd, count = offer.usd_per_device_hour(market), offer.devices_per_instance
        else:
            count, _, usd = offer.rented(market, devices)
        return not offer.host_included, offer not in current, usd, count, offer.cloud, offer.region

    priced.sort(key=key)
    if not best_of:
        return tuple(priced)
    first: dict[tuple[Any, ...], Offer] = {}
    for offer in priced:
        first.setdefault(tuple(getattr(offer, name) for name in best_of), offer)
    return tuple(first.values())


def newest_lists(found: Iterable[Offer]) -> tuple[Offer, ...]:
    """Those of each device whose list is not much older than the newest one of that device.

    Much older: `limits.superseded_days` of `data/prices.toml`.
    """
    kept = tuple(found)
    newest: dict[str, datetime.date] = {}
    for offer in kept:
        newest[offer.device] = max(offer.listed, newest.get(offer.device, offer.listed))
    most = datetime.timedelta(days=words()["limits"]["superseded_days"])
    return tuple(offer for offer in kept if newest[offer.device] - offer.listed < most)


def rentable(found: Iterable[Offer], market: Market, *, devices: int, nodes: int) -> tuple[Offer, ...]:
    """Offers that hold a job of so many devices on so many hosts, of the newest lists of the device.

    Of hosts that have to talk to each other, those whose network is known, where there are any: a marketplace
    rents single hosts.
    """
    together = math.ceil(devices / nodes)
    holding = [
        offer for offer in found if offer.price(market) is not None and offer.devices_per_instance >= together
    ]
    if nodes > 1:
        holding = [offer for offer in holding if offer.node_type is not None] or holding
    return newest_lists(holding)


def cheapest_offer(device: str, *, devices: int = 1, nodes: int = 1) -> Offer | None:
    """The offer on which an hour of a job costs least on demand; None where no price is known.

    Args:
        device: Name of the catalog; another has no price.
        devices: Of the job; instances are rented as a whole.
        nodes: Hosts that the devices stand in.
    """
    own = tuple(offer for offer in read_own_lists() if offer.device == device)
    return _cheapest(device, devices, nodes, own)


@data
def _cheapest(device: str, devices: int, nodes: int, own: tuple[Offer, ...]) -> Offer | None:
    market = Market.ON_DEMAND
    known = [offer for offer in _newest((*read_table(device=device).offers, *own)) if offer.host_included]
    found = ranked(rentable(known, market, devices=devices, nodes=nodes), market, devices=devices)
    return found[0] if found else None


def _shipped_newest() -> tuple[Offer, ...]:
    """Those that ship and the lists that the user brought."""
    own = read_own_lists()
    return _newest((*read_table().offers, *own)) if own else _shipped_alone()


@data
def _shipped_alone() -> tuple[Offer, ...]:
    return _newest(read_table().offers)


def _newest(found: Iterable[Offer]) -> tuple[Offer, ...]:
    """One offer of each instance type and region, that of the newest date; the later row of the same date."""
    newest: dict[tuple[str, ...], Offer] = {}
    for offer in found:
        key = (offer.cloud, offer.region, offer.instance_type, offer.device, str(offer.devices_per_instance))
        if key not in newest or newest[key].date <= offer.date:
            newest[key] = offer
    return tuple(newest.values())


def _device_names(names: Collection[str], found: Sequence[Offer]) -> set[str]:
    """Catalog names; a device of the user's own table keeps its name."""
    own = {offer.device for offer in found}
    return {name if name in own else canonical_device(name) for name in names}


def _cloud_names(names: Collection[str], found: Sequence[Offer]) -> set[str]:
    known = {offer.cloud for offer in found}
    for name in names:
        if name.lower() not in known:
            raise UnknownNameError(
                kind="cloud", name=name, known=known, hint=f"Known: {', '.join(sorted(known))}."
            )
    return {name.lower() for name in names}


def _places(
    names: Collection[str], clouds: Collection[str] | None, found: Sequence[Offer]
) -> set[tuple[str, str]]:
    known = {(offer.cloud, offer.region): None for offer in found if clouds is None or offer.cloud in clouds}
    places: set[tuple[str, str]] = set()
    for name in names:
        cloud, _, region = re.sub(r"\s", "", name).rpartition(":")
        hits = {
            place for place in known if place[1].lower() == region.lower() and cloud.lower() in ("", place[0])
        }
        if not hits:
            spelled = {region for _, region in known} | {f"{cloud}:{region}" for cloud, region in known}
            raise UnknownNameError(
                kind="region",
                name=name,
                known=spelled,
                hint="All regions: precision-time list prices --list-regions.",
            )
        places |= hits
    return places


def usd_per_device_hour(device: str) -> float | None:
    """What an hour of a device costs, as one figure that compares types of devices, no more.

    The lowest on-demand price, host included, of any instance of the reference editions (`data/prices.toml`:
    AWS, Azure, Lambda, Nebius and OCI, 2023 to 2025), divided by its devices; None where these have none.
    Forms of a device that those lists do not tell apart (A100 as module or card) share the lowest. What to
    rent now is another question: `offers`.

    >>> usd_per_device_hour("T4"), usd_per_device_hour("TitanXp")
    (0.526, None)
    """
    offer = reference_offers().get(device)
    return None if offer is None else offer.usd_per_device_hour()


@data
def reference_offers() -> Mapping[str, Offer]:
    """The offer behind the reference price of each device."""
    lowest: dict[str, Offer] = {}
    same = {name: tuple(row["devices"]) for row in words()["same_name"] for name in row["devices"]}
    for offer in read_table(reference=True).offers:
        if offer.usd_per_hour is None or not offer.host_included:
            continue
        for name in same.get(offer.device, (offer.device,)):
            if name not in lowest or offer.usd_per_device_hour() < lowest[name].usd_per_device_hour():
                lowest[name] = offer
    return lowest
