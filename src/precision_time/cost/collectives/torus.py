r"""Collectives on 2-D and 3-D tori: one ring per dimension instead of one ring over all devices.

The buffer is cut into as many parts as there are dimensions, and every part runs through the dimensions
in another order, so that all links are busy: bandwidths of the dimensions add up, hops along them do too.

References: Sack & Gropp, Collective algorithms for multiported torus networks, ACM TOPC 1(2), 2015;
Jouppi et al., TPU v4, ISCA 2023; Kumar et al., Exploring the limits of concurrency in ML training on
Google TPUs, MLSys 2021 (2-D all-reduce on TPU v3).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from ...arrays import Floats, Number
from ...errors import ConfigError
from .all_to_all import network_share, peers_s
from .line import Line, Lines, ranks, zero_if_single_rank
from .link import MISSING_BYTES_PER_S, PROTOCOLS, LinkParams, Torus, base_latency_s, level_rates

_SHORTEST_RING = 3
"""Two devices along a dimension have one link between them, closed or not."""


def sub_torus(size: Number, stride: Number, dims: Sequence[int], wraps: Sequence[bool] = ()) -> Torus:
    r"""The part of a torus that a group with a stride covers.

    Two ways to lay axes on a torus are known, and the one with more links for the group is taken: one axis
    after the other fills dimension after dimension (whole rings), or every axis is a block as cubic as it
    can be (MaxText's hybrid rings, for axes shorter than a side). Along a dimension of d devices on which
    the axes further in take s and those up to the group r, it has $e = r/s$ ranks. It owns $1/D$ of a
    device's links there, divided by the s groups that are woven into each other, and half of it where no
    links close its line to a ring.

    Args:
        size: Ranks of the group.
        stride: Devices between neighboring ranks.
        dims: Devices along each dimension of the slice, the first one innermost.
        wraps: Whether each dimension closes to a ring; empty: all do.

    Returns:
        Extents and shares of the links, arrays where size or stride are arrays.

    Assumes: the compiler lays the axes out well for every one of them; at best it does for most.
    """
    inner = np.asarray(stride, dtype=np.float64)
    closed = tuple(wraps) or (True,) * len(dims)
    filled, cubic = (
        _covered(split(inner, dims), split(inner * size, dims), dims, closed)
        for split in (_one_after_the_other, _as_blocks)
    )
    better = _links(cubic) > _links(filled) * (1 + 1e-9)
    return Torus(
        extents=tuple(np.where(better, *pair) for pair in zip(cubic.extents, filled.extents, strict=True)),
        shares=tuple(np.where(better, *pair) for pair in zip(cubic.shares, filled.shares, strict=True)),
    )


def _one_after_the_other(count: Floats, dims: Sequence[int]) -> list[Floats]:
    """Devices along each dimension when so many fill the first, then the second."""
    taken = []
    for dim in dims:
        taken.append(np.clip(count, 1.0, dim))
        count = count / dim
    return taken


def _as_blocks(count: Floats, dims: Sequence[int]) -> list[Floats]:
    """Devices along each dimension of a block as cubic as the sides allow; fractions on the average."""
    taken: list[Floats] = [np.ones(())] * len(dims)
    for left, place in zip(range(len(dims), 0, -1), np.argsort(dims, kind="stable"), strict=True):
        taken[place] = np.clip(count ** (1.0 / left), 1.0, dims[place])
        count = count / taken[place]
    return taken


def _covered(
    strides: Sequence[Floats], reaches: Sequence[Floats], dims: Sequence[int], wraps: Sequence[bool]
) -> Torus:
    extents, shares = [], []
    for stride, reach, dim, closed in zip(strides, reaches, dims, wraps, strict=True):
        ratio = reach / stride
        ring = (reach >= dim * (1 - 1e-9)) & (closed and dim >= _SHORTEST_RING)
        extents.append(np.where(ratio > 1 + 1e-9, ratio, 1.0))
        shares.append(np.where(ring, 1.0, 0.5) / (len(dims) * stride))
    return Torus(extents=tuple(extents), shares=tuple(shares))


def _links(torus: Torus) -> Number:
    """Share of a device's fabric that rings along all dimensions use."""
    return _total(
        [np.where(extent > 1, share, 0.0) for extent, share in zip(torus.extents, torus.shares, strict=True)]
    )


def torus_all_reduce(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    r"""Lines of an all-reduce by rings along every dimension, one line per protocol.

    $t = t_0 + 2\sum_i(e_i-1)\alpha + 2\frac{p-1}{p}\,n/\sum_i\beta_i$, e_i ranks along dimension i, the sum
    over the dimensions that the group covers; between slices a ring as in `ring_all_reduce`.

    Args:
        num_devices: Participants p >= 1.
        num_nodes: Slices they are spread over.
        intra: Links of the torus, with `torus` set.
        inter: Links between slices, per device.

    Returns:
        Lines for LL, LL128, Simple; free for one device.

    Raises:
        ConfigError: If `num_devices < 1`, or the links are not those of a torus.

    Assumes: parts for all dimensions are equally long; reduction arithmetic hides behind the wire.
    Accuracy: not calibrated: the corpus has no timings of tori.
    """
    return _passes(2.0, num_devices, num_nodes, intra, inter)


def torus_all_gather(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    """Lines of an all-gather or reduce-scatter: half of `torus_all_reduce`, the rest as there."""
    return _passes(1.0, num_devices, num_nodes, intra, inter)


def torus_broadcast(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    """Lines of a pipelined broadcast, n over all links of the root, the rest as `torus_all_reduce`."""
    whole = np.maximum(ranks(num_devices), 1.0)
    lines = _passes(1.0, num_devices, num_nodes, intra, inter)
    scale = whole / np.maximum(whole - 1.0, 1e-9)
    return zero_if_single_rank(
        (Line(startup_s=line.startup_s, s_per_byte=line.s_per_byte * scale) for line in lines), num_devices
    )


def torus_all_to_all(num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams) -> Lines:
    r"""Lines of an all-to-all, bound by the cut through the middle of the longest dimension.

    $t = t_0 + \sum_i\lfloor e_i/2\rfloor\,\alpha + \max_i \frac{e_i}{4\beta_i}\,n$: half of every rank's
    buffer n crosses a cut, p/e_i links of it in each of two places of a ring, in one of a line.

    Args, Returns and Raises as for `torus_all_reduce`.

    Assumes: equal shares; shortest routes, spread evenly.
    Accuracy: not calibrated: the corpus has no timings of tori.

    Reference: Dally & Towles, Principles and Practices of Interconnection Networks, 2004, ch. 5.
    """
    torus = _torus(intra)
    base = base_latency_s("send")
    devices, nodes = ranks(num_devices), np.asarray(num_nodes, dtype=np.float64)
    per_node = devices / nodes
    hops = _total([np.floor(np.asarray(extent) / 2.0) for extent in torus.extents])
    leaving = (devices - per_node) / devices * inter.scatter_oversubscription(nodes) / network_share()
    waiting_s = peers_s(devices - per_node)
    # Of the buffer, per_node/devices stays in the slice; extents below 2 ramp up from nothing.
    cut = reduce(
        np.maximum,
        (
            extent * np.minimum(extent - 1.0, 1.0) / (4.0 * share)
            for extent, share in zip(torus.extents, torus.shares, strict=True)
        ),
    )
    lines = []
    for p in range(len(PROTOCOLS)):
        inside = cut / np.maximum(intra.rate(p), MISSING_BYTES_PER_S) * per_node / devices
        across = np.where(nodes > 1, leaving / inter.rate(p), 0.0)
        hops_s = hops * intra.hop_s(p) + np.where(nodes > 1, inter.hop_s(p), 0.0)
        lines.append(Line(startup_s=base[p] + hops_s + waiting_s, s_per_byte=np.maximum(inside, across)))
    return zero_if_single_rank(lines, num_devices)


def _passes(
    passes: float, num_devices: Number, num_nodes: Number, intra: LinkParams, inter: LinkParams
) -> Lines:
    """Rings along all dimensions, `passes` times round."""
    torus = _torus(intra)
    base = base_latency_s("ring")
    volume = passes * (ranks(num_devices) - 1) / num_devices
    steps = _total([extent - 1.0 for extent in torus.extents])
    borders = np.asarray(num_nodes, dtype=np.float64) - 1
    links = _links(torus)
    # A slice with one rank of the group sends nothing inside: its share then is any above 0.
    used = np.where(links > 0, links, 1.0)
    lines = []
    for p in range(len(PROTOCOLS)):
        within, across = level_rates(num_devices, num_nodes, intra, inter, p)
        inside = np.maximum(within * used, MISSING_BYTES_PER_S)
        hops_s = steps * intra.hop_s(p) + borders * inter.hop_s(p)
        lines.append(
            Line(startup_s=base[p] + passes * hops_s, s_per_byte=volume / np.minimum(inside, across))
        )
    return zero_if_single_rank(lines, num_devices)


def _torus(intra: LinkParams) -> Torus:
    if intra.torus is None:
        raise ConfigError("The links are not those of a torus. To fix: set LinkParams.torus.")
    return intra.torus


def _total(parts: Sequence[Number]) -> Number:
    return reduce(np.add, parts)
