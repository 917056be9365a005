"""Energy and carbon of a run as named terms that add up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import numpy as np

from ...arrays import Floats, Number
from ...cache import data
from ...errors import ConfigError
from ...hardware.device import Device
from ...records import dataclass
from ...units import J_PER_KWH
from .grid import Intensity, table
from .power import device_power_w, host_power_w, idle_power_w, log_power_spread


@dataclass(frozen=True, kw_only=True, slots=True)
class Pue:
    """A PUE, 1 to 5, and who says so."""

    value: float
    year: int | None
    source: str
    cloud: str = ""
    """The cloud that states it; empty for what the caller gave and for the average of data centers."""

    def __post_init__(self) -> None:
        if not 1.0 <= self.value <= 5.0:
            raise ConfigError(
                f"A PUE of {self.value:g} cannot be. The rule: what a data center draws over what its "
                "computers draw, 1 to 5. To fix: give a number like 1.2."
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnergy:
    """Energy and carbon of runs; every array has their shape."""

    terms_j: Mapping[str, Floats]
    """devices_busy, devices_waiting, host, network, cooling; they add up to `energy_j`."""
    carbon_terms_g: Mapping[str, Floats]
    """The same names and `embodied`, grams of CO2 equivalent; empty where no intensity was given."""
    device: str
    devices: Floats
    device_power_w: Floats
    """Of one device while it trains."""
    log_power_spread: float
    """Standard deviation of the logarithm of true over predicted power; 0 where the power was given."""
    duration_s: Floats
    pue: Pue
    intensity: Intensity | None

    @property
    def energy_j(self) -> Floats:
        """Sum of the terms."""
        return reduce(np.add, self.terms_j.values())

    @property
    def energy_kwh(self) -> Floats:
        """Sum of the terms."""
        return self.energy_j / J_PER_KWH

    @property
    def carbon_g(self) -> Floats | None:
        """CO2 equivalent; None where no intensity was given."""
        return reduce(np.add, self.carbon_terms_g.values()) if self.carbon_terms_g else None

    def to_codecarbon(self) -> dict[str, Any]:
        """One run in the fields of codecarbon's output (kWh, kg, W, s), which count the PUE in each energy.

        The host's processors, memory and fans are not told apart: all is in the CPU's fields.
        Source: mlco2/codecarbon@b05965e4: output_methods/emissions_data.py, emissions_tracker.py.

        Raises:
            ConfigError: If these are several runs, or the place is not known.
        """
        carbon = self.carbon_g
        if carbon is None or np.size(carbon) != 1 or np.size(self.devices) != 1:
            raise ConfigError(
                "codecarbon's output is of one run at a known place. To fix: ask one run and give its region."
            )
        seconds = float(self.duration_s)
        kwh = {name: float(value) / J_PER_KWH * self.pue.value for name, value in self.terms_j.items()}
        gpu_kwh = kwh["devices_busy"] + kwh["devices_waiting"]
        host_kwh = kwh["host"] + kwh["network"]
        per_kw = 3600.0 / seconds / self.pue.value * 1e3 if seconds > 0.0 else 0.0
        place = self.intensity
        return {
            "duration": seconds,
            "emissions": float(carbon) / 1e3,
            "emissions_rate": float(carbon) / 1e3 / seconds if seconds > 0.0 else 0.0,
            "cpu_power": host_kwh * per_kw,
            "gpu_power": gpu_kwh * per_kw,
            "ram_power": 0.0,
            "cpu_energy": host_kwh,
            "gpu_energy": gpu_kwh,
            "ram_energy": 0.0,
            "energy_consumed": float(self.energy_kwh),
            "country_name": place.country_name if place else "",
            "country_iso_code": place.country if place else "",
            "region": place.place if place else "",
            "cloud_provider": place.cloud if place else "",
            "cloud_region": place.region if place else "",
            "gpu_count": float(self.devices),
            "gpu_model": f"{float(self.devices):g} x {self.device}",
            "on_cloud": "Y" if place and place.cloud else "N",
            "pue": self.pue.value,
        }


def run_energy(
    *,
    device: Device,
    devices: Number,
    busy_s: Number,
    terms: Mapping[str, Number] | None = None,
    mfu: Number | None = None,
    waiting_s: Number = 0.0,
    power_w: Number | None = None,
    host_w: Number | None = None,
    network_w: Number = 0.0,
    pue: Pue | float | None = None,
    intensity: Intensity | None = None,
    g_per_kwh: Number | None = None,
    embodied_g_per_device_hour: Number = 0.0,
) -> RunEnergy:
    """Energy and carbon of runs; numbers are scalars or arrays that broadcast.

    Args:
        device: What they run on.
        devices: How many, those of unused parts of nodes not counted.
        busy_s: Time in steps, over the run.
        terms: `Prediction.terms` of a step, from which the power follows; or give `power_w`.
        mfu: `Prediction.mfu`, likewise; None where it is not known.
        waiting_s: Time in which the devices are held but do not train: start-up, checkpoints, restarts.
        power_w: Measured mean power of one device while it trains.
        host_w: Power of the host for each device; None for the usual one.
        network_w: Power of the switches between nodes for each device; left out unless stated.
        pue: PUE; None for the average of data centers asked.
        intensity: Of the grid; None where the place is not known: then there is no carbon.
        g_per_kwh: Mean intensity over the run, where it depends on the hour (`HourlyIntensity`).
        embodied_g_per_device_hour: CO2 of making the hardware, for each hour that a device is held.

    Raises:
        ConfigError: If a number is negative or not finite, or neither terms nor a power is given.
        CatalogError: If the device has no TDP.
    """
    numbers = {
        "devices": devices, "busy_s": busy_s, "waiting_s": waiting_s, "power_w": power_w, "host_w": host_w,
        "network_w": network_w, "g_per_kwh": g_per_kwh,
        "embodied_g_per_device_hour": embodied_g_per_device_hour,
    }  # fmt: skip
    for name, value in numbers.items():
        if value is not None and not (np.all(np.isfinite(value)) and np.all(np.asarray(value) >= 0.0)):
            raise ConfigError(f"{name} = {value} cannot be. To fix: give finite numbers of 0 or more.")
    if power_w is None and terms is None:
        raise ConfigError("Energy needs the terms of a step or a power. To fix: give terms or power_w.")
    drawn_w = (
        device_power_w(device, terms or {}, mfu=mfu) if power_w is None else np.asarray(power_w, dtype=float)
    )
    counted, busy, waiting = (np.asarray(value, dtype=float) for value in (devices, busy_s, waiting_s))
    beside_w = host_power_w(device) if host_w is None else np.asarray(host_w, dtype=float)
    parts = {
        "devices_busy": counted * busy * drawn_w,
        "devices_waiting": counted * waiting * idle_power_w(device),
        "host": counted * (busy + waiting) * beside_w,
        "network": counted * (busy + waiting) * np.asarray(network_w, dtype=float),
    }
    stated = pue if isinstance(pue, Pue) else pue_of() if pue is None else given_pue(pue)
    parts["cooling"] = (stated.value - 1.0) * reduce(np.add, parts.values())
    shape = np.broadcast_shapes(*(value.shape for value in parts.values()))
    terms_j = {name: np.broadcast_to(value, shape) for name, value in parts.items()}
    per_kwh = g_per_kwh if g_per_kwh is not None else None if intensity is None else intensity.g_per_kwh
    carbon: dict[str, Floats] = {}
    if per_kwh is not None:
        carbon = {name: value / J_PER_KWH * per_kwh for name, value in terms_j.items()}
        made = counted * (busy + waiting) / 3600.0 * embodied_g_per_device_hour
        carbon["embodied"] = np.broadcast_to(made, shape)
    return RunEnergy(
        terms_j=terms_j,
        carbon_terms_g=carbon,
        device=device.name,
        devices=counted,
        device_power_w=drawn_w,
        log_power_spread=log_power_spread(device) if power_w is None else 0.0,
        duration_s=busy + waiting,
        pue=stated,
        intensity=intensity,
    )


def given_pue(value: float) -> Pue:
    """The PUE that the caller states.

    Raises:
        ConfigError: If it is not 1 to 5.
    """
    return Pue(value=value, year=None, source="given")


def pue_of(cloud: str | None = None, region: str | None = None) -> Pue:
    """The published PUE of a cloud's region, else of the cloud, else the average of data centers asked.

    `cloud` and `source` say which it is: say it where the average stands in.

    >>> pue_of("aws").value, pue_of().value
    (1.14, 1.56)
    """
    rows = _rows()
    named = (cloud or "").lower()
    return rows.get((named, region or ""), rows.get((named, ""), rows["", ""]))


@data
def _rows() -> Mapping[tuple[str, str], Pue]:
    return {
        (row["cloud"], row["region"]): Pue(
            value=float(row["pue"]), year=int(row["year"]), source=row["source"], cloud=row["cloud"]
        )
        for row in table("pue.csv")
    }
