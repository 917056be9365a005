"""The device that was measured, described for the catalog: peaks and bandwidth as its kernels reach them.

A processor or card that no catalog has is written beside its rows (NAME.hardware.toml, the form of
`--custom`), so that predict, calibrate and evaluate know what the rows ran on.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from .. import __version__
from ..errors import UnknownNameError
from ..hardware.catalog import device_assumption, get_device, known_devices
from ..hardware.custom import BESIDE
from ..hardware.device import Device
from ..hardware.inventory_local import memory_bytes, processor
from ..io import write_atomically
from ..units import GIBI, GIGA, MEBI, MEGA, TERA
from .device import MeasuredDevice, import_torch
from .trial import KernelTrial

_SECONDS = 0.2
"""Timed for each kernel."""
_SIDES = {"cpu": 1024, "cuda": 8192}
"""Of the square matrix product that gives a peak."""
_COPIED = {"cpu": 2**27, "cuda": 2**30}
"""Bytes of the copy that gives the bandwidth."""
_TYPES = {"cpu": ("fp32", "bf16"), "cuda": ("fp32", "tf32", "fp16", "bf16")}
_VENDORS = {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}
_LEVEL_3 = Path("/sys/devices/system/cpu/cpu0/cache/index3/size")


def describe(device: MeasuredDevice, measured: Path) -> Path | None:
    """Write what a device is beside its rows, unless the catalog or that file has it.

    A processor of the catalog is described, too, where fewer threads compute than it has cores.

    Args:
        device: What measures; on a CPU with the threads that torch uses now.
        measured: File of the rows.

    Returns:
        The file that describes the device; None where the catalog has it.
    """
    if _in_catalog(device):
        return None
    path = measured.with_suffix(BESIDE)
    known: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    devices = known.get("device", {})
    if device.name not in devices:
        devices[device.name] = _figures(device)
        write_atomically(path, "".join(_lines({**known, "device": devices})))
    return path


def _in_catalog(device: MeasuredDevice) -> bool:
    try:
        found = get_device(device.name)
    except UnknownNameError:
        return False
    if device_assumption(device.name) is not None:
        return False
    return device.kind != "cpu" or import_torch().get_num_threads() >= found.sm_count


def _figures(device: MeasuredDevice) -> dict[str, Any]:
    """An entry of a file of devices."""
    torch = import_torch()
    tflops = {
        dtype: round(2.0 * _SIDES[device.kind] ** 3 / _time(device, "linear", dtype) / TERA, 4)
        for dtype in _TYPES[device.kind]
        if not device.refuses(dtype)
    }
    size = _COPIED[device.kind]
    bandwidth = 2.0 * size / _time(device, "copy", "fp32")  # read and written
    base = _most_like(device.kind, tflops["fp32"] * TERA, bandwidth)
    given: dict[str, Any] = {"base": base.name, "tflops": tflops}
    if device.kind == "cpu":
        _, clock_hz = processor()
        given |= {"sm_count": torch.get_num_threads(), "l2_mib": _cache_bytes() / MEBI, "link_gb_per_s": 0}
        given |= {"boost_mhz": round(clock_hz / MEGA)} if clock_hz else {}
        memory = memory_bytes()
    else:
        properties = torch.cuda.get_device_properties(0)
        given |= {"sm_count": properties.multi_processor_count, "l2_mib": device.l2_bytes / MEBI}
        memory = float(properties.total_memory)
    given |= {"memory_gib": round(memory / GIBI, 2)} if memory else {}
    return {
        **given,
        "memory_gb_per_s": round(bandwidth / GIGA, 2),
        "source": f"measured by precision-time {__version__} ({device.software}): matrix products of side "
        f"{_SIDES[device.kind]}, a copy of {size // 2**20} MiB; the rest by the operating system or as "
        f"{base.name}",
    }


def _time(device: MeasuredDevice, op: str, dtype: str) -> float:
    """Seconds of one call, at best: other work on the machine only adds to it."""
    from .kernels.timing import measure_kernel

    side = _SIDES[device.kind]
    shape: Mapping[str, Any] = {"M": side, "N": side, "K": side}
    if op == "copy":
        shape = {"bytes": _COPIED[device.kind], "way": "d2d"}
    trial = KernelTrial(op=op, dtype=dtype, shape=shape, phase="fwd")
    return measure_kernel(trial, device, seconds=_SECONDS).timing.low_s


def _most_like(kind: str, fp32: float, bandwidth: float) -> Device:
    """The catalog's device of the same kind, and maker where that is known, with the nearest figures."""
    maker = _vendor() if kind == "cpu" else "NVIDIA"

    def distance(other: Device) -> float:
        figures = ((fp32, other.peak_flops_per_s["fp32"]), (bandwidth, other.memory_bandwidth_bytes_per_s))
        return sum(abs(math.log2(mine / theirs)) for mine, theirs in figures) + (other.vendor != maker)

    return min((d for d in known_devices() if d.arch.startswith("cpu") == (kind == "cpu")), key=distance)


def _vendor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return ""
    return next((maker for word, maker in _VENDORS.items() if word in text), "")


def _cache_bytes() -> float:
    """The last level of the cache; 0 where the system does not say."""
    try:
        text = _LEVEL_3.read_text(encoding="utf-8").strip()
    except OSError:
        return 0.0
    return float(text.removesuffix("K")) * 1024 if text.removesuffix("K").isdecimal() else 0.0


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    """A document of tables of tables as TOML."""
    for kind, entries in document.items():
        for name, entry in entries.items():
            yield f'[{kind}."{name}"]\n'
            for key, value in entry.items():
                yield f"{key} = {_toml(value)}\n"
            yield "\n"


def _toml(value: Any) -> str:
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return f'"{escaped}"'
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{name} = {_toml(item)}" for name, item in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)
