"""The table of known devices: `data/devices.toml` read into `Device`, and every spelling of a name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ..errors import CatalogError, UnknownNameError
from ..io import packaged_toml
from ..units import GIBI, GIGA, MEBI, MEGA, TERA
from .device import Device

HINT = "All names: precision-time devices."

SCALED = {
    "memory_gib": ("memory_bytes", GIBI),
    "memory_gb_per_s": ("memory_bandwidth_bytes_per_s", GIGA),
    "sm_count": ("sm_count", 1.0),
    "l2_mib": ("l2_bytes", MEBI),
    "boost_mhz": ("boost_hz", MEGA),
    "tdp_w": ("tdp_w", 1.0),
    "link_gb_per_s": ("link_bandwidth_bytes_per_s", GIGA),
}
"""Key of a data sheet's figure in TOML -> field of `Device`, factor to SI."""
_VENDORS = "nvidia|amd|intel|habana|google|cloud|huawei|graphcore|aws|tesla|geforce|apple"
_VENDOR_WORDS = re.compile(rf"^(?:{_VENDORS})[\s_-]+")
_SEPARATORS = re.compile(r"[\s_\-./]+")


def load_toml(name: str) -> Mapping[str, Any]:
    """The parsed data file `hardware/data/<name>`."""
    return packaged_toml(__package__, f"data/{name}")


def folded(name: str) -> str:
    """`name` as it is compared: lower case, without separators and leading vendor words.

    >>> folded("NVIDIA A100-SXM4-80GB"), folded("Tesla V100-SXM2-16GB")
    ('a100sxm480gb', 'v100sxm216gb')
    """
    text = name.strip().lower()
    while True:
        shorter = _VENDOR_WORDS.sub("", text)
        if shorter == text:
            return _SEPARATORS.sub("", text)
        text = shorter


def known_devices() -> tuple[Device, ...]:
    """Every device of the catalog, in the order of its file (vendor, then age)."""
    return tuple(_devices().values())


def nearest_device(device: Device) -> Device:
    """The catalog's device whose data sheet is most like that of `device`, itself if it is listed.

    Makers and architectures differ more than figures do: another vendor counts as four doublings of
    every rate, another architecture as one.
    """

    def distance(other: Device) -> float:
        pairs = [
            (device.memory_bandwidth_bytes_per_s, other.memory_bandwidth_bytes_per_s),
            *(
                (rate, other.peak_flops_per_s.get(word, rate / 8.0))
                for word, rate in device.peak_flops_per_s.items()
            ),
        ]
        figures = sum(abs(math.log2(mine / theirs)) for mine, theirs in pairs) / len(pairs)
        return figures + 4.0 * (device.vendor != other.vendor) + 1.0 * (device.arch != other.arch)

    listed = _devices().get(device.name)
    return device if listed is device else min(known_devices(), key=distance)


def known_device_names() -> tuple[str, ...]:
    """Catalog names of all devices, without building them."""
    return tuple(_file()["device"])


def get_device(name: str) -> Device:
    """The device that `name` means.

    Args:
        name: Canonical name, any usual spelling ("a100-80gb", "NVIDIA A100-SXM4-80GB", "4090",
            "v5litepod"), or "mixed:A+B", which gives the slower one: a data-parallel step waits for it.

    Raises:
        UnknownNameError: No spelling of a known device.
    """
    return _devices()[canonical_device(name)]


def canonical_device(name: str) -> str:
    """Catalog name of the device that `name` means.

    Raises:
        UnknownNameError: No spelling of a known device.
    """
    return _resolve(name)[0]


def device_assumption(name: str) -> str | None:
    """What was assumed to read `name`, where it fits several devices; None where it is exact.

    Raises:
        UnknownNameError: No spelling of a known device.
    """
    return _resolve(name)[1]


def devices_in_name(name: str) -> int | None:
    """How many devices a slice has that is named by its size ("TPU v3-256": 128 chips); None for other names.

    >>> devices_in_name("TPU v3-256"), devices_in_name("v5litepod-16"), devices_in_name("A100")
    (128, 16, None)
    """
    found = _slice(name)
    return None if found is None else found[1]


def is_host_staged(device: Device) -> bool:
    """Whether copies between two such cards go through host memory (no PCIe peer access)."""
    return bool(_file()["device"].get(device.name, {}).get("host_staged", False))


def bridged_cards(device: Device) -> int:
    """How many cards one NVLink or Infinity Fabric bridge joins; 0 where the fabric joins all, or none is."""
    return int(_file()["device"].get(device.name, {}).get("bridged", 0))


@lru_cache(maxsize=4096)
def _resolve(name: str) -> tuple[str, str | None]:
    if name.lower().startswith("mixed:"):
        parts = [_resolve(part)[0] for part in name[len("mixed:") :].split("+")]
        slowest = min(parts, key=lambda part: _devices()[part].peak_flops_per_s["fp32"])
        return slowest, f"{name!r} priced as {slowest} throughout: a step waits for the slowest device"
    hit = _spellings().get(folded(name))
    if hit is None and (slice_of := _slice(name)) is not None:
        device, count = slice_of
        return device, f"{name!r} read as {device}: a slice of that name has {count} chips"
    if hit is None:
        raise UnknownNameError(kind="device", name=name, known=_offered(), hint=HINT)
    return hit


@lru_cache(maxsize=1024)
def _slice(name: str) -> tuple[str, int] | None:
    """Device and number of devices of a slice that is named by its size."""
    for entry in load_toml("aliases.toml")["slice"]:
        found = re.fullmatch(entry["pattern"], name.strip(), re.IGNORECASE)
        if found:
            return entry["device"], max(1, int(found["count"]) // entry["each"])
    return None


def _offered() -> tuple[str, ...]:
    aliases = load_toml("aliases.toml")
    return (*_devices(), *aliases["alias"], *aliases["ambiguous"])


@lru_cache(maxsize=1)
def _spellings() -> Mapping[str, tuple[str, str | None]]:
    """Folded spelling -> (canonical name, assumption)."""
    table: dict[str, tuple[str, str | None]] = {folded(name): (name, None) for name in _devices()}
    aliases = load_toml("aliases.toml")
    for spelling, name in aliases["alias"].items():
        table.setdefault(folded(spelling), (name, None))
    for spelling, entry in aliases["ambiguous"].items():
        text = entry["assumption"].replace("{device}", entry["device"])
        table.setdefault(folded(spelling), (entry["device"], text))
    return table


@lru_cache(maxsize=1)
def _file() -> Mapping[str, Any]:
    return load_toml("devices.toml")


@lru_cache(maxsize=1)
def _devices() -> Mapping[str, Device]:
    data = _file()
    return {name: _device(name, row, data) for name, row in data["device"].items()}


def _device(name: str, row: Mapping[str, Any], data: Mapping[str, Any]) -> Device:
    """One row of the file in SI units, with the source of every value."""
    try:
        values = {field: row[key] * factor for key, (field, factor) in SCALED.items()}
        launch = data["arch"][row["arch"]]
        return Device(
            name=name,
            vendor=row["vendor"],
            arch=row["arch"],
            peak_flops_per_s={dtype: tflops * TERA for dtype, tflops in row["tflops"].items()},
            pcie_bandwidth_bytes_per_s=data["pcie"][row["pcie"]] * GIGA,
            launch_overhead_s=launch["launch_overhead_us"] * 1e-6,
            release_year=row["release_year"],
            sources=_sources(row, data["source"][row["source"]], data["launch_source"][launch["source"]]),
            **values,
        )
    except KeyError as error:
        raise CatalogError(
            f"Device {name!r} in devices.toml lacks or misnames {error}. To fix: complete the entry."
        ) from error


def _sources(row: Mapping[str, Any], sheet: str, launch: str) -> dict[str, str]:
    recalled = row.get("recalled", [])
    note = f"; {row['note']}" if "note" in row else ""

    def source(key: str) -> str:
        from_memory = key in recalled or "all" in recalled
        return f"{sheet}{' (from memory of the data sheet)' if from_memory else ''}{note}"

    sources = {field: source(key) for key, (field, _) in SCALED.items()}
    sources["peak_flops_per_s"] = source("tflops")
    sources["release_year"] = source("release_year")
    sources["arch"] = sources["vendor"] = sheet
    sources["pcie_bandwidth_bytes_per_s"] = f"PCI-SIG rate of the generation in: {sheet}"
    sources["launch_overhead_s"] = launch
    return sources
