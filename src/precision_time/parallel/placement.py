"""Where the ranks of each parallel axis sit: which level of the network they talk over."""

from __future__ import annotations

import math
from enum import StrEnum

from ..hardware.device import Cluster
from ..records import dataclass
from .layout import Layout

_RAILS = "rail-optimized"


class Level(StrEnum):
    """Levels of the hierarchy, innermost first: the slowest that a group crosses names it."""

    DEVICE = "device"
    DOMAIN = "nvlink-domain"
    """Devices that NVLink joins: a board of eight, or a whole rack."""
    NODE = "node"
    """One host without NVLink, or a pod whose fabric takes the place of one."""
    RAIL = "rail"
    """Nodes of a rail-optimized pod, from each device to its like on the other nodes."""
    NETWORK = "network"
    """Nodes below the same switches."""
    SPINE = "spine"
    """Pods, over the oversubscribed upper switches."""


_INSIDE = (Level.DOMAIN, Level.NODE)


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisPlacement:
    """The groups of one axis."""

    axis: str
    """tp, cp, dp, pp, ep (experts), shard (ranks that hold one copy under HSDP)."""
    size: int
    stride: int
    """Devices between neighboring ranks."""
    nodes: int
    """Nodes that a group is spread over."""
    ranks_per_node: int
    """Ranks of a group on one node."""
    level: Level
    aligned: bool
    """False where groups would fit a node, but some straddle two."""
    link: str
    """Name of the slowest link it crosses; empty for a group of one."""

    @property
    def words(self) -> str:
        """One phrase: "tp 8 inside an NVLink domain (nvlink4+nvswitch)"."""
        if self.level is Level.DEVICE:
            return f"{self.axis} 1"
        if self.level in _INSIDE:
            where = "an NVLink domain" if self.level is Level.DOMAIN else "a node"
            return f"{self.axis} {self.size} inside {where} ({self.link})"
        where = {
            Level.RAIL: "along the rails",
            Level.NETWORK: "over the network",
            Level.SPINE: "across the spine",
        }[self.level]
        return (
            f"{self.axis} {self.size} on {self.nodes} nodes, {self.ranks_per_node} per node, {where} "
            f"({self.link})"
        )


def place(layout: Layout, cluster: Cluster) -> tuple[AxisPlacement, ...]:
    """Where the groups of each axis sit, given the rank order: devices of a node are neighbors.

    Returns:
        tp, cp, dp, pp in rank order, then ep and shard where the layout has them.
    """
    axes = [(axis, int(getattr(layout, axis)), layout.stride(axis)) for axis in layout.rank_order]
    if layout.ep > 1:
        axes.append(("ep", layout.ep, layout.stride("tp") * layout.tensor_degree_of_experts))
    if 0 < layout.dp_shard < layout.data_ranks:
        axes.append(("shard", layout.dp_shard, min(layout.stride("cp"), layout.stride("dp"))))
    return tuple(_place(axis, size, stride, cluster) for axis, size, stride in axes)


def placement_in_words(layout: Layout, cluster: Cluster) -> str:
    """All axes above 1 in one sentence; empty where there are none."""
    phrases = [placed.words for placed in place(layout, cluster) if placed.size > 1]
    return f"Ranks in the order {'-'.join(layout.rank_order)}: {'; '.join(phrases)}." if phrases else ""


def placement_warnings(layout: Layout, cluster: Cluster) -> tuple[str, ...]:
    """Axes that talk over slower links than they are made for, in words."""
    placed = {each.axis: each for each in place(layout, cluster)}
    per_node = cluster.devices_per_node
    warnings: list[str] = []
    tensor = placed["tp"]
    if tensor.nodes > 1:
        warnings.append(
            f"Tensor parallelism crosses nodes: tp={tensor.size} with {per_node:g} devices per node, over "
            f"{tensor.link} in every layer. tp={max(int(per_node), 1)} or less stays inside."
        )
    experts = placed.get("ep")
    if experts is not None and experts.nodes > 1:
        warnings.append(
            f"The all-to-all of experts crosses nodes: ep={experts.size}, {experts.ranks_per_node} per node, "
            f"over {experts.link} in every expert layer."
        )
    for each in placed.values():
        if not each.aligned:
            warnings.append(
                f"Groups of {each.axis}={each.size} do not line up with {per_node:g} devices per node: some "
                "straddle nodes, and the slowest sets the pace."
            )
    return tuple(warnings)


def _place(axis: str, size: int, stride: int, cluster: Cluster) -> AxisPlacement:
    per_node, span = cluster.devices_per_node, size * stride
    fits = span <= per_node
    aligned = size == 1 or cluster.num_nodes == 1 or not fits or per_node % span == 0
    if size == 1 or (fits and aligned):
        nodes, local = 1, size
    elif fits:
        nodes, local = 2, math.ceil(size / 2)
    else:
        local = min(max(math.floor(per_node / stride), 1), size)
        nodes = math.ceil(size / local)
    level = _level(nodes, stride, span, cluster) if size > 1 else Level.DEVICE
    link = cluster.intra_node if level in _INSIDE else cluster.inter_node
    return AxisPlacement(
        axis=axis,
        size=size,
        stride=stride,
        nodes=nodes,
        ranks_per_node=local,
        level=level,
        aligned=aligned,
        link="" if level is Level.DEVICE else link.name,
    )


def _level(nodes: int, stride: int, span: int, cluster: Cluster) -> Level:
    if nodes == 1:
        return Level.DOMAIN if cluster.intra_node.name.startswith("nvlink") else Level.NODE
    fabric, per_node = cluster.fabric, cluster.devices_per_node
    if fabric.pod_nodes and span > fabric.pod_nodes * per_node:
        return Level.SPINE
    on_rails = fabric.topology == _RAILS and (stride % per_node == 0 or per_node % stride == 0)
    return Level.RAIL if on_rails else Level.NETWORK
