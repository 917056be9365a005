"""The device that was measured, described for the catalog: peaks and bandwidth as its kernels reach them.

A processor or card that no catalog has is written beside its rows (NAME.hardware.toml, the form of
`--custom`), so that predict, calibrate and evaluate know what the rows ran on.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from precision_time import __version__
from precision_time.errors import ConfigError, UnknownNameError
from precision_time.hardware.catalog import device_assumption, get_device
from precision_time.hardware.custom import BESIDE
from precision_time.io import read_input, write_atomically
from precision_time.units import GIBI, GIGA, MEBI, TERA

from .device import MeasuredDevice, import_torch
from .processor import measure_processor, most_like
from .trial import KernelTrial

_SECONDS = 0.2
"""Timed for each kernel of a GPU."""
_SIDE, _COPIED = 8192, 2**30
"""Of the square product that gives a peak, and bytes of the copy that gives the bandwidth."""
_TYPES = ("fp32", "tf32", "fp16", "bf16")


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
    if device.name not in _known(path).get("device", {}):
        add_device(path, device.name, _figures(device))
    return path


def add_device(path: Path, name: str, entry: Mapping[str, Any]) -> None:
    """Write a device into a file of devices, in the place of one of that name; what else it holds is kept.

    Raises:
        ConfigError: If the file is there and is no TOML.
    """
    known = _known(path)
    write_atomically(path, toml_of({**known, "device": {**known.get("device", {}), name: entry}}))


def toml_of(document: Mapping[str, Any]) -> str:
    """The text of a file of devices, node types and links."""
    return "".join(_lines(document))


def _known(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_input(path)) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no TOML file: {error}. To fix: name another file.") from error


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
    if device.kind == "cpu":
        return measure_processor(name=device.name).entry()
    torch = import_torch()
    tflops = {
        dtype: round(2.0 * _SIDE**3 / _time(device, "linear", dtype) / TERA, 4)
        for dtype in _TYPES
        if not device.refuses(dtype)
    }
    bandwidth = 2.0 * _COPIED / _time(device, "copy", "fp32")  # read and written
    base = most_like(device.kind, tflops["fp32"] * TERA, bandwidth, "NVIDIA")
    properties = torch.cuda.get_device_properties(0)
    return {
        "base": base.name,
        "tflops": tflops,
        "sm_count": properties.multi_processor_count,
        "l2_mib": device.l2_bytes / MEBI,
        "memory_gib": round(float(properties.total_memory) / GIBI, 2),
        "memory_gb_per_s": round(bandwidth / GIGA, 2),
        "source": f"measured by precision-time {__version__} ({device.software}): matrix products of side "
        f"{_SIDE}, a copy of {_COPIED // 2**20} MiB; the rest by the operating system or as {base.name}",
    }


def _time(device: MeasuredDevice, op: str, dtype: str) -> float:
    """Seconds of one call, at best: other work on the machine only adds to it."""
    from .kernels.timing import measure_kernel

    shape: Mapping[str, Any] = {"M": _SIDE, "N": _SIDE, "K": _SIDE}
    if op == "copy":
        shape = {"bytes": _COPIED, "way": "d2d"}
    trial = KernelTrial(op=op, dtype=dtype, shape=shape, phase="fwd")
    return measure_kernel(trial, device, seconds=_SECONDS).timing.low_s


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
