"""Collected hosts with their device names mapped to the catalog's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from precision_time.errors import CatalogError, UnknownNameError
from precision_time.hardware.custom import load_custom
from precision_time.hardware.device import Device
from precision_time.hardware.device_table import device_assumption, folded, get_device, known_devices
from precision_time.hardware.inventory import ClusterResources, NodeResources

MOST_NODES = 200_000
"""Of one cluster: more than the largest machine has (Fugaku: 158,976)."""
_MEMORY_TOLERANCE = 0.12
"""Drivers report up to a tenth less memory than data sheets do (ECC, reserved pages, GB for GiB)."""
_MIG = re.compile(r"\d+g[._]\d+gb", re.IGNORECASE)
_DRIVER_WORDS = re.compile(
    r"\((?:R|TM|C)\)|@.*$|\b(?:CPU|Intel|OAM|Processor|with .*)\b|\b\d+-Core\b|\s/\s.*$", re.IGNORECASE
)


def resources(
    nodes: Iterable[NodeResources],
    *,
    source: str,
    notes: Sequence[str] = (),
    intra_node: str = "",
    inter_node: str = "",
    custom: str = "",
) -> ClusterResources:
    """Collected hosts with their device names mapped to the catalog, and notes on those that are not.

    Args:
        nodes: As collected; `device` need not be filled.
        source: Where they come from, in words.
        notes: What the collector left out or assumed.
        intra_node: Link inside a host, where known.
        inter_node: Network, where known.
        custom: File with the user's own devices.

    Raises:
        CatalogError: If there are more than `MOST_NODES`.
    """
    mapped: list[NodeResources] = []
    said: Counter[str] = Counter()
    known: dict[tuple[str, float | None], tuple[str, str | None]] = {}
    for node in nodes:
        name, note = "", None
        if node.num_devices:
            key = node.reported_device, node.device_memory_bytes
            if key not in known:
                known[key] = map_device(*key, custom)
            name, note = known[key]
        if note:
            said[note] += 1
        if len(mapped) == MOST_NODES:
            raise CatalogError(
                f"The cluster out of {source} has more than {MOST_NODES:,} nodes. The rule: no cluster has "
                "that many. To fix: check counts and ranges."
            )
        mapped.append(replace(node, device=name))
    return ClusterResources(
        source=source,
        nodes=tuple(mapped),
        intra_node=intra_node,
        inter_node=inter_node,
        custom=custom,
        notes=(*notes, *(f"{note} ({count} nodes)" if count > 1 else note for note, count in said.items())),
    )


def map_device(
    reported: str, memory_bytes: float | None = None, custom: str | Path = ""
) -> tuple[str, str | None]:
    """The catalog's name of a device, and what had to be assumed or why there is none.

    Args:
        reported: As drivers and schedulers spell it: "nvidia_a100_80gb_pcie", "Tesla V100-SXM2-32GB".
        memory_bytes: Memory of one device: distinguishes variants of one name.
        custom: File with the user's own devices; they come first.

    Returns:
        Name (empty if the catalog has none such) and a note, None where the name is exact.
    """
    if not reported:
        return "", "the devices have no name"
    if _MIG.search(reported):
        return "", f"{reported!r} is a slice of a device (MIG), which the catalog does not hold"
    own = load_custom(custom).find_device(reported) if custom else None
    if own is not None:
        return own.name, None
    plain = plain_name(reported)
    for guess in (reported, plain, f"CPU-{plain}", f"CPU-2x{plain}"):
        try:
            found = get_device(guess)
        except UnknownNameError:
            continue
        return _by_memory(reported, found, device_assumption(guess), memory_bytes)
    return "", f"the catalog has no device {reported!r}"


def plain_name(reported: str) -> str:
    """A device's name without the words that drivers add and catalogs leave out."""
    return " ".join(_DRIVER_WORDS.sub(" ", reported).split())


def _by_memory(
    reported: str, found: Device, assumption: str | None, memory_bytes: float | None
) -> tuple[str, str | None]:
    """The variant of a device that has the memory reported."""
    if memory_bytes is None or _is_close(found.memory_bytes, memory_bytes):
        return found.name, assumption
    stem = folded(found.name.split("-", maxsplit=1)[0])
    variants = [
        device
        for device in known_devices()
        if folded(device.name).startswith(stem)
        and device.arch == found.arch
        and _is_close(device.memory_bytes, memory_bytes)
    ]
    said = f"{reported!r} with {memory_bytes / 2**30:.0f} GiB"
    if assumption is None or not variants:
        return found.name, f"{said} read as {found.name}, which has {found.memory_bytes / 2**30:.0f} GiB"
    return variants[0].name, f"{said} read as {variants[0].name}"


def _is_close(sheet_bytes: float, reported_bytes: float) -> bool:
    return abs(sheet_bytes / reported_bytes - 1.0) <= _MEMORY_TOLERANCE
