"""What a device draws while it trains: shares of its TDP, weighted by how the step's time is spent.

    power = TDP * sum over activities of (share of the step's time) * (level of the activity)

The activities are matrix products, memory-bound kernels, exchanged data that computation does not hide, and
waiting for the host or for input; a predicted step's terms say how long each takes. The levels are the only
fitted numbers (`data/power.toml`, from published power measurements), and they fall in that order.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from ...arrays import Floats, Number
from ...errors import CatalogError, ConfigError
from ...hardware.device import Device
from ...io import packaged_toml

ACTIVITIES = ("products", "memory", "exchange", "waiting")
"""In falling order of power."""


@cache
def power_constants() -> Mapping[str, Any]:
    """The levels, their spread, and which term is which activity."""
    return packaged_toml(__package__, "data/power.toml")


def activity_shares(terms: Mapping[str, Number]) -> dict[str, Floats]:
    """Shares of the step's time by activity, 0..1; they add up to 1.

    Args:
        terms: `Prediction.terms` or `StepCosts.terms`: named seconds, scalars or arrays of one shape.

    Raises:
        ConfigError: If the terms are empty, unknown, negative or take no time.
    """
    kinds = power_constants()["activity"]
    unknown = sorted(set(terms) - set(kinds))
    if unknown or not terms:
        raise ConfigError(
            f"Terms of a step {', '.join(unknown) or '(none)'} are not known. The rule: they are those of "
            "cost/data/terms.toml. To fix: give `Prediction.terms`."
        )
    seconds = dict.fromkeys(ACTIVITIES, np.zeros(()))
    for name, value in terms.items():
        seconds[kinds[name]] = seconds[kinds[name]] + np.maximum(np.asarray(value, dtype=float), 0.0)
    step_s = sum(seconds.values(), np.zeros(()))
    if not np.all(step_s > 0.0):
        raise ConfigError("A step whose terms take no time has no power. To fix: give terms above 0 s.")
    return {kind: value / step_s for kind, value in seconds.items()}


def device_power_w(device: Device, terms: Mapping[str, Number]) -> Floats:
    """Mean power of one device over a step [W]; of the shape of the terms.

    Raises:
        CatalogError: If the device has no TDP.
        ConfigError: If the terms are not those of a step.
    """
    levels = power_constants()["level"]
    shares = activity_shares(terms)
    return tdp_w(device) * sum((levels[kind] * share for kind, share in shares.items()), np.zeros(()))


def idle_power_w(device: Device) -> float:
    """Power of one device that is held but does not compute [W].

    Raises:
        CatalogError: If the device has no TDP.
    """
    return float(tdp_w(device) * power_constants()["level"]["waiting"])


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
