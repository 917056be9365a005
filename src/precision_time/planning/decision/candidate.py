"""One candidate with all that is known of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ...diagnostics import EXTRAPOLATION, unmeasured
from ...plain import from_plain
from ...records import dataclass
from ...request.request import Request
from ...units import J_PER_KWH, format_duration


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """Devices, number, precision, layout, batch, hosts and market, and what becomes of the run on them."""

    device: str
    gpus: int
    instances: int
    """Hosts that are paid."""
    precision: str
    layout: str
    """As options; empty for plain data parallelism without accumulation."""
    batch_size: float
    """Samples per device and forward pass."""
    global_batch_size: float
    cloud: str
    """Empty where nobody in the list rents the device; then there is no price."""
    instance_type: str
    region: str
    market: str
    step_time_s: float
    terms_s: Mapping[str, float]
    """Expected seconds of the run by what they are; they add up to `time_s`."""
    time_s: float
    """Expected, from the start of the run to its end."""
    sure_s: float
    """Within which the run ends with the probability asked."""
    probability: float | None
    """Of meeting the deadline; None without one."""
    usd_per_hour: float | None
    """Of all hosts."""
    usd: float | None
    energy_j: float
    carbon_g: float | None
    memory_bytes_per_device: float
    mfu: float | None
    feasible: bool
    on_front: bool
    """No other candidate is better in time, money or carbon without being worse in another."""
    warnings: tuple[str, ...] = ()
    """Codes of what to know of its time."""
    request: Mapping[str, Any]
    """The fields that `predict_time` takes for it."""

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """What no measured run bears out: such a device, or such a precision in such a model."""
        return unmeasured(self.warnings)

    @property
    def doubt(self) -> str:
        """A mark in a table: nobody measured its device or precision, or (a star) nobody a run like it."""
        if self.unmeasured:
            return " (unmeasured)"
        return " *" if EXTRAPOLATION in self.warnings else ""

    @property
    def label(self) -> str:
        """In a few words: 16 x H100-SXM5-80GB bf16-mixed."""
        return f"{self.gpus} x {self.device} {self.precision}"

    @property
    def place(self) -> str:
        """Who rents it: 2 x p5.48xlarge (aws us-east-1, on-demand)."""
        if not self.cloud:
            return "no price"
        market = "" if self.market == "on-demand" else f", {self.market}"
        return f"{self.instances} x {self.instance_type} ({self.cloud} {self.region}{market})"

    @property
    def where(self) -> str:
        """The cloud and its region: aws us-east-1."""
        market = "" if self.market in ("on-demand", "") else f" {self.market}"
        return f"{self.cloud} {self.region}{market}" if self.cloud else "no price"

    @property
    def device_hours(self) -> float:
        """Of the devices that are used."""
        return self.gpus * self.time_s / 3600.0

    @property
    def energy_kwh(self) -> float:
        """With hosts and cooling."""
        return self.energy_j / J_PER_KWH

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; keys are the field names."""
        found = {item.name: getattr(self, item.name) for item in fields(self)}
        plain = {name: None if _endless(value) else value for name, value in found.items()}
        return plain | {
            "terms_s": {name: None if _endless(value) else value for name, value in self.terms_s.items()},
            "warnings": list(self.warnings),
            "request": Request.of(self.request).to_dict(),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Candidate:
        """The way back from `to_dict`.

        Raises:
            ConfigError: If it is no such dictionary.
        """
        endless: dict[str, Any] = {
            name: math.inf for name in ("time_s", "sure_s") if given.get(name, 0.0) is None
        }
        terms = given.get("terms_s")
        if isinstance(terms, Mapping):
            endless["terms_s"] = {name: math.inf if value is None else value for name, value in terms.items()}
        return from_plain(cls, {**given, **endless})


def _endless(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def money(usd: float | None) -> str:
    """Dollars with three digits or cents.

    >>> money(12.345), money(1234.5), money(None)
    ('$12.35', '$1,234', 'no price')
    """
    if usd is None:
        return "no price"
    return f"${usd:,.2f}" if usd < 1000 else f"${usd:,.0f}"  # noqa: PLR2004


def carbon(grams: float | None) -> str:
    """Mass of CO2.

    >>> carbon(950.0), carbon(12_345.0), carbon(None)
    ('950 g', '12.3 kg', 'not known')
    """
    if grams is None:
        return "not known"
    for scale, unit in ((1e6, "t"), (1e3, "kg")):
        if grams >= scale:
            return f"{grams / scale:,.3g} {unit}" if grams < 1e3 * scale else f"{grams / scale:,.0f} {unit}"
    return f"{grams:.3g} g"


def duration(seconds: float) -> str:
    """Of a run, which may never end."""
    if not math.isfinite(seconds):
        return "never"
    years = seconds / (365.25 * 86400.0)
    return format_duration(seconds) if years < 10.0 else f"{years:,.3g} years"  # noqa: PLR2004


def chance(probability: float) -> str:
    """A probability in whole percent, whose ends are not certain.

    >>> chance(0.999), chance(0.5), chance(0.0)
    ('over 99%', '50%', 'under 1%')
    """
    if probability > 0.99:  # noqa: PLR2004
        return "over 99%"
    return "under 1%" if probability < 0.01 else f"{probability:.0%}"  # noqa: PLR2004
