"""SI constants and the formatters that print quantities for people."""

from __future__ import annotations

import math
import re
from typing import Any

from .errors import ConfigError

KIBI, MEBI, GIBI = 2.0**10, 2.0**20, 2.0**30
KILO, MEGA, GIGA, TERA, PETA = 1e3, 1e6, 1e9, 1e12, 1e15
J_PER_KWH = 3.6e6

_TIME_STEPS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d)?")
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SI_STEPS = ((PETA, "P"), (TERA, "T"), (GIGA, "G"), (MEGA, "M"), (KILO, "k"), (1.0, ""))


def duration_s(name: str, text: str | float) -> float:
    """Seconds of a duration as people write it; a plain number is seconds.

    >>> duration_s("--deadline", "90s"), duration_s("--deadline", "1.5h"), duration_s("--deadline", 600)
    (90.0, 5400.0, 600.0)
    >>> duration_s("--measured", "250ms")
    0.25

    Raises:
        ConfigError: If it is no duration, or not above 0.
    """
    match = _DURATION.fullmatch(str(text).strip())
    seconds = float(match[1]) * _SECONDS[match[2] or "s"] if match else 0.0
    if not 0.0 < seconds < math.inf:
        raise ConfigError(
            f"{name} {text!r} is not a duration above 0. To fix: write it like 90s, 10m, 1.5h or 2d."
        )
    return seconds


def format_duration(seconds: float) -> str:
    """`seconds` with three significant digits, or d/h/min above two minutes.

    >>> format_duration(0.01234), format_duration(0.9996), format_duration(7260.0)
    ('12.3 ms', '1 s', '2 h 1 min')
    """
    if seconds >= 2 * 86400:
        return f"{int(seconds // 86400)} d {int(seconds % 86400 // 3600)} h"
    if seconds >= 7200:
        return f"{int(seconds // 3600)} h {int(seconds % 3600 // 60)} min"
    if seconds >= 120:
        return f"{int(seconds // 60)} min {int(seconds % 60)} s"
    for scale, unit in _TIME_STEPS:
        if seconds >= 0.9995 * scale:  # what rounds to a thousand of the next smaller unit is one of this
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds:.3g} s"


def format_si(value: float, unit: str) -> str:
    """`value` with an SI prefix.

    >>> format_si(312e12, "FLOP/s")
    '312 TFLOP/s'
    """
    for scale, prefix in _SI_STEPS:
        if abs(value) >= scale:
            return f"{value / scale:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def format_bytes(value: float) -> str:
    """`value` bytes in GiB, MiB or KiB.

    >>> format_bytes(80 * 2**30)
    '80.0 GiB'
    """
    for scale, unit in ((GIBI, "GiB"), (MEBI, "MiB"), (KIBI, "KiB")):
        if abs(value) >= scale:
            return f"{value / scale:.1f} {unit}"
    return f"{value:.0f} B"


def format_field(name: str, value: Any) -> str:
    """A value in the unit that its name ends in (`_s`, `_bytes`, `_flops_per_s` ...).

    >>> format_field("memory_bandwidth_bytes_per_s", 3.35e12), format_field("launch_overhead_s", 4.5e-6)
    ('3.35 TB/s', '4.5 us')
    """
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    for ending, unit in (("bytes_per_s", "B/s"), ("flops_per_s", "FLOP/s"), ("flops", "FLOP"), ("_hz", "Hz")):
        if name.endswith(ending):
            return format_si(value, unit)
    if name.endswith("_s"):
        return format_duration(value)
    if "bytes" in name:
        return format_bytes(value)
    if "share" in name:
        return f"{value:.0%}"
    return str(value) if name.endswith("_year") else grouped(value)


def format_range(low_s: float, high_s: float) -> str:
    """Two durations, their unit once where they share it.

    >>> format_range(0.162, 0.267), format_range(0.9, 1.2)
    ('162 - 267 ms', '900 ms - 1.2 s')
    """
    low, high = format_duration(low_s), format_duration(high_s)
    number, _, unit = low.partition(" ")
    shared = " " not in unit and unit == high.partition(" ")[2]
    return f"{number} - {high}" if shared else f"{low} - {high}"


def grouped(value: float) -> str:
    """Three significant digits below a thousand, thousands separated above.

    >>> grouped(1.972), grouped(999.4), grouped(999.7), grouped(2303.4)
    ('1.97', '999', '1,000', '2,303')
    """
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def plain_name(name: str) -> str:
    """The name of a field or term as people read it.

    >>> plain_name("data_exposed_s"), plain_name("step_time_s")
    ('data exposed', 'step time')
    """
    return name.removesuffix("_s").replace("_", " ")
