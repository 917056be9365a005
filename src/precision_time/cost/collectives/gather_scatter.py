r"""Collectives through one rank: torch DataParallel's scatter and gather, and parameter servers."""

from __future__ import annotations

import numpy as np

from ...arrays import Number
from .line import Line, Lines, ranks, zero_if_single_rank
from .link import PROTOCOLS, LinkParams, base_latency_s

SIMPLE = PROTOCOLS.index("simple")


def root_scatter(num_devices: Number, link: LinkParams) -> Lines:
    r"""The line of a scatter from one rank or a gather to it.

    $t = (p-1)(t_0 + \alpha) + \frac{p-1}{p}\,n/\beta$, n the buffer at the root: its link carries
    every part but its own.

    Args:
        num_devices: Participants p >= 1 on one node.
        link: Links within the node.

    Returns:
        One line; free for one device.

    Raises:
        ConfigError: If `num_devices < 1`.

    Assumes: copies are issued one after the other by one process.
    Accuracy: not calibrated: the corpus has no rows of it.
    """
    devices = ranks(num_devices)
    start_s = base_latency_s("send")[SIMPLE] + link.hop_s(SIMPLE)
    line = Line(startup_s=(devices - 1) * start_s, s_per_byte=(devices - 1) / devices / link.rate(SIMPLE))
    return zero_if_single_rank((line,), num_devices)


def parameter_server(num_workers: Number, num_servers: Number, link: LinkParams) -> Lines:
    r"""The line of a push of gradients to sharded parameter servers and a pull of parameters.

    $t = 2(t_0 + \alpha) + 2\max(1, w/s)\,n/\beta$, n the gradients of one worker: each of s servers
    receives n/s from each of w workers and sends as much back.

    Args:
        num_workers: Workers w >= 1.
        num_servers: Servers s >= 1, one link each.
        link: The network, per worker and per server.

    Returns:
        One line; free for one worker.

    Raises:
        ConfigError: If `num_workers < 1`.

    Assumes: synchronous training; servers of their own, or as fast as such.
    Accuracy: not calibrated: the corpus has no rows of it.

    Reference: Li et al., Scaling distributed machine learning with the parameter server, OSDI 2014.
    """
    workers = ranks(num_workers)
    start_s = 2 * (base_latency_s("send")[SIMPLE] + link.hop_s(SIMPLE))
    line = Line(
        startup_s=np.broadcast_to(start_s, np.broadcast_shapes(np.shape(start_s), workers.shape)),
        s_per_byte=2
        * np.maximum(1.0, workers / num_servers)
        * link.scatter_oversubscription(num_servers)
        / link.rate(SIMPLE),
    )
    return zero_if_single_rank((line,), num_workers)
