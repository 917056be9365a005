r"""Reduction in the NVLink switch (NVLS), alone and under a tree between nodes.

Reference: NVIDIA/nccl src/graph/tuning.cc (NVLS, NVLSTree); the wire volume per device is derived
below and agrees with the H200 and B200 rows of the corpus from 4 to 8 devices.
"""

from __future__ import annotations

import numpy as np

from ...arrays import Number
from .line import Line, Lines, ranks, zero_if_single_rank
from .link import PROTOCOLS, LinkParams, base_latency_s, level_rates

SIMPLE = PROTOCOLS.index("simple")
NEVER_S = 1e12
"""Start-up of the algorithm where the switch cannot reduce: it is never the fastest."""


def nvls_all_reduce(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    r"""The line of an all-reduce inside the switch, with a tree between nodes.

    $t = t_0 + 2\alpha_{in} + 2\log_2 m\,\alpha_{out}
    + \max((1+\tfrac1l)/\beta_{sw},\ 2\tfrac{m-1}{m}/(l\beta_{out}))\,n$.
    The switch reads the whole buffer of a device once and every device writes its 1/l share of the
    result once: (1 + 1/l) n per direction.

    Args:
        num_devices: Participants p >= 1.
        num_nodes: Nodes m they are spread over.
        intra: Links within a node; without `in_network_reduction` the line is never the fastest.
        inter: Links between nodes, per device.

    Returns:
        One line (this algorithm has one protocol); free for one device.

    Raises:
        ConfigError: If `num_devices < 1`.

    Assumes: at least 2 devices share a switch; stages are pipelined.
    Accuracy: see `cost/data/collectives.toml`, table `accuracy`.
    """
    nodes = np.asarray(num_nodes, dtype=np.float64)
    per_node = ranks(num_devices) / nodes
    usable = (np.asarray(intra.in_network_reduction) > 0) & (per_node > 1)
    hops_s = 2 * intra.hop_s(SIMPLE) + 2 * np.log2(nodes) * inter.hop_s(SIMPLE)
    within = (1 + 1 / per_node) / intra.in_switch_rate()
    across = 2 * (nodes - 1) / nodes / level_rates(num_devices, num_nodes, intra, inter, SIMPLE)[1]
    line = Line(
        startup_s=np.where(usable, base_latency_s("nvls")[SIMPLE] + hops_s, NEVER_S),
        s_per_byte=np.maximum(within, across),
    )
    return zero_if_single_rank((line,), num_devices)
