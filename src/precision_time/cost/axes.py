"""Groups of ranks along one parallel axis, and what their communication runs alongside."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..arrays import Floats, Number
from ..cache import Deriving, derived, memo
from ..errors import LayoutError
from ..hardware.device import Cluster, Fabric, Link
from ..hardware.links import loopback
from ..parallel.layout import Layout
from ..precision.policy import PrecisionPolicy
from ..records import dataclass
from .collectives import (
    Lines,
    LinesOf,
    LinkParams,
    all_reduce_lines,
    early_all_reduce_lines,
    link_params,
    send,
    sub_torus,
)
from .constants import constants
from .stacks import Stack
from .traffic import TransformerTraffic


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Group(Deriving):
    """Ranks of one parallel axis and the links between them. Equal only to itself, as a key of caches."""

    size: Number
    nodes: Number
    """Nodes that the group is spread over; a fraction where it does not fill them equally."""
    intra: LinkParams
    inter: LinkParams

    @property
    def crosses_nodes(self) -> Floats:
        """1 where the group is on more than one node, else 0."""
        return np.asarray(np.asarray(self.nodes) > 1, dtype=np.float64)


@dataclass(frozen=True, kw_only=True, slots=True)
class PassTimes:
    """Computation of one micro batch on one device."""

    forward_s: Number
    backward_s: Number
    backward_kernel_s: Floats
    """Of every backward kernel, (N,) or (C, N)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StepContext:
    """What decides the communication of a step besides the parameters: layout, links, sizes, computation."""

    layout: Layout
    cluster: Cluster
    policy: PrecisionPolicy
    times: PassTimes
    """One micro batch on one device (its share of the model), with what checkpointing repeats in the
    backward pass."""
    traffic: TransformerTraffic = TransformerTraffic()
    """Sizes of what the model-parallel axes send; needed only where one is above 1."""
    micro_batch_size: Number
    """Samples of a micro batch, () or (C,)."""
    rounds: Number
    """Micro batches of a step, () or (C,)."""
    stage_layers: Number
    """Layers of the pipeline stage."""
    stack: Stack = Stack()
    """What the software hides."""

    @property
    def all_reduce(self) -> LinesOf:
        """The all-reduce of the library that came with the framework."""
        from_year = float(constants("communication")["exchanging_trees_from"])
        return all_reduce_lines if self.stack.framework_year >= from_year else early_all_reduce_lines

    def group(self, axis: str) -> Group:
        """The ranks of an axis of the layout: "tp", "cp", "pp"."""
        return group_of(getattr(self.layout, axis), self.layout.stride(axis), self.cluster)


def as_seen(cluster: Cluster, stack: Stack) -> Cluster:
    """The cluster as the collectives of a stack see it: one TCP stream to a neighbor out of containers.

    Hosts with a fabric of their own are handed out whole: there the devices share a container.
    """
    if not stack.device_containers or not cluster.intra_node.name.startswith(("pcie", "none")):
        return cluster
    return _in_containers(cluster)


@derived
def _in_containers(cluster: Cluster) -> Cluster:
    inside, between = cluster.intra_node, cluster.inter_node
    if inside.bandwidth_bytes_per_s > loopback().bandwidth_bytes_per_s:
        inside = loopback()
    stream = between.stream_bytes_per_s
    if stream is not None and stream < between.bandwidth_bytes_per_s:
        between = replace(between, bandwidth_bytes_per_s=stream)
    return replace(cluster, intra_node=inside, inter_node=between)


def group_of(size: Number, stride: Number, cluster: Cluster) -> Group:
    """The group of an axis with `stride` devices between neighboring ranks, placed on the hierarchy.

    Levels: devices of a node (or NVLink domain, or torus), nodes of a pod, pods. Devices are numbered node
    by node and pod by pod. All groups of the axis communicate at once, and each has its own share of what
    they have in common: `inter_node` is already one device's share of its node's adapters, so a group with
    l ranks on a node drives l of them and leaves the rest to the groups of the other devices; of the links
    out of a pod, oversubscribed by `Fabric.oversubscription`, every device has its share as well.

    Args:
        size: Ranks of the axis.
        stride: Product of the sizes of the axes further in.
        cluster: Links, devices per node, fabric.

    Returns:
        The group, with the part of the node's fabric that its ranks reach, the part of the torus that it
        covers, and the oversubscription where it reaches beyond a pod.

    Assumes: jobs fill pods one after the other; the numbering follows the wiring.
    """
    if isinstance(size, int) and isinstance(stride, int):
        return _group_of(cluster, size, stride)
    links = (cluster.intra_node, cluster.inter_node, cluster.fabric)
    return _place(size, stride, cluster.devices_per_node, *links)


@derived
def _group_of(cluster: Cluster, size: int, stride: int) -> Group:
    """Clusters of the same links share their groups, and so the lines of collectives."""
    links = (cluster.intra_node, cluster.inter_node, cluster.fabric)
    return _placed(size, stride, cluster.devices_per_node, *links)


def _place(
    size: Number, stride: Number, per_node: float, intra_node: Link, inter_node: Link, fabric: Fabric
) -> Group:
    local = np.clip(per_node / stride, 1.0, size)
    intra, inter = link_params(intra_node, local), link_params(inter_node)
    if fabric.torus:
        intra = replace(intra, torus=sub_torus(local, stride, fabric.torus, fabric.wraps))
    if fabric.oversubscription > 1.0 and fabric.pod_nodes:
        in_pod = np.clip(fabric.pod_nodes * per_node / stride, 1.0, size)
        beyond = np.asarray(size) > in_pod * (1 + 1e-9)
        inter = replace(
            inter,
            oversubscription=np.where(beyond, fabric.oversubscription, 1.0),
            pod_nodes=np.maximum(in_pod / local, 1.0),
        )
    return Group(size=size, nodes=np.asarray(size / local), intra=intra, inter=inter)


_placed = memo(512)(_place)
"""The same for one configuration: layouts share most of their groups."""


def split_group(group_size: int, inner_size: int, stride: int, cluster: Cluster) -> tuple[Group, Group]:
    """A group cut in two for hybrid sharding: neighbors that hold one copy, and the holders of a shard.

    Args:
        group_size: Ranks of the axis.
        inner_size: Neighboring ranks that share a copy (HSDP's shard group).
        stride: Product of the sizes of the axes further in.
        cluster: As for `group_of`.

    Returns:
        The group within which a copy is sharded, and the group over which copies are reduced: one rank of
        each inner group, `stride * inner_size` devices apart.

    Raises:
        LayoutError: `inner_size` does not divide `group_size`.
    """
    if inner_size < 1 or group_size % inner_size:
        raise LayoutError(
            f"Invalid split: {group_size} ranks cannot be cut into groups of {inner_size}, as "
            f"{group_size} % {inner_size} is not 0. To fix: use a divisor of {group_size}."
        )
    outer = group_of(group_size // inner_size, stride * inner_size, cluster)
    return group_of(inner_size, stride, cluster), outer


@derived
def lines_of(group: Group, make: LinesOf) -> Lines:
    """Lines of a collective (`all_reduce_lines` and its kind) over a group."""
    return make(group.size, group.nodes, group.intra, group.inter)


@derived
def sends_of(group: Group) -> Lines:
    """Lines of one message between neighboring ranks of a group."""
    return send(group.crosses_nodes, group.intra, group.inter)
