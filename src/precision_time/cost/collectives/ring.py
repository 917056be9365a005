r"""Ring algorithms over one or two levels of the interconnect.

A ring of p ranks over m nodes crosses m inter-node links at a time; with a rail per device, as
NCCL builds them, l = p/m rings run side by side, so a node sends l inter-node bandwidths.

Reference: Patarasuk & Yuan, Bandwidth optimal all-reduce algorithms, JPDC 69(2), 2009; latency
terms as in NVIDIA/nccl src/graph/tuning.cc.
"""

from __future__ import annotations

import numpy as np

from ...arrays import Number
from .line import Line, Lines, ranks, zero_if_single_rank
from .link import PROTOCOLS, LinkParams, base_latency_s, level_rates


def _ring(
    passes: int, volume: Number, num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Lines:
    """Lines of `passes` ways round a ring, over each of whose links `volume` times the buffer goes.

    One way round takes p - 1 hops, as many of them between nodes as there are node borders.
    """
    base = base_latency_s("ring")
    borders = np.asarray(num_nodes, dtype=np.float64) - 1
    lines = []
    for p in range(len(PROTOCOLS)):
        hops_s = passes * ((num_devices - 1 - borders) * intra.hop_s(p) + borders * inter.hop_s(p))
        rate = np.minimum(*level_rates(num_devices, num_nodes, intra, inter, p))
        lines.append(Line(startup_s=base[p] + hops_s, s_per_byte=volume / rate))
    return zero_if_single_rank(lines, num_devices)


def ring_all_reduce(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    r"""Lines of a ring all-reduce, one per protocol.

    $t = t_0 + 2(p-1)\alpha + 2\frac{p-1}{p}\,n/\beta$, n the buffer of one rank.

    Args:
        num_devices: Participants p >= 1.
        num_nodes: Nodes they are spread over, 1 <= num_nodes <= num_devices.
        intra: Links within a node.
        inter: Links between nodes, per device.

    Returns:
        Lines for LL, LL128, Simple; free for one device.

    Raises:
        ConfigError: If `num_devices < 1`.

    Assumes: ranks start together; reduction arithmetic hides behind the wire; a rail per device.
    Accuracy: see `cost/data/collectives.toml`, table `accuracy`.
    """
    return _ring(2, 2 * (ranks(num_devices) - 1) / num_devices, num_devices, num_nodes, intra, inter)


def ring_all_gather(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    r"""Lines of a ring all-gather or, with the same traffic backwards, reduce-scatter.

    $t = t_0 + (p-1)\alpha + \frac{p-1}{p}\,n/\beta$, n the gathered (or to be scattered) buffer.

    Args, Returns, Raises and Assumes as for `ring_all_reduce`.

    Accuracy: see `cost/data/collectives.toml`, table `accuracy`.
    """
    return _ring(1, (ranks(num_devices) - 1) / num_devices, num_devices, num_nodes, intra, inter)


def ring_broadcast(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    r"""Lines of a pipelined ring broadcast or, backwards, reduce to one rank.

    $t = t_0 + (p-1)\alpha + n/\beta$, n the broadcast buffer.

    Args, Returns, Raises and Assumes as for `ring_all_reduce`.

    Accuracy: see `cost/data/collectives.toml`, table `accuracy`.
    """
    return _ring(1, 1.0, num_devices, num_nodes, intra, inter)
