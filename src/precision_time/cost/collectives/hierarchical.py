r"""Two-level all-reduce: reduce-scatter in the node, all-reduce between nodes, all-gather in the node.

Reference: Cho et al., BlueConnect, MLSys 2019; ZeRO++ and FSDP HYBRID_SHARD use the same stages.
"""

from __future__ import annotations

from itertools import product

from .line import Line, Lines, Number, ranks
from .link import LinkParams
from .ring import ring_all_gather, ring_all_reduce
from .tree import tree_all_reduce


def hierarchical_all_reduce(
    num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Lines:
    r"""Lines of the three stages one after the other, nothing pipelined.

    $t = t_{rs}(l, n) + t_{ar}(m, n/l) + t_{ag}(l, n)$, l devices on each of m nodes, each device with
    its own rail between the nodes.

    Args:
        num_devices: Participants p >= 1.
        num_nodes: Nodes m they are spread over.
        intra: Links within a node.
        inter: Links between nodes, per device.

    Returns:
        A line for every protocol within the node and every algorithm and protocol between nodes;
        free for one device.

    Raises:
        ConfigError: If `num_devices < 1`.

    Assumes: stages do not overlap; a library that pipelines them is faster, at best the slowest stage.
    Accuracy: not calibrated on its own: the rows of the corpus are of pipelined libraries.
    """
    per_node = ranks(num_devices) / num_nodes
    within = ring_all_gather(per_node, 1.0, intra, inter)
    across = (
        *ring_all_reduce(num_nodes, num_nodes, intra, inter),
        *tree_all_reduce(num_nodes, num_nodes, intra, inter),
    )
    return tuple(
        Line(
            startup_s=2 * inside.startup_s + outside.startup_s,
            s_per_byte=2 * inside.s_per_byte + outside.s_per_byte / per_node,
        )
        for inside, outside in product(within, across)
    )
