r"""Double binary tree over nodes, a chain within each node.

Reference: Sanders, Speck & Traff, Two-tree algorithms for full bandwidth broadcast, reduction and
scan, Parallel Computing 35(12), 2009; latency terms as in NVIDIA/nccl src/graph/tuning.cc.
"""

from __future__ import annotations

import numpy as np

from ...arrays import Number
from ..constants import constants
from .line import Line, Lines, ranks, zero_if_single_rank
from .link import PROTOCOLS, LinkParams, base_latency_s, level_rates


def tree_all_reduce(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    r"""Lines of a double-binary-tree all-reduce, one per protocol.

    $t = t_0 + 2(l-1)\alpha_{in} + 2\log_2 m\,\alpha_{out}
    + \max(2/\beta_{in},\ 2\tfrac{m-1}{m}/(l\beta_{out}))\,n/\eta$,
    l devices on each of m nodes: every device of the chain passes the buffer up and down, every
    node sends on average as much as in a ring.

    Args:
        num_devices: Participants p >= 1.
        num_nodes: Nodes m they are spread over, 1 <= m <= p.
        intra: Links within a node.
        inter: Links between nodes, per device; all rails of a node carry the tree.

    Returns:
        Lines for LL, LL128, Simple; free for one device.

    Raises:
        ConfigError: If `num_devices < 1`.

    Assumes: chunks are pipelined, so that the slowest stage sets the rate; ranks start together.
    Accuracy: see `cost/data/collectives.toml`, table `accuracy`.
    """
    nodes = np.asarray(num_nodes, dtype=np.float64)
    return _tree(2 * (nodes - 1) / nodes, num_devices, num_nodes, intra, inter)


def tree_early_all_reduce(
    num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Lines:
    """The same of libraries whose nodes send 2 buffers however few they are: never faster than a ring.

    Args, Returns, Raises and Assumes as for `tree_all_reduce`.

    Accuracy: `exchanging_trees_from` in `cost/data/communication.toml` says which tables show it.
    """
    return _tree(2.0, num_devices, num_nodes, intra, inter)


def _tree(
    sent: Number, num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Lines:
    """Lines of a tree whose nodes send that many buffers."""
    base = base_latency_s("tree")
    efficiency = constants("collectives")["tree_efficiency"]
    per_node = ranks(num_devices) / np.asarray(num_nodes, dtype=np.float64)
    lines = []
    for p in range(len(PROTOCOLS)):
        hops_s = 2 * ((per_node - 1) * intra.hop_s(p) + np.log2(num_nodes) * inter.hop_s(p))
        within, across = level_rates(num_devices, num_nodes, intra, inter, p)
        slowest = np.maximum(2 / within, sent / across)
        lines.append(Line(startup_s=base[p] + hops_s, s_per_byte=slowest / efficiency[p]))
    return zero_if_single_rank(lines, num_devices)
