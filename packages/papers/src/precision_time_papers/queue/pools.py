"""The cluster of a queue: pools of like hosts, from an inventory file."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from precision_time.errors import CatalogError, ConfigError
from precision_time.hardware.inventory import ClusterResources
from precision_time_integrations.inventory.file import read_inventory


@dataclass(frozen=True, kw_only=True, slots=True)
class Pool:
    """Hosts with the same devices; a job runs within one pool."""

    name: str
    device: str
    """Name in the catalog, or in the inventory's custom file."""
    nodes: int
    devices_per_node: int
    intra_node: str = ""
    """Link inside a host; empty for the usual one of the device."""
    inter_node: str = ""
    """Network between hosts; empty for the usual one."""
    custom: str = ""

    @property
    def devices(self) -> int:
        """In all."""
        return self.nodes * self.devices_per_node


def pools_of(given: str | Path | ClusterResources) -> tuple[Pool, ...]:
    """The pools of an inventory, the first named first: hosts with as many of the same devices are one.

    Raises:
        CatalogError: If the file breaks a rule, or names a device that no catalog holds.
        ConfigError: If no host has a device.
    """
    found = read_inventory(given) if isinstance(given, str | Path) else given
    if found.unmapped:
        raise CatalogError(
            f"The catalog has no device named {', '.join(map(repr, found.unmapped))} (out of {found.source})."
            " To fix: use a name that `precision-time list devices` lists, or describe it in a custom file "
            "and name that as `custom`."
        )
    counts = Counter((node.device, node.num_devices) for node in found.computing)
    if not counts:
        raise ConfigError(
            f"The cluster out of {found.source} has no device. To fix: list at least one node with devices."
        )
    several = Counter(device for device, _ in counts)
    return tuple(
        Pool(
            name=device if several[device] == 1 else f"{per_node}x{device}",
            device=device,
            nodes=nodes,
            devices_per_node=per_node,
            intra_node=found.intra_node,
            inter_node=found.inter_node,
            custom=found.custom,
        )
        for (device, per_node), nodes in counts.items()
    )
