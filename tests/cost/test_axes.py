"""Groups on the hierarchy: node, pod, spine; shares of what concurrent groups have in common."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time.cost.axes import Group, as_seen, group_of, split_group
from precision_time.cost.collectives import (
    all_reduce_lines,
    all_to_all_lines,
    collective_s,
    link_kind,
    min_time_s,
    send,
)
from precision_time.cost.stacks import get_stack_profile
from precision_time.errors import LayoutError
from precision_time.hardware.catalog import get_cluster
from precision_time.hardware.device import Cluster, Fabric

all_reduce_s = partial(collective_s, all_reduce_lines)
all_to_all_s = partial(collective_s, all_to_all_lines)

PLAIN = get_cluster(device="H100", num_devices=1024)
POD_NODES = 16


def thinned(ratio: float, pod_nodes: int = POD_NODES) -> Cluster:
    return replace(PLAIN, fabric=Fabric(pod_nodes=pod_nodes, oversubscription=ratio))


def all_reduce(group: Group, size: float = 1e9) -> float:
    return float(all_reduce_s(size, group.size, group.nodes, group.intra, group.inter))


def all_to_all(group: Group, size: float = 1e9) -> float:
    return float(all_to_all_s(size, group.size, group.nodes, group.intra, group.inter))


placements = st.sampled_from(
    [(1024, 1), (128, 8), (8, 1), (4, 8), (16, 8), (2, 128), (8, 128), (64, 16), (3, 5)]
)


@settings(max_examples=30)
@given(placement=placements, size=st.floats(1e3, 1e10), ratio=st.floats(1.0, 16.0))
def test_full_bandwidth_and_wide_pods_change_nothing_and_thin_ones_never_help(placement, size, ratio):
    plain = group_of(*placement, PLAIN)
    for same in (thinned(1.0), thinned(ratio, pod_nodes=PLAIN.num_nodes), thinned(ratio, pod_nodes=0)):
        group = group_of(*placement, same)
        assert (all_reduce(group, size), all_to_all(group, size)) == (
            all_reduce(plain, size),
            all_to_all(plain, size),
        )
    thin = group_of(*placement, thinned(ratio))
    assert all_reduce(thin, size) >= all_reduce(plain, size)
    assert all_to_all(thin, size) >= all_to_all(plain, size)


def test_a_group_inside_a_pod_keeps_the_full_network():
    for size, stride in ((8, 1), (16, 8), (128, 1)):
        assert all_to_all(group_of(size, stride, thinned(8.0))) == all_to_all(group_of(size, stride, PLAIN))


def test_what_every_node_sends_to_every_other_is_thinned_by_the_share_that_leaves_the_pod():
    thin, plain = (all_to_all(group_of(1024, 1, cluster), 1e11) for cluster in (thinned(4.0), PLAIN))
    assert thin / plain == pytest.approx(4.0 * (128 - 16) / (128 - 1), rel=0.01)


def test_rings_leave_a_pod_once_so_that_only_groups_spread_thinly_over_pods_feel_it():
    assert all_reduce(group_of(1024, 1, thinned(4.0))) == all_reduce(group_of(1024, 1, PLAIN))
    # One rank per pod: every hop of every ring leaves its pod.
    spread = all_reduce(group_of(8, 128, thinned(4.0))) / all_reduce(group_of(8, 128, PLAIN))
    assert spread == pytest.approx(4.0, rel=0.1)


def test_stages_a_pod_apart_send_through_the_thin_links():
    def seconds(cluster: Cluster, stride: int) -> float:
        group = group_of(8, stride, cluster)
        return float(min_time_s(send(group.crosses_nodes, group.intra, group.inter), 1e9))

    assert seconds(thinned(4.0), 8) == seconds(PLAIN, 8)
    assert seconds(thinned(4.0), 128) == pytest.approx(4.0 * seconds(PLAIN, 128), rel=0.05)


def test_concurrent_groups_of_a_node_share_its_adapters_evenly():
    """Eight groups with a rank per node each have one adapter; one group of all ranks has all eight."""
    one_rail, all_rails = group_of(128, 8, PLAIN), group_of(1024, 1, PLAIN)
    assert float(one_rail.nodes) == float(all_rails.nodes) == 128.0
    rate = float(np.asarray(one_rail.inter.rate(2)))
    assert rate == pytest.approx(50e9 * one_rail.inter.efficiency)
    assert all_reduce(one_rail, 8e9) > 2 * 8e9 * 127 / 128 / rate
    assert all_reduce(all_rails, 8e9) < all_reduce(one_rail, 8e9) / 3


@given(
    inner=st.sampled_from([1, 2, 8, 16, 64]),
    stride=st.sampled_from([1, 2, 8]),
    ratio=st.sampled_from([1.0, 3.0]),
)
def test_the_halves_of_a_split_cover_the_group(inner, stride, ratio):
    cluster = thinned(ratio)
    shards, copies = split_group(128, inner, stride, cluster)
    assert shards.size * copies.size == 128
    assert shards == group_of(inner, stride, cluster)
    assert copies == group_of(128 // inner, stride * inner, cluster)


def test_hybrid_sharding_inside_a_node_leaves_the_gathers_on_nvlink():
    shards, copies = split_group(1024, 8, 1, PLAIN)
    assert (float(shards.nodes), float(copies.nodes)) == (1.0, 128.0)


def test_a_split_must_divide():
    with pytest.raises(LayoutError, match="1024 % 7 is not 0"):
        split_group(1024, 7, 1, PLAIN)
    with pytest.raises(LayoutError, match="groups of 0"):
        split_group(1024, 0, 1, PLAIN)


def test_arrays_of_groups_give_what_numbers_give():
    cluster = thinned(4.0)
    sizes, strides = np.array([8.0, 128.0, 8.0]), np.array([1.0, 8.0, 128.0])
    together = group_of(sizes, strides, cluster)
    times = np.asarray(all_to_all_s(1e9, sizes, together.nodes, together.intra, together.inter))
    for size, stride, time_s in zip(sizes, strides, times, strict=True):
        assert all_to_all(group_of(float(size), float(stride), cluster)) == pytest.approx(float(time_s))


def test_containers_of_one_device_keep_one_tcp_stream() -> None:
    apart, together = (
        get_stack_profile("pytorch-adaptive").stack(),
        get_stack_profile("pytorch-eager").stack(),
    )
    tcp = get_cluster(device="T4", num_devices=8, num_nodes=2, inter_node="ethernet-50g")
    seen = as_seen(tcp, apart)
    per_device = tcp.inter_node.bandwidth_bytes_per_s
    assert seen.inter_node.bandwidth_bytes_per_s == pytest.approx(per_device / 2)
    assert seen.intra_node.bandwidth_bytes_per_s == pytest.approx(15e9 / 8)
    assert link_kind(seen.intra_node.name) == "ethernet"
    assert as_seen(tcp, together) == tcp
    rdma = get_cluster(device="T4", num_devices=8, num_nodes=2, inter_node="ib-100g")
    assert as_seen(rdma, apart).inter_node == rdma.inter_node
    whole = get_cluster(device="A100-SXM4-40GB", num_devices=16, num_nodes=2)
    assert as_seen(whole, apart) == whole
