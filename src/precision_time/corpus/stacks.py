"""Which software stack ran a row: profile by rule, version year by what the row says of versions."""

from __future__ import annotations

import re
from collections.abc import Callable

from ..cost.job import Stack, TimingScope
from ..cost.stacks import StackProfile
from ..errors import ConfigError
from ..hardware.catalog import get_device
from ..request.resolve import stack_profile, usual_year
from .rules import first_match, load_table
from .schema import Row

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_CONTAINER = re.compile(
    r"(?:ngc\D{0,20}|nemo\D{0,3}|release\s|nvidia\D{0,20})(\d\d)\.(\d\d)\b|^(\d\d)\.(\d\d)(?:\.\d+)?\s", re.I
)
_DATE = re.compile(r"\b(20\d\d)-?(0[1-9]|1[0-2])(?:-?(?:[0-2]\d|3[01]))?\b|dev(20\d\d)(\d\d)\d\d")
_MONTH_YEAR = re.compile(r"\b([A-Z][a-z]{2})[a-z]* (20\d\d)\b")
_VERSION = re.compile(r"(\d+)\.(\d+)")
_OLDEST_IN_ROUND = 4.0
"""A version this many years older than the benchmark round that names it is a misreading."""
_EARLY_ACCESS = 1.0
"""Containers older than a year before a device's first software are misreadings of another system's file."""
_INPUT_SCOPES = {TimingScope.WITH_INPUT, TimingScope.WITH_EVAL, TimingScope.EPOCH_AVERAGE}


def infer_stack(
    row: Row, *, framework: str, scope: TimingScope, family: Callable[[], str]
) -> tuple[Stack, tuple[str, ...]]:
    """The `Stack` behind a row and the assumptions that it rests on.

    Args:
        row: The raw row.
        framework: Canonical framework name, empty if the row does not say.
        scope: What the row's time includes: real input is part of the stack.
        family: The family of the row's model: decides where no rule does, as for any request.
    """
    rule = first_match("stack", row.text) or {}
    profile = stack_profile(rule.get("profile"), None, family() if "profile" not in rule else "")
    assumptions = []
    if not rule.get("sure", True):
        assumptions.append(f"stack taken as {profile.name}: only the framework and task are known")
    year = framework_year(row, framework=framework)
    if year is None:
        year = _usual_year(profile, row.text("device"))
        assumptions.append(f"framework version not stated: one of {year:.1f} assumed")
    layout = row.text("memory_format").lower()
    compiler = first_match("compiler", row.text) or {}
    stack = profile.stack(
        framework=framework or None,
        framework_year=year,
        compiler=compiler.get("compiler"),
        channels_last={"nhwc": True, "channels_last": True, "nchw": False}.get(layout),
        fused_optimizer=True if "fused" in row.text("optimizer").lower() else None,
        unpadded_sequences=_unpadded(row),
        real_input=_real_input(row, scope),
    )
    return stack, tuple(assumptions)


def framework_year(row: Row, *, framework: str) -> float | None:
    """When the row's framework version came out, as a decimal year; None if nothing tells."""
    version = row.text("framework_version")
    detail = row.text("precision_detail")
    for text in (version, detail if "container" in detail else ""):
        found = _year_in(text)
        if found is not None:
            return found
    table = load_table("years").get(framework, {})
    match = _VERSION.search(version)
    stated = table.get(f"{match[1]}.{match[2]}") if match else None
    round_year = load_table("years")["rounds"].get(row.text("source"))
    if stated is not None and (round_year is None or 0 <= round_year - stated <= _OLDEST_IN_ROUND):
        return float(stated)
    if round_year is not None:
        return float(round_year)
    rule = first_match("year", row.text)
    return float(rule["year"]) if rule else None


def _usual_year(profile: StackProfile, device: str) -> float:
    """`usual_year`; that of the profile alone for an unknown device."""
    try:
        return usual_year(profile, get_device(device))
    except ConfigError:
        return profile.framework_year


def _year_in(text: str) -> float | None:
    """The decimal year of a container tag or date inside a version text."""
    if match := _CONTAINER.search(text):
        year, month = (match[1], match[2]) if match[1] else (match[3], match[4])
        if 15 <= int(year) <= 40 and 1 <= int(month) <= 12:  # noqa: PLR2004
            return _decimal(2000 + int(year), int(month))
    if match := _DATE.search(text):
        year, month = (match[1], match[2]) if match[1] else (match[3], match[4])
        return _decimal(int(year), int(month))
    if (match := _MONTH_YEAR.search(text)) and match[1].lower() in _MONTHS:
        return _decimal(int(match[2]), _MONTHS.index(match[1].lower()) + 1)
    return None


def _decimal(year: int, month: int) -> float:
    return round(year + (month - 1) / 12, 2)


def _unpadded(row: Row) -> bool | None:
    rule = first_match("unpadded", row.text) or {}
    return {"yes": True, "no": False}.get(rule.get("unpadded", "no"))


def _real_input(row: Row, scope: TimingScope) -> bool | None:
    if first_match("synthetic_input", row.text):
        return False
    if scope is TimingScope.UNKNOWN:
        return None
    return scope in _INPUT_SCOPES
