r"""All-to-all (expert routing, Ulysses attention) and the single message between two ranks."""

from __future__ import annotations

import numpy as np

from ...arrays import Number
from ..constants import constants
from .line import Line, Lines, ranks, zero_if_single_rank
from .link import PROTOCOLS, LinkParams, base_latency_s, level_rates


def pairwise_all_to_all(
    num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Lines:
    r"""Lines of an all-to-all in which every rank sends an equal share to every other.

    $t = t_0 + \alpha + (p-l)\,o + \max(\tfrac{l-1}{p}/\beta_{in},\ \tfrac{p-l}{p}/(\eta\beta_{out}))\,n$,
    n the send buffer of one rank, its own share included; both levels are busy at the same time. o is
    the host's work for every peer on another node, $\eta$ what of the network's rate is left where
    every node talks to every other.

    Args:
        num_devices: Participants p >= 1.
        num_nodes: Nodes they are spread over.
        intra: Links within a node.
        inter: Links between nodes, per device.

    Returns:
        Lines for LL, LL128, Simple; free for one device.

    Raises:
        ConfigError: If `num_devices < 1`.

    Assumes: equal shares (balanced experts); no contention but for oversubscribed pods.
    Accuracy: see `cost/data/collectives.toml`, table `accuracy`.

    Reference: Bruck et al., IEEE TPDS 8(11), 1997 (pairwise exchange); NCCL sends and receives.
    """
    base = base_latency_s("send")
    devices = ranks(num_devices)
    per_node = devices / num_nodes
    out = inter.scatter_oversubscription(num_nodes) / inter.neighbor_oversubscription() / network_share()
    lines = []
    for p in range(len(PROTOCOLS)):
        hop_s = np.where(np.asarray(num_nodes) > 1, inter.hop_s(p), intra.hop_s(p))
        within, across = level_rates(num_devices, num_nodes, intra, inter, p)
        slowest = np.maximum(
            (per_node - 1) / devices / within, (devices - per_node) / devices * per_node / across * out
        )
        lines.append(Line(startup_s=base[p] + hop_s + peers_s(devices - per_node), s_per_byte=slowest))
    return zero_if_single_rank(lines, num_devices)


def network_share() -> float:
    """What of the rate of a ring between nodes an all-to-all reaches, 0..1. Source: collectives.toml."""
    return float(constants("collectives")["all_to_all"]["network_share"])


def peers_s(remote_peers: Number) -> Number:
    """Seconds of the host for its messages to peers on other nodes. Source: collectives.toml."""
    return remote_peers * float(constants("collectives")["all_to_all"]["peer_us"]) * 1e-6


def send(crosses_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    r"""Lines of one message from a rank to another.

    $t = t_0 + \alpha + n/\beta$.

    Args:
        crosses_nodes: True (or 1) where the two ranks are on different nodes.
        intra: Links within a node, as the pair sees them.
        inter: Links between nodes, per device.

    Returns:
        Lines for LL, LL128, Simple.

    Assumes: the receiver waits for it; nothing else is on the link.
    Accuracy: see `cost/data/collectives.toml`, table `accuracy`.
    """
    base = base_latency_s("send")
    across = np.asarray(crosses_nodes) > 0
    return tuple(
        Line(
            startup_s=base[p] + np.where(across, inter.hop_s(p), intra.hop_s(p)),
            s_per_byte=1 / np.where(across, inter.rate(p) / inter.neighbor_oversubscription(), intra.rate(p)),
        )
        for p in range(len(PROTOCOLS))
    )
