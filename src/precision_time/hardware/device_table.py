"""The known devices: `data/devices.toml` and `data/devices.csv` read into `Device`, and every spelling."""

from __future__ import annotations

import csv
import math
import re
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from ..cache import data
from ..errors import CatalogError, UnknownNameError
from ..io import packaged, packaged_toml
from ..lazy import LazyTable
from ..plugins import loaded
from ..units import GIBI, GIGA, MEBI, MEGA, TERA
from .device import Device

HINT = "All names: precision-time list devices."

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
_TEXTS = frozenset({"family", "source", "note"})
_MEMORY = re.compile(r"(?<=.)[\s_-]+(?P<gb>\d{1,3})\s?g(?:i?b)?(?![a-z\d])", re.IGNORECASE)
_MEMORY_TOLERANCE = 0.07


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
    return tuple(map(_devices().__getitem__, known_device_names()))


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

    listed = device.name in _file()["device"] and _devices()[device.name] is device
    return device if listed else min(known_devices(), key=distance)


def known_device_names() -> tuple[str, ...]:
    """Catalog names of all devices, without building them."""
    return tuple(_file()["device"])


def get_device(name: str) -> Device:
    """The device that `name` means.

    Args:
        name: Canonical name, any usual spelling ("a100-80gb", "NVIDIA A100-SXM4-80GB", "4090",
            "rtx 3060 laptop", "M3 Max 128GB", "v5litepod"), or "mixed:A+B", which gives the slower one: a
            data-parallel step waits for it.

    Raises:
        UnknownNameError: No spelling of a known device.
    """
    return _devices()[canonical_device(name)]


def catalog_name(device: Device) -> str | None:
    """Name of the catalog's entry of a device, also of one with another memory; None for a user's own."""
    if device.name in _file()["device"]:
        return device.name
    stem, _, memory = device.name.rpartition("-")
    size = memory.removesuffix("GB")
    known = size.isdecimal() and int(size) in _file()["device"].get(stem, {}).get("variants_gib", ())
    return stem if known else None


def base_name(device: Device) -> str | None:
    """Name of the catalog's entry that says what a device does not: of its base, else its own."""
    return catalog_name(get_device(device.base) if device.base else device)


def family_of(device: Device) -> str:
    """The family of a device in devices.csv; empty where it has none."""
    return str(_file()["device"].get(base_name(device), {}).get("family", ""))


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
    return bool(_row(device).get("host_staged", False))


def bridged_cards(device: Device) -> int:
    """How many cards one NVLink or Infinity Fabric bridge joins; 0 where the fabric joins all, or none is."""
    return int(_row(device).get("bridged", 0))


def _resolve(name: str) -> tuple[str, str | None]:
    if name.lower().startswith("mixed:"):
        parts = [_resolve(part)[0] for part in name[len("mixed:") :].split("+")]
        slowest = min(parts, key=lambda part: _devices()[part].peak_flops_per_s["fp32"])
        return slowest, f"{name!r} priced as {slowest} throughout: a step waits for the slowest device"
    hit = _spelled(name)
    if hit is None and (slice_of := _slice(name)) is not None:
        device, count = slice_of
        return device, f"{name!r} read as {device}: a slice of that name has {count} chips"
    if hit is None and (which := load_toml("aliases.toml")["kinds"].get(name.strip().lower().split(":")[0])):
        raise UnknownNameError(kind="device", name=name, known=(), hint=f"{which}. {HINT}")
    if hit is None:
        raise UnknownNameError(kind="device", name=name, known=_offered(), hint=_missing(name) or HINT)
    return hit


def _missing(name: str) -> str | None:
    """What a maker has not published of a device that is announced, or who takes several; None for others."""
    if "+" in name.strip().rstrip("+"):
        return (
            "To fix: known names around each +; devices of several kinds are for `precision-time predict -d "
            "4xH100+4xA100`, one job at a time, or `mixed.step.predict_mixed`."
        )
    words = folded(name)
    texts = load_toml("aliases.toml")["unpublished"]
    said = next((text for known, text in texts.items() if folded(known) == words), None)
    return (
        said and f"{said}. To fix: describe it in a custom file (`--custom`), or take a device that is near."
    )


def _spelled(name: str) -> tuple[str, str | None] | None:
    """Canonical name and assumption of a name: as it stands, then without what tools print around it.

    >>> _spelled("NVIDIA GeForce RTX 3060 Laptop GPU"), _spelled("m2 ultra 192gb")[0]
    (('RTX3060-Laptop', None), 'Apple-M2-Ultra-76c-192GB')
    """
    for read in (str.strip, _without_noise):
        words = read(name)
        hit = _of_words(words)
        if hit is not None:
            notes = (hit[1], _usual_memory(hit[0]))
            return hit[0], "; ".join(note for note in notes if note) or None
        hit = _of_memory(words)
        if hit is not None:
            return hit
    return None


def _of_words(words: str) -> tuple[str, str | None] | None:
    """The entry of a name, also where what usually begins it is left away ("4090", "M3 Max")."""
    bare, table = folded(words), _spellings()
    if not bare:
        return None
    prefixes = ("", *load_toml("aliases.toml")["noise"]["prefixes"])
    return next((table[found] for each in prefixes if (found := folded(each) + bare) in table), None)


def _of_memory(words: str) -> tuple[str, str | None] | None:
    """The entry of a name that states the size of its memory: the usual one, or one that is also sold."""
    found = _MEMORY.search(words)
    hit = None if found is None else _of_words(words[: found.start()] + words[found.end() :])
    if found is None or hit is None:
        return None
    size, row = int(found["gb"]), _file()["device"][hit[0]]
    if size in row.get("variants_gib", ()):
        return f"{hit[0]}-{size}GB", hit[1]
    # Data sheets count decimal bytes, or what error correction leaves.
    same = abs(size - row["memory_gib"]) <= _MEMORY_TOLERANCE * size
    return hit if same else None


def _without_noise(name: str) -> str:
    """A name without words that say nothing of the device, and with those that stand for others replaced."""
    noise = load_toml("aliases.toml")["noise"]
    words = name.lower()
    for pattern in noise["patterns"]:
        words = re.sub(pattern, " ", words)
    for word, meaning in noise["words"].items():
        words = re.sub(rf"\b{word}\b", meaning, words)
    return " ".join(words.split())


def _slice(name: str) -> tuple[str, int] | None:
    """Device and number of devices of a slice that is named by its size."""
    for entry in load_toml("aliases.toml")["slice"]:
        found = re.fullmatch(entry["pattern"], name.strip(), re.IGNORECASE)
        if found:
            return entry["device"], max(1, int(found["count"]) // entry["each"])
    return None


def _offered() -> tuple[str, ...]:
    aliases = load_toml("aliases.toml")
    # A host can stand where a device is asked for (`words.py`).
    hosts = load_toml("nodes.toml")["node"]
    return (*_file()["device"], *aliases["alias"], *aliases["ambiguous"], *hosts)


@data
def _spellings() -> Mapping[str, tuple[str, str | None]]:
    """Folded spelling -> (canonical name, assumption)."""
    rows = _file()["device"]
    table: dict[str, tuple[str, str | None]] = {folded(name): (name, None) for name in rows}
    aliases = load_toml("aliases.toml")
    for spelling, name in aliases["alias"].items():
        table.setdefault(folded(spelling), (name, None))
    for spelling, entry in aliases["ambiguous"].items():
        text = entry["assumption"].replace("{device}", entry["device"])
        table.setdefault(folded(spelling), (entry["device"], text))
    return table


def _usual_memory(name: str) -> str | None:
    """What is assumed of the memory of a device that is sold with several."""
    row = _file()["device"][name]
    others = [f"{name}-{size}GB" for size in row.get("variants_gib", ())]
    return f"{name} taken with {row['memory_gib']:g} GB, not as {' or '.join(others)}" if others else None


@data
def _file() -> Mapping[str, Any]:
    """The tables of the files; a device of devices.csv is a row of figures and names its family."""
    data = load_toml("devices.toml")
    rows = {row.pop("name"): _figures(row) for row in _lines("devices.csv")}
    devices = {**data["device"], **rows}
    for row in _lines("reread.csv"):
        again = {field: data["source"][row["source"]] for field in row["fields"].split()}
        known = devices[row["name"]]
        devices[row["name"]] = {**known, "reread": {**known.get("reread", {}), **again}}
    return with_plugin_devices({**data, "device": devices})


def _lines(name: str) -> Iterator[dict[str, str]]:
    """The rows of a table in `data`, by the names of its columns."""
    return csv.DictReader(packaged(__package__, f"data/{name}").read_text(encoding="utf-8").splitlines())


def with_plugin_devices(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tables with the devices that plugins add.

    A plugin of the group "devices" is a mapping of device names to rows in the words of devices.toml, or a
    function that gives one; `base` names a device of the catalog whose row it changes, `source` the sheet.
    One that is not complete, or bears the name of another, is left out with a warning.
    """
    rows, sources = dict(data["device"]), dict(data["source"])
    for plugin, given in loaded("devices").items():
        own: dict[str, Any] = {}
        try:
            for name, row in (given() if callable(given) else given).items():
                if any(folded(name) == folded(known) for known in (*rows, *own)):
                    raise CatalogError(f"the catalog has a device {name!r}")
                sheet = f"plugin {plugin}: {row.get('source', 'no source given')}"
                base = {key: value for key, value in rows.get(row.get("base"), {}).items() if key != "reread"}
                own[name] = {**base, **row, "source": sheet}
                _device(name, own[name], {**data, "source": {sheet: sheet}})
            rows |= own
            sources |= {row["source"]: row["source"] for row in own.values()}
        except Exception as error:  # noqa: BLE001 - whatever a plugin gives, the catalog stands
            warnings.warn(
                f"Devices of the plugin {plugin} are left out: {type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
    return {**data, "device": rows, "source": sources}


def _figures(cells: Mapping[str, str]) -> dict[str, Any]:
    """A row of the table: numbers as numbers, a list of sizes, and nothing where a cell is empty."""
    figures: dict[str, Any] = {}
    for name, cell in cells.items():
        if name == "variants_gib":
            figures[name] = [int(size) for size in cell.split()]
        elif cell:
            figures[name] = cell if name in _TEXTS else float(cell)
    return {**figures, "release_year": int(figures["release_year"])}


@data
def _devices() -> Mapping[str, Device]:
    """By canonical names, which end in the size of the memory where that is not the usual."""
    file = _file()
    sizes = {
        f"{name}-{size}GB": {**row, "memory_gib": size}
        for name, row in file["device"].items()
        for size in row.get("variants_gib", ())
    }
    return LazyTable({**sizes, **file["device"]}, lambda name, row: _device(name, row, file))


def _row(device: Device) -> Mapping[str, Any]:
    """What the file says of a device, with what its family says; nothing for a user's own without a base."""
    name = base_name(device)
    return {} if name is None else _complete(_file()["device"][name], _file())


def _complete(row: Mapping[str, Any], data: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row with the fields of its family, and the peaks that follow from its multiprocessors and clock."""
    if "family" not in row:
        return row
    family = data["family"][row["family"]]
    clocks = row["sm_count"] * row["boost_mhz"] * MEGA / TERA
    peaks = {dtype: rate * clocks for dtype, rate in family["per_sm"].items()}
    return {"tflops": peaks, **family["shared"], **row}


def _device(name: str, given: Mapping[str, Any], data: Mapping[str, Any]) -> Device:
    """One row of the file in SI units, with the source of every value."""
    try:
        row = _complete(given, data)
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
    recalled, reread, assumed = row.get("recalled", []), row.get("reread", {}), row.get("assumed", {})
    note = f"; {row['note']}" if "note" in row else ""

    def source(key: str) -> str:
        if key in assumed:
            return f"assumed, {assumed[key]}; not in {sheet}{note}"
        if key not in recalled and "all" not in recalled:
            return f"{sheet}{note}"
        again = reread.get(key)
        return f"{sheet} ({f'read again in {again}' if again else 'from memory of the data sheet'}){note}"

    sources = {field: source(key) for key, (field, _) in SCALED.items()}
    sources["peak_flops_per_s"] = source("tflops")
    sources["release_year"] = source("release_year")
    sources["arch"] = sources["vendor"] = sheet
    sources["pcie_bandwidth_bytes_per_s"] = f"PCI-SIG rate of the generation in: {sheet}"
    sources["launch_overhead_s"] = launch
    return sources
