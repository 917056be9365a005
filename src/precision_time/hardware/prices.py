"""What an hour of a device costs: the lowest on-demand price of a public list, with its date.

Source: skypilot-org/skypilot-catalog, on-demand prices of AWS, Azure, Lambda, Nebius and OCI at the date of
each row. Left out are promotions, parts of a device, and offers that exclude the host. Prices change: they
compare types of devices, no more.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib.resources import files


def usd_per_device_hour(device: str) -> float | None:
    """The price of a device of the catalog; None where the list has none.

    >>> usd_per_device_hour("T4"), usd_per_device_hour("TitanXp")
    (0.526, None)
    """
    return _prices().get(device)


@cache
def _prices() -> Mapping[str, float]:
    lines = files(__package__).joinpath("data/prices.csv").read_text(encoding="utf-8").splitlines()
    return {
        name: float(row["usd_per_device_hour"])
        for row in csv.DictReader(lines)
        for name in row["devices"].split()
    }
