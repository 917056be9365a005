"""What a device draws while it trains, and the host beside it.

    power = TDP * (idle + (busy - idle) * (1 - waiting) * (1 - exp(-u / scale))),   u = MFU + memory * m

`waiting` is the share of the step in which the device waits for the host or for input, m that of memory-bound
kernels, both off the terms of a predicted step. A device whose kernels fill it draws nearly the same whatever
they do; small kernels draw less, and the utilization tells them. The numbers (`data/power.toml`) are fitted
to published power measurements (`data/measured_power.csv`); `busy` is the device's own where it was measured.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from ...arrays import Floats, Number
from ...cache import data
from ...cost.terms import METHOD_TERMS, TERMS
from ...errors import CatalogError, ConfigError
from ...hardware.device import Device
from ...hardware.device_table import base_name
from ...io import packaged_toml
from .grid import table


@data
def power_constants() -> Mapping[str, Any]:
    """The fitted numbers, their spread, and the terms in which a device waits or is bound by memory."""
    return packaged_toml(__package__, "data/power.toml")


def shares_of(terms: Mapping[str, Number]) -> tuple[Floats, Floats]:
    """Shares of the step's time in which the device waits, and its kernels are bound by memory, 0..1.

    Args:
        terms: `Prediction.terms` or `StepCosts.terms`: named seconds, scalars or arrays of one shape.

    Raises:
        ConfigError: If the terms are empty, unknown or take no time.
    """
    unknown = sorted(set(terms) - {term.name for term in (*TERMS, *METHOD_TERMS)})
    if unknown or not terms:
        raise ConfigError(
            f"Terms of a step {', '.join(unknown) or '(none)'} are not known. The rule: they are those of "
            "cost/data/terms.toml. To fix: give `Prediction.terms`."
        )
    step_s = _sum_of(terms, terms)
    if not np.all(step_s > 0.0):
        raise ConfigError("A step whose terms take no time has no power. To fix: give terms above 0 s.")
    kinds = power_constants()["terms"]
    return _sum_of(terms, kinds["waiting"]) / step_s, _sum_of(terms, kinds["memory"]) / step_s


def _sum_of(terms: Mapping[str, Number], names: Collection[str]) -> Floats:
    seconds = (np.maximum(np.asarray(terms[name], dtype=float), 0.0) for name in terms if name in names)
    return sum(seconds, np.zeros(()))


def device_power_w(device: Device, terms: Mapping[str, Number], *, mfu: Number | None = None) -> Floats:
    """Mean power of one device over a step [W].

    Args:
        device: Its TDP is the scale.
        terms: `Prediction.terms`: seconds by name, scalars or arrays.
        mfu: `Prediction.mfu`; None (or NaN) where it is not known: then kernels are taken to fill the device.

    Raises:
        CatalogError: If the device has no TDP.
        ConfigError: If the terms are not those of a step, or the MFU is negative.
    """
    known = np.asarray(np.inf if mfu is None else mfu, dtype=float)
    if np.any(known < 0.0):
        raise ConfigError(f"An MFU of {mfu} cannot be. The rule: 0 to 1. To fix: give `Prediction.mfu`.")
    waiting, memory = shares_of(terms)
    known = np.where(np.isnan(known), np.inf, known)
    constants = power_constants()
    busy = constants["busy_of"].get(base_name(device), constants["device"]["busy"])
    return tdp_w(device) * share_of_tdp(waiting, memory, known, {**constants["device"], "busy": busy})


def share_of_tdp(waiting: Floats, memory: Floats, mfu: Floats, numbers: Mapping[str, Number]) -> Floats:
    """Power over TDP; `numbers` are idle, busy, scale and memory."""
    filled = -np.expm1(-(mfu + numbers["memory"] * memory) / numbers["scale"])
    return np.asarray(numbers["idle"] + (numbers["busy"] - numbers["idle"]) * (1.0 - waiting) * filled)


def log_power_spread(device: Device) -> float:
    """Standard deviation of the logarithm of measured over predicted power."""
    constants = power_constants()
    kind = "measured" if base_name(device) in constants["busy_of"] else "other"
    return float(constants["spread"][kind])


def idle_power_w(device: Device) -> float:
    """Power of one device that is held but does not compute [W].

    Raises:
        CatalogError: If the device has no TDP.
    """
    return float(tdp_w(device) * power_constants()["device"]["idle"])


def host_power_w(device: Device) -> float:
    """Power of the host for each device: processors, memory, fans, switches, adapters, power supplies [W].

    A share of what the data sheet of the usual node leaves beside its devices; where none is listed
    (`data/hosts.csv`), a share of the device's TDP.

    Raises:
        CatalogError: If the device has no TDP.
    """
    shares = power_constants()["host"]
    beside_w = _beside_w().get(base_name(device) or "")
    return float(shares["of_tdp"] * tdp_w(device) if beside_w is None else shares["of_sheet"] * beside_w)


@data
def _beside_w() -> Mapping[str, float]:
    """What the sheet of a node grants it for each device beside the device's TDP."""
    from ...hardware.catalog import get_device

    return {
        name: float(row["max_w"]) / float(row["devices_per_node"]) - get_device(name).tdp_w
        for row in table("hosts.csv")
        for name in row["devices"].split()
    }


def tdp_w(device: Device) -> float:
    """The thermal design power of a device [W].

    Raises:
        CatalogError: If it has none.
    """
    if not device.tdp_w > 0.0:
        raise CatalogError(
            f"Device {device.name!r} has no TDP (tdp_w = {device.tdp_w:g}), and power is a share of it. "
            "To fix: state `tdp_w` in the file of your own devices, or give the measured power in W."
        )
    return device.tdp_w
