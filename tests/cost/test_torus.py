"""Tori: what one ring per dimension costs, and which part of a torus a group covers."""

from dataclasses import replace
from functools import partial
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.cost.axes import group_of
from precision_time.cost.collectives import (
    LinkParams,
    Torus,
    all_reduce_lines,
    all_to_all_lines,
    collective_s,
    min_time_s,
    sub_torus,
)
from precision_time.cost.collectives.ring import ring_all_gather, ring_all_reduce, ring_broadcast
from precision_time.cost.collectives.torus import (
    torus_all_gather,
    torus_all_reduce,
    torus_all_to_all,
    torus_broadcast,
)
from precision_time.errors import ConfigError
from precision_time.hardware.catalog import get_cluster

all_reduce_s = partial(collective_s, all_reduce_lines)
all_to_all_s = partial(collective_s, all_to_all_lines)

ICI = LinkParams(bandwidth_bytes_per_s=300e9, latency_s=1e-6, hop_ratio=(1.0, 1.0, 1.0))
DCN = LinkParams(bandwidth_bytes_per_s=3e9, latency_s=20e-6)
powers = st.integers(0, 4).map(lambda power: 2**power)


@pytest.mark.parametrize(
    ("torus", "ring"),
    [
        (torus_all_reduce, ring_all_reduce),
        (torus_all_gather, ring_all_gather),
        (torus_broadcast, ring_broadcast),
    ],
)
@pytest.mark.parametrize("slices", [1, 4])
def test_a_torus_of_one_dimension_is_a_ring(torus, ring, slices):
    links = replace(ICI, torus=sub_torus(16, 1, (16,)))
    for mine, theirs in zip(
        torus(16 * slices, slices, links, DCN), ring(16 * slices, slices, ICI, DCN), strict=True
    ):
        assert mine.s_per_byte == pytest.approx(theirs.s_per_byte)
        # One ring over all slices passes every device; rings inside and between slices pass few.
        assert mine.startup_s < theirs.startup_s * (1 + 1e-9)
        assert slices > 1 or mine.startup_s == pytest.approx(theirs.startup_s)


def test_a_full_cube_has_the_bandwidth_of_a_ring_and_a_fraction_of_its_hops():
    links = replace(ICI, torus=sub_torus(4096, 1, (16, 16, 16)))
    mine = torus_all_reduce(4096, 1, links, DCN)[-1]
    ring = ring_all_reduce(4096, 1, ICI, DCN)[-1]
    assert mine.s_per_byte == pytest.approx(ring.s_per_byte)
    assert mine.startup_s < ring.startup_s / 50
    assert mine.startup_s == pytest.approx(ring.startup_s - 2 * (4095 - 3 * 15) * 1e-6)


def test_an_open_side_has_half_the_bandwidth_and_a_covered_plane_two_thirds():
    closed, opened = sub_torus(256, 1, (16, 16)), sub_torus(256, 1, (16, 16), (False, False))
    rates = [
        1 / torus_all_gather(256, 1, replace(ICI, torus=torus), DCN)[-1].s_per_byte
        for torus in (closed, opened)
    ]
    assert rates[1] == pytest.approx(rates[0] / 2)
    plane = sub_torus(256, 1, (16, 16, 16))
    assert sum(np.where(np.array(plane.extents) > 1, plane.shares, 0)) == pytest.approx(2 / 3)


@given(dims=st.tuples(powers, powers, powers), cut=st.integers(0, 12), width=st.integers(0, 12))
def test_the_part_of_a_torus_holds_the_group_and_no_more_links_than_there_are(dims, cut, width):
    total = prod(dims)
    stride = min(2**cut, total)
    size = min(2**width, total // stride)
    part = sub_torus(size, stride, dims)
    assert prod(float(extent) for extent in part.extents) == pytest.approx(size)
    assert all(1 <= extent <= dim for extent, dim in zip(part.extents, dims, strict=True))
    assert sum(float(share) for share in part.shares) <= 1 + 1e-12


def test_groups_woven_into_each_other_share_the_links_of_a_dimension():
    inner, outer = sub_torus(4, 1, (16,)), sub_torus(4, 4, (16,))
    assert float(inner.extents[0]) == float(outer.extents[0]) == 4.0
    # Neighbors on an open stretch: half. Every fourth device around the ring: a quarter of all.
    assert float(inner.shares[0]) == pytest.approx(1 / 2)
    assert float(outer.shares[0]) == pytest.approx(1 / 4)


def test_axes_shorter_than_a_side_are_laid_out_as_blocks():
    """A line of 8 in a side of 16 has a quarter of the links, a block half of them."""
    block, ring = sub_torus(8, 1, (16, 16)), sub_torus(16, 1, (16, 16))
    assert sum(float(share) for share in block.shares) == pytest.approx(1 / 2)
    assert max(float(extent) for extent in block.extents) == pytest.approx(8**0.5)
    assert [float(extent) for extent in ring.extents] == [16.0, 1.0]
    assert float(ring.shares[0]) == pytest.approx(1 / 2)


def test_all_to_all_is_bound_by_the_cut_through_the_longest_dimension():
    links = replace(ICI, torus=sub_torus(256, 1, (4, 4, 16)))
    line = torus_all_to_all(256, 1, links, DCN)[-1]
    # Half of 256 buffers crosses two cuts of 16 links of 50 GB/s each way, half of it in each direction.
    assert line.s_per_byte == pytest.approx(256 / 4 / (2 * 16 * 50e9 * ICI.efficiency))
    even = replace(ICI, torus=sub_torus(256, 1, (4, 8, 8)))
    assert torus_all_to_all(256, 1, even, DCN)[-1].s_per_byte == pytest.approx(line.s_per_byte / 2)


def test_two_devices_exchange_half_of_their_buffers_over_one_link():
    links = replace(ICI, torus=sub_torus(2, 1, (2, 1, 1)))
    assert torus_all_to_all(2, 1, links, DCN)[-1].s_per_byte == pytest.approx(0.5 / (50e9 * ICI.efficiency))


def test_slices_meet_over_the_network_between_them():
    links = replace(ICI, torus=sub_torus(256, 1, (16, 16)))
    seconds = float(all_reduce_s(1e9, 1024, 4, links, DCN))
    assert seconds > 2 * 1e9 / (256 * 3e9)
    assert seconds > float(all_reduce_s(1e9, 256, 1, links, DCN))
    assert float(all_to_all_s(1e9, 1024, 4, links, DCN)) > 0.75 * 1e9 / 3e9


def test_a_pod_is_priced_in_fractions_of_a_millisecond():
    cluster = get_cluster(device="TPUv4", num_devices=4096)
    group = group_of(4096, 1, cluster)
    assert isinstance(group.intra.torus, Torus)
    assert float(all_reduce_s(1e3, group.size, group.nodes, group.intra, group.inter)) < 2e-4


def test_groups_of_arrays_give_what_numbers_give():
    cluster = get_cluster(device="TPUv5e", num_devices=1024)
    sizes, strides = np.array([4.0, 16.0, 64.0, 4.0]), np.array([1.0, 4.0, 16.0, 256.0])
    together = group_of(sizes, strides, cluster)
    times = all_reduce_s(1e8, together.size, together.nodes, together.intra, together.inter)
    for size, stride, time_s in zip(sizes, strides, np.asarray(times), strict=True):
        group = group_of(float(size), float(stride), cluster)
        assert float(all_reduce_s(1e8, group.size, group.nodes, group.intra, group.inter)) == pytest.approx(
            float(time_s)
        )


def test_links_that_are_no_torus_are_refused():
    with pytest.raises(ConfigError, match="torus"):
        min_time_s(torus_all_reduce(8, 1, ICI, DCN), 1e6)
