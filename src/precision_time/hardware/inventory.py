"""What a cluster is made of, as an inventory or a scheduler reports it, and the `Cluster` that makes.

Collectors fill a `ClusterResources` (`precision_time_integrations.inventory`: a file, Slurm, Ray, this
machine). They report; the figures of a device (peaks, bandwidths, links) come from the catalog.
"""

from __future__ import annotations

from ..errors import CatalogError, ConfigError
from ..records import dataclass
from .clusters import get_cluster
from .device import Cluster


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeResources:
    """One host. None stands for what the source does not say."""

    name: str
    reported_device: str
    """Name of its devices as the source spells it; empty where it names none."""
    num_devices: int
    device: str = ""
    """The same in the catalog's spelling; empty where the catalog has no such device."""
    device_memory_bytes: float | None = None
    """Memory of one device."""
    cores: int | None = None
    """Processor threads as the scheduler counts them."""
    clock_hz: float | None = None
    memory_bytes: float | None = None
    """Memory of the host."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClusterResources:
    """What was collected; `cluster()` turns it into what predictions read."""

    source: str
    """Where it comes from, in words: "Slurm (scontrol)", "inventory lab.yaml" ..."""
    nodes: tuple[NodeResources, ...]
    """Usable hosts only; `notes` names those left out."""
    intra_node: str = ""
    """Link inside a host as `get_cluster` reads it; empty for the usual one of the device."""
    inter_node: str = ""
    """Network between hosts as `get_cluster` reads it; empty for the usual one."""
    custom: str = ""
    """File with the user's own devices and links that names may come from."""
    notes: tuple[str, ...] = ()
    """What was left out, assumed, or could not be mapped, in words."""

    @property
    def computing(self) -> tuple[NodeResources, ...]:
        """Hosts that have devices."""
        return tuple(node for node in self.nodes if node.num_devices > 0)

    @property
    def num_devices(self) -> int:
        """Devices in all."""
        return sum(node.num_devices for node in self.nodes)

    @property
    def unmapped(self) -> tuple[str, ...]:
        """Device names that the catalog does not hold."""
        return tuple(sorted({n.reported_device or "(no name)" for n in self.computing if not n.device}))

    def cluster(self) -> Cluster:
        """The cluster of all hosts that have devices; what had to be assumed is in its `assumptions`.

        Raises:
            ConfigError: If there is no host, or none with a device.
            CatalogError: If a device could not be mapped to the catalog.
        """
        hosts = self.computing
        if not hosts:
            what = "no node" if not self.nodes else f"{len(self.nodes)} nodes without a device"
            said = f" ({'; '.join(self.notes)})" if self.notes else ""
            raise ConfigError(
                f"The cluster out of {self.source} has {what}{said}: nothing can be trained on it. To fix: "
                "list at least one node with at least one device."
            )
        if self.unmapped:
            raise CatalogError(
                f"The catalog has no device named {', '.join(map(repr, self.unmapped))} (out of "
                f"{self.source}). To fix: write an inventory file with a `device` that `precision-time "
                "devices` lists, or describe the device in a custom file and name that as `custom`."
            )
        kinds = sorted({node.device for node in hosts})
        return get_cluster(
            device=kinds[0] if len(kinds) == 1 else "mixed:" + "+".join(kinds),
            num_devices=self.num_devices,
            num_nodes=len(hosts),
            intra_node=self.intra_node or None,
            inter_node=self.inter_node or None,
            custom=self.custom or None,
        )
