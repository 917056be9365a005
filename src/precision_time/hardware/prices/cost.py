r"""What a run costs, as named terms that add up.

$$C = n\,h\,p + S\,\tau\,r_s, \qquad n = \lceil g / d \rceil$$

$g$ devices take $n$ whole instances of $d$ devices at $p$ USD per hour for $h$ hours; the share $g / (n d)$
of their price is the devices', the rest is paid for devices that idle. $S$ bytes are stored for $\tau$ months
at $r_s$.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping

from ...cache import data
from ...io import packaged
from ...records import dataclass
from ...units import GIGA
from .offer import whole_instances

HOURS_PER_MONTH = 730.0
"""As clouds bill storage: 8760 hours / 12."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCost:
    """The terms of a cost [USD]."""

    devices_usd: float
    """The share of the instances that the run uses."""
    idle_devices_usd: float
    """The share of the last instance that nothing runs on."""
    storage_usd: float
    """Checkpoints while the run lasts."""
    instances: int
    """Whole instances that are rented."""

    @property
    def terms(self) -> dict[str, float]:
        """Name -> USD; they add up to `total_usd`."""
        return {
            "devices_usd": self.devices_usd,
            "idle_devices_usd": self.idle_devices_usd,
            "storage_usd": self.storage_usd,
        }

    @property
    def total_usd(self) -> float:
        """The sum of the terms."""
        return self.devices_usd + self.idle_devices_usd + self.storage_usd


def run_cost(
    *,
    hours: float,
    devices: int,
    devices_per_instance: int,
    usd_per_instance_hour: float,
    stored_bytes: float = 0.0,
    storage_usd_per_gb_month: float = 0.0,
) -> RunCost:
    """The cost of a run.

    Args:
        hours: Wall-clock time for which the instances are rented.
        devices: Devices that the run uses, at least 1.
        devices_per_instance: Of the instance type.
        usd_per_instance_hour: Price of a whole instance.
        stored_bytes: Checkpoints that lie in storage, on average over the run.
        storage_usd_per_gb_month: Per 1e9 bytes.

    Assumes: instances are rented from the start to the end; billing by the second.

    >>> cost = run_cost(hours=10.0, devices=12, devices_per_instance=8, usd_per_instance_hour=40.0)
    >>> cost.total_usd, cost.idle_devices_usd, cost.instances
    (800.0, 200.0, 2)
    """
    instances = whole_instances(devices, devices_per_instance)
    used = devices / (instances * devices_per_instance)
    rent = instances * usd_per_instance_hour * hours
    return RunCost(
        devices_usd=rent * used,
        idle_devices_usd=rent * (1.0 - used),
        storage_usd=stored_bytes / GIGA * (hours / HOURS_PER_MONTH) * storage_usd_per_gb_month,
        instances=instances,
    )


def storage_rate(cloud: str) -> float | None:
    """USD for 1e9 bytes and a month in a cloud (`data/rates.csv`, each with its source); None: not known.

    List rates of the first tier: larger amounts cost less per gigabyte, so that a rate is an upper bound.

    >>> storage_rate("aws"), storage_rate("nebius")
    (0.023, None)
    """
    return _rates().get(cloud.lower())


@data
def _rates() -> Mapping[str, float]:
    lines = packaged(__package__, "data/rates.csv").read_text(encoding="utf-8").splitlines()
    return {row["cloud"]: float(row["usd_per_gb"]) for row in csv.DictReader(lines)}
