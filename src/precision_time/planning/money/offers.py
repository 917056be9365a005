"""Offers: what an hour of an instance costs, where, since when, and who says so.

Prices are list prices of the date of each row (`data/prices.csv`, made by scripts/build_prices.py). They
change: a plan says the date of what it took, and `precision-time prices import` brings a newer list.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache

import numpy as np
import numpy.typing as npt

from ...errors import CatalogError, UnknownNameError
from ...hardware.device_table import canonical_device
from ...hardware.nodes import NodeType
from .accelerators import node_of_instance


class Market(StrEnum):
    """How an instance is paid."""

    ON_DEMAND = "on-demand"
    """By the hour, at the list price, until it is given back."""
    SPOT = "spot"
    """Spare capacity at a lower price, which the cloud takes back when it wants."""
    RESERVED = "reserved"
    """At a lower price, for a term that is paid whether it is used or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One instance type of a cloud in one region. Prices are of the whole instance."""

    cloud: str
    instance_type: str
    region: str
    device: str
    """Name of the catalog."""
    devices_per_instance: int
    usd_per_hour: float | None
    """On demand; None where the source states none."""
    spot_usd_per_hour: float | None = None
    """The lowest of the region's zones."""
    reserved_usd_per_hour: float | None = None
    """None unless a source or the user states one."""
    date: str
    """Of the list: a day, a month or a year."""
    source: str
    host_included: bool = True
    """False where the price is of the accelerators alone and the host is paid beside them."""

    def price(self, market: Market) -> float | None:
        """USD per hour of the whole instance; None where none is known."""
        return {
            Market.ON_DEMAND: self.usd_per_hour,
            Market.SPOT: self.spot_usd_per_hour,
            Market.RESERVED: self.reserved_usd_per_hour,
        }[market]

    def stated_price(self, market: Market) -> float:
        """As `price`.

        Raises:
            CatalogError: If none is known; names the markets that have one.
        """
        found = self.price(market)
        if found is None:
            known = [other.value for other in Market if self.price(other) is not None]
            raise CatalogError(
                f"No {market.value} price is known of {self.instance_type} in {self.cloud}:{self.region} "
                f"(source: {self.source}, {self.date}). To fix: take {' or '.join(known)}, or state a price "
                "in a file of --prices."
            )
        return found

    @property
    def node_type(self) -> NodeType | None:
        """The node type of this instance, which knows its network; None where none is listed."""
        return node_of_instance(self.instance_type, self.device, self.devices_per_instance)

    def instances(self, devices: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Whole instances that hold so many devices."""
        return whole_instances(devices, self.devices_per_instance)


def whole_instances(devices: npt.ArrayLike, devices_per_instance: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The least number of instances that hold `devices`: nobody rents a part of one.

    >>> int(whole_instances(9, 8)), int(whole_instances(8, 8))
    (2, 1)
    """
    return np.asarray(-(-np.asarray(devices) // np.asarray(devices_per_instance)), dtype=np.int64)


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

    Args:
        found: Offers.
        discount: Share of the on-demand price that is saved, such as 0.4.

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


@cache
def _shipped_newest() -> tuple[Offer, ...]:
    from .reading import read_table

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
                hint="All regions: precision-time prices --regions.",
            )
        places |= hits
    return places
