"""What price lists call accelerators and instances, as devices of the catalog (`data/prices.toml`)."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ...cache import data, memo
from ...errors import UnknownNameError
from ...io import packaged_toml
from ..device_table import canonical_device, devices_in_name, get_device
from ..nodes import NodeType, find_node_type, get_node_type


class Listed(NamedTuple):
    """What one row of a list offers; `reason` says why it is left out, and is empty where it is not."""

    device: str = ""
    devices: int = 0
    reason: str = ""


def words() -> Mapping[str, Any]:
    """The tables of `data/prices.toml`."""
    return packaged_toml(__package__, "data/prices.toml")


def listed_device(
    cloud: str, instance_type: str, accelerator: str, count: float, own: Collection[str] = frozenset()
) -> Listed:
    """Catalog device and number of devices that a row of a price list means.

    Args:
        cloud: As the list says, in lower case.
        instance_type: As the list says.
        accelerator: As the list says; the size of a slice is read from its name ("tpu-v5p-8").
        count: As the list says.
        own: Names of devices of the user's own.
    """
    whole = f"{cloud}:{instance_type}:{accelerator}"
    for pattern, reason in _left_out():
        if pattern.fullmatch(whole):
            return Listed(reason=reason)
    if 0.0 < count < 1.0:
        return Listed(reason="a part of a device")
    if not (math.isfinite(count) and count >= 1.0 and count == int(count)):
        return Listed(reason="no whole number of devices")
    if accelerator in own:
        return Listed(accelerator, int(count))
    named = words()["accelerator"].get(accelerator, accelerator)
    try:
        device, size = canonical_device(named), devices_in_name(named) or 1
    except UnknownNameError:
        return Listed(reason=f"unknown device {accelerator[:60]!r}")
    for pattern, meant in _instances():
        if pattern.fullmatch(f"{cloud}:{instance_type}"):
            return Listed(meant, int(count))
    host = node_of_instance(instance_type, device, int(count))
    if host is not None and host.devices == count:
        device = host.device
    return Listed(device, int(count) * size)


@memo(8192)
def node_of_instance(instance_type: str, device: str, count: int) -> NodeType | None:
    """The node type of that very instance, or the pod that it is a part of; None where none is listed.

    Args:
        instance_type: As the cloud says.
        device: Name of the catalog; another is a user's own, which no node type knows.
        count: Devices of the instance.
    """
    try:
        node = get_node_type(instance_type)
        if node.devices == count and get_device(node.device).arch == get_device(device).arch:
            return node
    except UnknownNameError:
        pass
    try:
        node_or_pod = find_node_type(instance_type, device=get_device(device), devices_per_node=count)
    except UnknownNameError:
        return None
    return node_or_pod if node_or_pod is not None and node_or_pod.domain > 0 else None


@data
def _left_out() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(row["pattern"]), row["reason"]) for row in words()["left_out"])


@data
def _instances() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(row["pattern"]), row["device"]) for row in words()["instance"])
