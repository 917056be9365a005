r"""What a run costs, as named terms that add up.

$$C = n\,h\,p + S\,\tau\,r_s + E\,r_e, \qquad n = \lceil g / d \rceil$$

$g$ devices take $n$ whole instances of $d$ devices at $p$ USD per hour for $h$ hours; the share $g / (n d)$
of their price is the devices', the rest is paid for devices that idle. $S$ bytes are stored for $\tau$ months
at $r_s$, $E$ bytes leave the cloud at $r_e$. All arguments broadcast: a plan needs one call.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from ...cache import data
from ...errors import CatalogError
from ...io import packaged
from ...records import dataclass
from ...units import GIGA
from .offer import whole_instances

Floats = npt.NDArray[np.float64]
HOURS_PER_MONTH = 730.0
"""As clouds bill storage: 8760 hours / 12."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunCost:
    """The terms of a cost [USD], arrays of one shape."""

    devices_usd: Floats
    """The share of the instances that the run uses."""
    idle_devices_usd: Floats
    """The share of the last instance that nothing runs on."""
    storage_usd: Floats
    """Checkpoints and data while the run lasts."""
    egress_usd: Floats
    """What leaves the cloud."""
    instances: npt.NDArray[np.int64]
    """Whole instances that are rented."""
    idle_devices: npt.NDArray[np.int64]

    @property
    def terms(self) -> dict[str, Floats]:
        """Name -> USD; they add up to `total_usd`."""
        return {
            "devices_usd": self.devices_usd,
            "idle_devices_usd": self.idle_devices_usd,
            "storage_usd": self.storage_usd,
            "egress_usd": self.egress_usd,
        }

    @property
    def total_usd(self) -> Floats:
        """The sum of the terms."""
        return self.devices_usd + self.idle_devices_usd + self.storage_usd + self.egress_usd


def run_cost(
    *,
    hours: npt.ArrayLike,
    devices: npt.ArrayLike,
    devices_per_instance: npt.ArrayLike,
    usd_per_instance_hour: npt.ArrayLike,
    stored_bytes: npt.ArrayLike = 0.0,
    storage_usd_per_gb_month: npt.ArrayLike = 0.0,
    egress_bytes: npt.ArrayLike = 0.0,
    egress_usd_per_gb: npt.ArrayLike = 0.0,
) -> RunCost:
    """The cost of runs of `hours` on `devices` devices.

    Args:
        hours: Wall-clock time for which the instances are rented.
        devices: Devices that the run uses.
        devices_per_instance: Of the instance type.
        usd_per_instance_hour: Price of a whole instance.
        stored_bytes: Checkpoints and data that lie in storage, on average over the run.
        storage_usd_per_gb_month: Per 1e9 bytes.
        egress_bytes: What leaves the cloud.
        egress_usd_per_gb: Per 1e9 bytes.

    Raises:
        CatalogError: If a price, a rate or a size is below zero, or there are no devices.

    Assumes: instances are rented from the start to the end; billing by the second.

    >>> cost = run_cost(hours=10.0, devices=12, devices_per_instance=8, usd_per_instance_hour=40.0)
    >>> float(cost.total_usd), float(cost.idle_devices_usd), int(cost.instances)
    (800.0, 200.0, 2)
    """
    amounts = {
        "hours": hours,
        "usd_per_instance_hour": usd_per_instance_hour,
        "stored_bytes": stored_bytes,
        "storage_usd_per_gb_month": storage_usd_per_gb_month,
        "egress_bytes": egress_bytes,
        "egress_usd_per_gb": egress_usd_per_gb,
    }
    for name, value in amounts.items():
        _check(name, value, least=0.0)
    _check("devices", devices, least=1.0)
    _check("devices_per_instance", devices_per_instance, least=1.0)
    instances = whole_instances(devices, devices_per_instance)
    used = np.asarray(devices) / (instances * np.asarray(devices_per_instance))
    rent = instances * np.asarray(usd_per_instance_hour) * np.asarray(hours)
    months = np.asarray(hours) / HOURS_PER_MONTH
    stored = np.asarray(stored_bytes) / GIGA * months * np.asarray(storage_usd_per_gb_month)
    egress = np.asarray(egress_bytes) / GIGA * np.asarray(egress_usd_per_gb)
    terms = np.broadcast_arrays(rent * used, rent * (1.0 - used), stored, egress)
    devices_usd, idle_usd, storage_usd, egress_usd = (np.asarray(term, dtype=np.float64) for term in terms)
    idle = instances * np.asarray(devices_per_instance) - np.asarray(devices)
    return RunCost(
        devices_usd=devices_usd,
        idle_devices_usd=idle_usd,
        storage_usd=storage_usd,
        egress_usd=egress_usd,
        instances=np.broadcast_to(instances, devices_usd.shape),
        idle_devices=np.broadcast_to(idle, devices_usd.shape).astype(np.int64),
    )


def _check(name: str, value: npt.ArrayLike, *, least: float) -> None:
    """An amount may be NaN or infinite only where it is the time of a candidate that cannot run."""
    numbers = np.asarray(value, dtype=np.float64)
    unknown = name != "hours" and not np.all(np.isfinite(numbers))
    if unknown or np.any(numbers < least):
        wrong = next((x for x in numbers.flat if not math.isfinite(x) or x < least), math.nan)
        raise CatalogError(
            f"{name} is {wrong:g}; it has to be a number of at least {least:g}. To fix: state another."
        )


class Term(StrEnum):
    """What is paid by the gigabyte (1e9 bytes)."""

    STORAGE = "storage"
    """Per month."""
    EGRESS = "egress"
    """To the internet."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rate:
    """A list rate."""

    cloud: str
    term: Term
    usd_per_gb: float
    what: str
    """Product and place."""
    date: str
    source: str
    """ "recalled" where it was not read again."""


def list_rate(cloud: str, term: Term) -> Rate | None:
    """The rate of a cloud (`data/rates.csv`); None where none is known, which is not to be taken for zero.

    List rates of the first tier: larger amounts cost less per gigabyte, so that a rate is an upper bound.

    >>> list_rate("aws", Term.EGRESS).usd_per_gb, list_rate("nebius", Term.EGRESS)
    (0.09, None)
    """
    return _rates().get((cloud.lower(), term))


@data
def _rates() -> Mapping[tuple[str, Term], Rate]:
    lines = packaged(__package__, "data/rates.csv").read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, Any]] = [*csv.DictReader(lines)]
    rates = (
        Rate(**{**row, "term": Term(row["term"]), "usd_per_gb": float(row["usd_per_gb"])}) for row in rows
    )
    return {(rate.cloud, rate.term): rate for rate in rates}
