"""An offer: what an hour of an instance costs, where, since when, and who says so."""

from __future__ import annotations

import datetime
from enum import StrEnum

from ...errors import CatalogError
from ...records import dataclass
from ..nodes import NodeType
from .accelerators import node_of_instance, words


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

    def usd_per_device_hour(self, market: Market = Market.ON_DEMAND) -> float:
        """As `stated_price`, of one device."""
        return self.stated_price(market) / self.devices_per_instance

    @property
    def node_type(self) -> NodeType | None:
        """The node type of this instance, which knows its network; None where none is listed."""
        return node_of_instance(self.instance_type, self.device, self.devices_per_instance)

    def rented(self, market: Market, devices: int) -> tuple[int, int, float]:
        """Whole instances for so many devices, the devices of them that idle, and USD per hour of them all.

        Raises:
            CatalogError: As `stated_price`.
        """
        count = whole_instances(devices, self.devices_per_instance)
        return count, count * self.devices_per_instance - devices, count * self.stated_price(market)

    @property
    def listed(self) -> datetime.date:
        """The date of its list; of a month or a year alone the first day."""
        year, month, day = (int(part) for part in (*self.date.split("-"), "1", "1")[:3])
        return datetime.date(year, month, day)

    def age_months(self, today: datetime.date) -> int:
        """Whole months since the date of its list, of which a month or a year alone may be known."""
        since = self.listed
        return (today.year - since.year) * 12 + today.month - since.month - (today.day < since.day)

    def age_words(self, today: datetime.date) -> str:
        """That its list is older than `limits.old_days` of `data/prices.toml`; empty where it is not."""
        most = words()["limits"]["old_days"]
        return f"over {most} days old" if (today - self.listed).days > most else ""

    def dated(self, today: datetime.date) -> str:
        """The date of its list in words, and its age where that is old."""
        age = self.age_words(today)
        return f"list of {self.date}" + (f", {age}" if age else "")


def whole_instances(devices: int, devices_per_instance: int) -> int:
    """The least number of instances that hold `devices`: nobody rents a part of one.

    >>> whole_instances(9, 8), whole_instances(8, 8)
    (2, 1)
    """
    return -(-devices // devices_per_instance)
