"""Devices, links and clusters: plain facts, SI units; the figures live in `hardware/data/`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace

from ..cache import Deriving
from ..errors import ConfigError
from ..io import packaged_toml
from ..records import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class Device(Deriving):
    """One accelerator as its data sheet describes it. Peaks are dense, per device."""

    name: str
    vendor: str
    arch: str
    """Architecture word: volta, ampere, hopper, cdna3, gaudi2, tpu4 ..."""
    memory_bytes: float
    memory_bandwidth_bytes_per_s: float
    peak_flops_per_s: Mapping[str, float]
    """Dense peak per dtype word: fp64, fp32, tf32, fp16, bf16, fp8, fp4. A dtype that is missing
    has no matrix hardware here; how it then runs is the precision policy's business."""
    sm_count: float
    """Streaming multiprocessors, compute units, cores: units that run blocks side by side."""
    l2_bytes: float
    boost_hz: float
    tdp_w: float
    link_bandwidth_bytes_per_s: float
    """Device-to-device fabric (NVLink, Infinity Fabric, ICI), one direction; 0 without one."""
    pcie_bandwidth_bytes_per_s: float
    launch_overhead_s: float
    """Shortest time between two dependent kernel launches from an eager framework."""
    release_year: int
    base: str = ""
    """Of a user's own device: name of the catalog's device that gives what it does not state; else empty."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Field name to where its value comes from."""

    @property
    def usable_bytes(self) -> float:
        """Memory that software can allocate: less than the data sheet's (data/usable.toml)."""
        return self.memory_bytes * _usable_share(self.base or self.name, self.vendor)


def _usable_share(name: str, vendor: str) -> float:
    for rule in packaged_toml(__package__, "data/usable.toml")["rule"]:
        if rule.get("vendor", vendor) == vendor and re.search("|".join(rule.get("names", [""])), name):
            return float(rule["share"])
    return 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Link:
    """One level of the interconnect, as one device sees it."""

    name: str
    bandwidth_bytes_per_s: float
    """One direction, per device (a node's NICs divided by the devices that share them)."""
    latency_s: float
    """Of one hop of a collective."""
    in_network_reduction: bool = False
    """NVLink SHARP / SHARP: the switch reduces."""
    stream_bytes_per_s: float | None = None
    """What a device gets where its node keeps one stream to a neighbor; None where that is all of it."""
    kind: str = ""
    """Of a user's own link: the catalog's kind whose efficiency it has; empty where the name says it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fabric:
    """How the nodes are wired to each other, beyond what one device's link says."""

    topology: str = "fat-tree"
    """fat-tree, rail-optimized, dragonfly, torus-2d, torus-3d, flat."""
    pod_nodes: int = 0
    """Nodes below one group of leaf switches, where the network is not oversubscribed; 0: all."""
    oversubscription: float = 1.0
    """Bandwidth into a pod over bandwidth out of it, at least 1."""
    torus: tuple[int, ...] = ()
    """Devices along each dimension of a torus, the first one innermost; empty elsewhere."""
    wraps: tuple[bool, ...] = ()
    """Whether each dimension of the torus closes to a ring; empty: all do."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster(Deriving):
    """`num_nodes` equal nodes of `devices_per_node` devices of one type."""

    device: Device
    num_devices: int
    num_nodes: int
    intra_node: Link
    inter_node: Link
    node_type: str = ""
    fabric: Fabric = Fabric()
    assumptions: tuple[str, ...] = ()
    reference: Cluster | None = None
    """For hardware out of a user's own file: the catalog's cluster most like it. What was learned
    from measurements is read off the reference, so that a faster link, memory or peak of the user's
    changes the answer through physics alone."""

    def __post_init__(self) -> None:
        if self.num_devices < 1 or self.num_nodes < 1:
            raise ConfigError(
                f"A cluster needs at least one device and one node, got {self.num_devices} devices "
                f"on {self.num_nodes} nodes. To fix: use counts of 1 or more."
            )
        if self.num_nodes > self.num_devices:
            raise ConfigError(
                f"{self.num_devices} devices cannot be spread over {self.num_nodes} nodes: each "
                f"node needs at least one. To fix: num_nodes <= {self.num_devices}."
            )

    def resized(self, *, num_nodes: int, num_devices: int) -> Cluster:
        """The same with other counts, its reference as well."""
        reference = self.reference and self.reference.resized(num_nodes=num_nodes, num_devices=num_devices)
        return replace(self, num_nodes=num_nodes, num_devices=num_devices, reference=reference)

    @property
    def devices_per_node(self) -> float:
        """Devices on a node; a fraction where the nodes are not equally filled."""
        return self.num_devices / self.num_nodes
