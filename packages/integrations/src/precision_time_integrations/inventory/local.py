"""This machine as a cluster of one node: its NVIDIA devices, or its processors where it has none."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

from precision_time.hardware.custom import load_custom
from precision_time.hardware.device import Device
from precision_time.hardware.inventory import ClusterResources, NodeResources
from precision_time.units import MEBI, MEGA

from .mapping import plain_name, resources

_QUERY = ("--query-gpu=name,memory.total", "--format=csv,noheader,nounits")
_TIMEOUT_S = 20.0


def collect_local(*, custom: str = "") -> ClusterResources:
    """What this machine has. nvidia-smi names the devices; without any, the processor is the device.

    Args:
        custom: File with the user's own devices. One that `measure --cpu` wrote on this processor describes
            it; there are as many as its cores make.
    """
    cards, notes = _cards()
    cpu, clock_hz = processor()
    if cards:
        device, count, memory = cards[0][0], len(cards), cards[0][1]
        if len({name for name, _ in cards}) > 1:
            device = "mixed:" + "+".join(sorted({name for name, _ in cards}))
    else:
        device, count, memory = cpu, 1, None
        notes.append("no NVIDIA device here: the processor is taken as the device")
        measured = _measured(cpu, custom)
        if measured:
            device = measured[0].name
            count = max(int((os.cpu_count() or 1) / measured[0].sm_count), 1)
        else:
            notes.append("to price it as it is: precision-time measure --cpu --out cpu.toml, then --custom")
        if len(measured) > 1:
            names = ", ".join(each.name for each in measured[1:])
            notes.append(f"of this processor the file has {names}, too; {device} has the most cores")
    node = NodeResources(
        name=platform.node() or "localhost",
        reported_device=device,
        num_devices=count,
        device_memory_bytes=memory,
        cores=os.cpu_count(),
        clock_hz=clock_hz,
        memory_bytes=memory_bytes(),
    )
    return resources([node], source="this machine", notes=notes, custom=custom)


def _measured(processor: str, custom: str) -> list[Device]:
    """The devices of a file that are this processor, that with the most cores first."""
    if not custom:
        return []
    first = re.sub(r"[\s,;]+", "-", f"CPU-{plain_name(processor)}-")
    found = [each for each in load_custom(custom).devices.values() if each.name.startswith(first)]
    return sorted(found, key=lambda each: -each.sm_count)


def _cards() -> tuple[list[tuple[str, float]], list[str]]:
    """Name and memory [B] of each NVIDIA device."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return [], []
    try:
        done = subprocess.run([tool, *_QUERY], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True)
        return cards_of(done.stdout), []
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return [], [f"nvidia-smi did not answer ({error})"]


def cards_of(listing: str) -> list[tuple[str, float]]:
    """Name and memory [B] of each line `name, MiB` of nvidia-smi.

    >>> cards_of("NVIDIA H200, 143771")
    [('NVIDIA H200', 150754820096.0)]
    """
    rows = (line.rpartition(",") for line in listing.splitlines() if line.strip())
    return [(name.strip(), float(memory) * MEBI) for name, _, memory in rows]


def processor() -> tuple[str, float | None]:
    """Name and clock [Hz] as the kernel reports them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    fields = {
        key.strip(): value.strip() for key, _, value in (row.partition(":") for row in text.splitlines())
    }
    clock = fields.get("cpu MHz", "")
    name = fields.get("model name") or platform.processor() or platform.machine()
    return name, float(clock) * MEGA if clock.replace(".", "", 1).isdecimal() else None


def memory_bytes() -> float | None:
    """Of the host [B]; None where the system does not say."""
    names = getattr(os, "sysconf_names", {})
    if not {"SC_PAGE_SIZE", "SC_PHYS_PAGES"} <= set(names):
        return None
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def load() -> float | None:
    """Processes that ran or waited in the last minute, for each core; None where the system does not say."""
    try:
        return round(os.getloadavg()[0] / (os.cpu_count() or 1), 3)
    except (AttributeError, OSError):
        return None
