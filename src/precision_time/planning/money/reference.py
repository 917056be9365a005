"""What an hour of a device costs, as one figure that compares types of devices, no more.

The lowest on-demand price, host included, of any instance of the reference editions (`data/prices.toml`: AWS,
Azure, Lambda, Nebius and OCI, 2023 to 2025), divided by its devices. Forms of a device which those lists do
not tell apart (A100 as module or card) share the lowest. What to rent now is another question: `offers`.
"""

from __future__ import annotations

from collections.abc import Mapping

from ...cache import data
from .accelerators import words
from .offer import Market, Offer
from .reading import read_table


def usd_per_device_hour(device: str) -> float | None:
    """The reference price of a device; None where the reference editions have none.

    >>> usd_per_device_hour("T4"), usd_per_device_hour("TitanXp")
    (0.526, None)
    """
    offer = reference_offers().get(device)
    price = None if offer is None else offer.price(Market.ON_DEMAND)
    return None if offer is None or price is None else price / offer.devices_per_instance


@data
def reference_offers() -> Mapping[str, Offer]:
    """The offer behind the reference price of each device."""
    lowest: dict[str, Offer] = {}
    same = {name: tuple(row["devices"]) for row in words()["same_name"] for name in row["devices"]}
    for offer in read_table(reference=True).offers:
        if offer.usd_per_hour is None or not offer.host_included:
            continue
        for name in same.get(offer.device, (offer.device,)):
            if name not in lowest or _rate(offer) < _rate(lowest[name]):
                lowest[name] = offer
    return lowest


def _rate(offer: Offer) -> float:
    assert offer.usd_per_hour is not None
    return offer.usd_per_hour / offer.devices_per_instance
