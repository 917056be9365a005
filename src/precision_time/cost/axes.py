"""Groups of ranks along one parallel axis, and the computation that they run beside."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..hardware.device import Cluster
from .collectives import LinkParams, Number, link_params
from .overlap import Overlap

Floats = NDArray[np.float64]

NO_COMMUNICATION = Overlap(link_s=0.0, exposed_s=0.0, slowdown_s=0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Ranks of one parallel axis and the links between them."""

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
class StepTimes:
    """Computation of one micro batch on one device."""

    forward_s: Number
    backward_s: Number
    backward_kernel_s: Floats
    """Of every backward kernel, (N,) or (C, N)."""


def group_of(
    size: Number, stride: Number, cluster: Cluster, *, devices_per_node: Number | None = None
) -> Group:
    """The group of an axis with `stride` devices between neighbouring ranks.

    Args:
        size: Ranks of the axis.
        stride: Product of the sizes of the axes further in.
        cluster: Links and devices per node.
        devices_per_node: Instead of the cluster's, for arrays of configurations.

    Returns:
        The group, with the part of the node's fabric that its ranks reach.
    """
    per_node = cluster.devices_per_node if devices_per_node is None else devices_per_node
    local = np.clip(np.asarray(per_node, dtype=np.float64) / stride, 1.0, size)
    return Group(
        size=size,
        nodes=np.asarray(size / local),
        intra=link_params(cluster.intra_node, local),
        inter=link_params(cluster.inter_node),
    )


def repeated(once: Overlap, rounds: Number) -> Overlap:
    """The same communication in every micro batch."""
    return Overlap(
        link_s=once.link_s * rounds, exposed_s=once.exposed_s * rounds, slowdown_s=once.slowdown_s * rounds
    )
