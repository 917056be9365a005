"""Why a run is slower than its prediction, as far as it can be told from inside it.

What was measured speaks first: waiting for input, a throttled device, a busy host, steps that became slower.
Where none of them explains it, causes are ranked by how well the time that each would give matches
(`precision_time.explain.doctor`): several, since one number makes none certain.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_time.cost.terms import DATA_STALL
from precision_time.errors import PrecisionTimeError
from precision_time.io import packaged_toml
from precision_time.predict.prediction import Prediction
from precision_time.units import format_duration

from .estimate import Level

_QUERY = "clocks.sm,clocks.max.sm,clocks_event_reasons.active"
_QUERY_TIMEOUT_S = 5.0
_IDLE_OR_SET = 0x1 | 0x2
"""Reasons of NVML that are no throttling: idle, and clocks that the user set."""
_MOST_CLOCK = 0.9
_NAMED = 3
"""Causes in the warning."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostState:
    """What is beside the run, read once when the run is found to be slow."""

    clock_share: float | None = None
    """Of the slowest device: its clock over its highest one, 0..1; None where no tool tells."""
    throttled: bool = False
    """A device says that it lowers its clock."""
    busy_processors: float | None = None
    """Processes that compute or wait to, over processors; None where the system does not tell."""


def host_state() -> HostState:
    """What the devices and the system of this host say now."""
    share, throttled = _clocks()
    try:
        busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    except OSError:
        busy = None
    return HostState(clock_share=share, throttled=throttled, busy_processors=busy)


def slow_run(
    prediction: Prediction, level: Level, waited_s: float | None, host: HostState | None = None
) -> str:
    """What a user should read of a run that is slower than it should be.

    Args:
        prediction: Of its step.
        level: Of the steps it made.
        waited_s: Of a step, spent waiting for input; None where nobody measured it.
        host: What is beside it; None to look.
    """
    took_s = level.median_s
    excess_s = took_s - prediction.step_time_s
    return " ".join(
        (
            f"Steps take {format_duration(took_s)}, {took_s / prediction.step_time_s:.2f} x the predicted "
            f"{format_duration(prediction.step_time_s)} ({prediction.interval.coverage:.0%} interval up to "
            f"{format_duration(prediction.interval.high_s)}).",
            _waits(prediction, waited_s, excess_s)
            or _throttled(prediction, host or host_state())
            or _became_slower(level)
            or _ranked(prediction, took_s, waited_s),
        )
    )


def _waits(prediction: Prediction, waited_s: float | None, excess_s: float) -> str:
    if waited_s is None or waited_s - prediction.terms.get(DATA_STALL, 0.0) < 0.5 * excess_s:
        return ""
    return (
        f"{format_duration(waited_s)} of each step pass waiting for input ({DATA_STALL}). To fix: more "
        "loader workers, faster storage or decoding, or prefetching."
    )


def _throttled(prediction: Prediction, host: HostState) -> str:
    if host.throttled and host.clock_share is not None and host.clock_share < _MOST_CLOCK:
        return (
            f"A device is throttled: its clock is at {host.clock_share:.0%} of the highest. To fix: look at "
            "its temperature, power limit and cooling."
        )
    is_processor = prediction.device.startswith("CPU")
    most = _health()["busy_processors" if is_processor else "busy_host_processors"]
    if host.busy_processors is not None and host.busy_processors > most:
        return (
            f"The host is busy: {host.busy_processors:.1f} processes per processor compute or wait to. To "
            "fix: look for other jobs on it."
        )
    return ""


def _became_slower(level: Level) -> str:
    if level.recent_log_ratio < _health()["became_slower_log_ratio"]:
        return ""
    return (
        f"They became {math.exp(level.recent_log_ratio):.2f} x slower while it ran. To fix: look at the "
        "device's temperature and at jobs beside it; inputs that grow do the same."
    )


def _ranked(prediction: Prediction, took_s: float, waited_s: float | None) -> str:
    """The causes that match best, with how probable each is, and the check of the first."""
    from precision_time.explain.doctor import diagnose
    from precision_time.request.request import Request

    wait_s = None if waited_s is None else min(waited_s, took_s)
    try:
        found = diagnose(Request.of(prediction.request), measured_s=took_s, data_wait_s=wait_s).causes
    except PrecisionTimeError:  # a request that only the caller's Python could give, or none
        found = ()
    named = found[:_NAMED]
    if not named:
        return "Nothing that was measured explains it, and the job is not known well enough to rank causes."
    listed = ", ".join(f"{cause.what} ({cause.probability:.0%})" for cause in named)
    other = 1.0 - math.fsum(cause.probability for cause in named)
    return (
        f"Nothing that was measured explains it. It could be: {listed}; something else ({other:.0%}). "
        f"To fix, check first: {named[0].check}"
    )


def _health() -> Mapping[str, Any]:
    return packaged_toml("precision_time_integrations.online.data", "health.toml")


def _clocks() -> tuple[float | None, bool]:
    """Clock of the slowest device over its highest, and whether one is throttled."""
    tool = shutil.which("nvidia-smi")
    if tool is None or not Path("/dev/nvidiactl").exists():
        return None, False
    try:
        said = subprocess.run(
            [tool, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"],
            capture_output=True, text=True, timeout=_QUERY_TIMEOUT_S, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None, False
    return clocks_of(said)


def clocks_of(said: str) -> tuple[float | None, bool]:
    """The same, of what nvidia-smi prints: `clock, highest clock, reasons` in a line for each device."""
    shares, throttled = [], False
    for line in said.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        try:
            shares.append(float(cells[0]) / float(cells[1]))
            throttled |= bool(int(cells[2], 16) & ~_IDLE_OR_SET)
        except (IndexError, ValueError, ZeroDivisionError):  # "[N/A]" where a device does not tell
            continue
    return (min(shares) if shares else None), throttled
