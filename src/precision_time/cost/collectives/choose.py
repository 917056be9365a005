"""The collective as a training framework calls it: the fastest algorithm and protocol for the message.

NCCL estimates every algorithm and protocol as latency + bytes / bandwidth and runs the smallest
(NVIDIA/nccl src/graph/tuning.cc, src/enqueue.cc); here the same is done with calibrated constants.
`*_lines` depend on the cluster only, so that many messages share them; `*_s` are seconds.
"""

from __future__ import annotations

import numpy as np

from .all_to_all import pairwise_all_to_all, send
from .line import Line, Lines, Number, min_time_s
from .link import LinkParams
from .nvls import nvls_all_reduce
from .ring import ring_all_gather, ring_all_reduce, ring_broadcast
from .torus import torus_all_gather, torus_all_reduce, torus_all_to_all, torus_broadcast
from .tree import tree_all_reduce


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


def all_gather_lines(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    """Every all-gather or, with the same traffic backwards, reduce-scatter that may be chosen."""
    algorithm = ring_all_gather if intra.torus is None else torus_all_gather
    return algorithm(num_devices, num_nodes, intra, inter)


def all_to_all_lines(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    """Every all-to-all that may be chosen."""
    algorithm = pairwise_all_to_all if intra.torus is None else torus_all_to_all
    return algorithm(num_devices, num_nodes, intra, inter)


def all_reduce_s(
    message_bytes: Number, num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Number:
    """Seconds of one all-reduce with the best algorithm and protocol, nothing overlapped.

    Args:
        message_bytes: Buffer of one rank [B].
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
    return min_time_s(all_reduce_lines(num_devices, num_nodes, intra, inter), message_bytes)


def all_gather_s(
    message_bytes: Number, num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Number:
    """Seconds of one all-gather; `message_bytes` is the gathered buffer, the rest as `all_reduce_s`."""
    return min_time_s(all_gather_lines(num_devices, num_nodes, intra, inter), message_bytes)


def reduce_scatter_s(
    message_bytes: Number, num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Number:
    """Seconds of one reduce-scatter; `message_bytes` is the buffer before, the rest as `all_reduce_s`."""
    return min_time_s(all_gather_lines(num_devices, num_nodes, intra, inter), message_bytes)


def broadcast_s(
    message_bytes: Number, num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Number:
    """Seconds of one broadcast or reduce; `message_bytes` is one buffer, the rest as `all_reduce_s`."""
    algorithm = ring_broadcast if intra.torus is None else torus_broadcast
    return min_time_s(algorithm(num_devices, num_nodes, intra, inter), message_bytes)


def all_to_all_s(
    message_bytes: Number, num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Number:
    """Seconds of one all-to-all; `message_bytes` is the send buffer of one rank."""
    return min_time_s(all_to_all_lines(num_devices, num_nodes, intra, inter), message_bytes)


def point_to_point_s(
    message_bytes: Number, crosses_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Number:
    """Seconds of one message between two ranks; `crosses_nodes` is 1 where they are on different nodes."""
    return min_time_s(send(crosses_nodes, intra, inter), message_bytes)
