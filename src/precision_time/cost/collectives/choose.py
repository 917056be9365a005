"""The collective as a training framework calls it: the fastest algorithm and protocol for the message.

NCCL estimates every algorithm and protocol as latency + bytes / bandwidth and runs the smallest
(NVIDIA/nccl src/graph/tuning.cc, src/enqueue.cc); here the same is done with calibrated constants.
`*_lines` depend on the cluster only, so that many messages share them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np

from ...arrays import Number
from .all_to_all import pairwise_all_to_all
from .line import Line, Lines, min_time_s
from .link import LinkParams
from .nvls import nvls_all_reduce
from .ring import ring_all_gather, ring_all_reduce, ring_broadcast
from .torus import torus_all_gather, torus_all_reduce, torus_all_to_all, torus_broadcast
from .tree import tree_all_reduce, tree_early_all_reduce

LinesOf: TypeAlias = Callable[[Number, Number, LinkParams, LinkParams], Lines]
"""A collective: its lines for participants, nodes, and links within and between them."""


def all_reduce_lines(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    """Every all-reduce NCCL may choose: ring and tree in three protocols, NVLS where the switch reduces.

    On a torus its own algorithm; the same holds for the other functions here.
    """
    if intra.torus is not None:
        return torus_all_reduce(num_devices, num_nodes, intra, inter)
    lines: tuple[Line, ...] = (
        *ring_all_reduce(num_devices, num_nodes, intra, inter),
        *tree_all_reduce(num_devices, num_nodes, intra, inter),
    )
    if np.any(np.asarray(intra.in_network_reduction) > 0):
        lines += nvls_all_reduce(num_devices, num_nodes, intra, inter)
    return lines


def early_all_reduce_lines(
    num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Lines:
    """As `all_reduce_lines`, of libraries whose trees are chosen for their latency only (until NCCL 2.9)."""
    if intra.torus is not None:
        return torus_all_reduce(num_devices, num_nodes, intra, inter)
    return (
        *ring_all_reduce(num_devices, num_nodes, intra, inter),
        *tree_early_all_reduce(num_devices, num_nodes, intra, inter),
    )


def all_gather_lines(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    """Every all-gather or, with the same traffic backwards, reduce-scatter that may be chosen."""
    algorithm = ring_all_gather if intra.torus is None else torus_all_gather
    return algorithm(num_devices, num_nodes, intra, inter)


def all_to_all_lines(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    """Every all-to-all that may be chosen."""
    algorithm = pairwise_all_to_all if intra.torus is None else torus_all_to_all
    return algorithm(num_devices, num_nodes, intra, inter)


def broadcast_lines(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    """Every broadcast or, backwards, reduce to one rank that may be chosen."""
    algorithm = ring_broadcast if intra.torus is None else torus_broadcast
    return algorithm(num_devices, num_nodes, intra, inter)


def collective_s(
    lines_of: LinesOf,
    message_bytes: Number,
    num_devices: Number,
    num_nodes: Number,
    intra: LinkParams,
    inter: LinkParams,
) -> Number:
    """Seconds of one collective with the best algorithm and protocol, nothing overlapped.

    Args:
        lines_of: Which collective: `all_reduce_lines` or another one of this module.
        message_bytes: Buffer of one rank [B]; of an all-gather the gathered one, of a reduce-scatter the one
            before it, of an all-to-all what one rank sends.
        num_devices: Participants, at least 1; one device costs nothing.
        num_nodes: Nodes they are spread over; `num_devices / num_nodes` may be a fraction.
        intra: Links within a node.
        inter: Links between nodes, per device.

    Returns:
        Seconds; all arguments broadcast.

    Raises:
        ConfigError: If a size is negative or there is no participant.

    Assumes: as the algorithms; all participants start together.
    Accuracy: see `cost/data/collectives.toml`, table `accuracy`.
    """
    return min_time_s(lines_of(num_devices, num_nodes, intra, inter), message_bytes)
