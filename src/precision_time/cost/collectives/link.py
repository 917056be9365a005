"""Links as a collective library sees them: what is left of the nominal figures, by kind of link."""

from __future__ import annotations

import numpy as np

from ...arrays import Number
from ...hardware.device import Link
from ...records import dataclass
from ..constants import constants

PROTOCOLS = ("ll", "ll128", "simple")
MISSING_BYTES_PER_S = 1.0
"""Of a link that is not there: traffic over it takes for ever, none takes no time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Torus:
    """The part of a torus that a group covers, dimension by dimension."""

    extents: tuple[Number, ...]
    """Ranks of the group along each dimension, at least 1; their product is the size of the group."""
    shares: tuple[Number, ...]
    """Share of a device's whole fabric that the group has along each dimension."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkParams:
    """One level of the interconnect; every field is a float or an array, and they broadcast."""

    bandwidth_bytes_per_s: Number
    """Nominal, one direction, per device, of the part of the fabric that these devices can use."""
    latency_s: Number
    """One hop of the low-latency protocol."""
    in_network_reduction: Number = 0.0
    """1 where the switch reduces (NVLink SHARP), else 0."""
    efficiency: Number = 0.8
    """Share of the bandwidth that a large message reaches with the Simple protocol."""
    in_switch_efficiency: Number = 0.68
    """The same with reduction in the switch."""
    protocol_efficiency: tuple[Number, Number, Number] = (0.25, 0.9, 1.0)
    """Bandwidth of LL, LL128 and Simple relative to Simple."""
    hop_ratio: tuple[Number, Number, Number] = (1.0, 3.0, 5.5)
    """Hop latency of LL, LL128 and Simple relative to `latency_s`."""
    torus: Torus | None = None
    """Where the devices are wired as a torus; None behind switches and in meshes."""
    oversubscription: Number = 1.0
    """Bandwidth into a pod over bandwidth out of it, for a group that reaches beyond one; else 1."""
    pod_nodes: Number = np.inf
    """Nodes of the group within one pod."""

    def rate(self, protocol: int) -> Number:
        """Bytes per second that a large message reaches under a protocol; a missing link has next to none."""
        reached = self.bandwidth_bytes_per_s * self.efficiency * self.protocol_efficiency[protocol]
        return np.maximum(reached, MISSING_BYTES_PER_S)

    def in_switch_rate(self) -> Number:
        """Bytes per second of reduction in the switch."""
        return np.maximum(self.bandwidth_bytes_per_s * self.in_switch_efficiency, MISSING_BYTES_PER_S)

    def hop_s(self, protocol: int) -> Number:
        """Seconds per hop under a protocol."""
        return self.latency_s * self.hop_ratio[protocol]

    def neighbor_oversubscription(self) -> Number:
        """By which factor a ring, tree or chain takes longer between nodes, as pods are oversubscribed.

        Of the k nodes in a pod one hands on to the next pod: a share 1/k of what its nodes send leaves it.
        """
        return np.asarray(np.maximum(1.0, self.oversubscription / np.maximum(self.pod_nodes, 1.0)))

    def scatter_oversubscription(self, num_nodes: Number) -> Number:
        """The same where every node sends to every other: (m-k)/(m-1) of it leaves the pod."""
        others = np.maximum(np.asarray(num_nodes, dtype=np.float64) - 1, 1e-9)
        leaving = (others + 1 - np.minimum(np.maximum(self.pod_nodes, 1.0), others + 1)) / others
        return np.asarray(np.maximum(1.0, self.oversubscription * np.clip(leaving, 0.0, 1.0)))


def level_rates(
    num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams, protocol: int
) -> tuple[Number, Number]:
    """Bytes per second within a node per device, and out of a node over all its rails, to neighbors.

    Infinite where a level is not used, so that it never is the bottleneck. A node with l of the ranks
    drives l rails: the rails of the node's other devices belong to the groups that those are in.
    """
    per_node = np.asarray(num_devices, dtype=np.float64) / num_nodes
    within = np.where(per_node > 1, intra.rate(protocol), np.inf)
    rails = inter.rate(protocol) * per_node / inter.neighbor_oversubscription()
    across = np.where(np.asarray(num_nodes) > 1, rails, np.inf)
    return within, across


def base_latency_s(algorithm: str) -> tuple[float, float, float]:
    """Seconds to start a collective, per protocol, before any hop. Source: collectives.toml."""
    ll, ll128, simple = constants("collectives")["base_latency_us"][algorithm]
    return ll * 1e-6, ll128 * 1e-6, simple * 1e-6


def link_kind(name: str) -> str:
    """Kind of a link, as calibrated, from its name ("ib-hdr-200g x8" is "infiniband").

    The first pattern of collectives.toml that occurs in the name decides; "other" when none does.
    """
    lowered = name.lower()
    matches = (
        entry["kind"] for entry in constants("collectives")["patterns"] if entry["contains"] in lowered
    )
    return str(next(matches, "other"))


def fabric_share(kind: str, num_devices: Number) -> Number:
    """Share of a device's fabric that reaches the devices taking part, 0..1.

    Behind a switch all of it; in a mesh of direct links only the links between participants.

    Args:
        kind: As `link_kind` returns it.
        num_devices: Participants on the node; fractions are interpolated.
    """
    shares = constants("collectives")["kinds"][kind].get("mesh_share")
    if shares is None:
        return np.ones_like(np.asarray(num_devices, dtype=np.float64))
    return np.asarray(np.interp(num_devices, np.arange(2, 2 + len(shares)), shares), dtype=np.float64)


def link_params(link: Link, num_devices: Number = 8.0) -> LinkParams:
    """What collectives get out of a link of the catalog.

    Args:
        link: Nominal figures and the name from which the kind is read.
        num_devices: Devices that take part on this level; matters for meshes without a switch.

    Returns:
        Parameters with the calibrated efficiencies of the link's kind.

    Assumes: the kind says enough; cluster-specific tuning and congestion are not known.
    """
    kind = link_kind(link.kind or link.name)
    found = constants("collectives")["kinds"][kind]
    return LinkParams(
        bandwidth_bytes_per_s=link.bandwidth_bytes_per_s * fabric_share(kind, num_devices),
        latency_s=link.latency_s,
        in_network_reduction=float(link.in_network_reduction),
        efficiency=found["efficiency"],
        in_switch_efficiency=found["in_switch_efficiency"],
        protocol_efficiency=tuple(found["protocol_efficiency"]),
        hop_ratio=tuple(found["hop_ratio"]),
    )
