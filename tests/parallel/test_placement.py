"""Where ranks sit: strides, levels of the hierarchy, and what crosses nodes that should not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.hardware.catalog import get_cluster
from precision_time.hardware.device import Cluster, Fabric
from precision_time.parallel.layout import AXES, Layout
from precision_time.parallel.placement import (
    AxisPlacement,
    Level,
    place,
    placement_in_words,
    placement_warnings,
)


def dgx(num_devices: int, fabric: Fabric | None = None) -> Cluster:
    """DGX H100 hosts, on a plain fat tree unless said otherwise."""
    cluster = get_cluster(device="H100-SXM5-80GB", num_devices=num_devices, node_type="DGX-H100")
    return replace(cluster, fabric=fabric or Fabric())


def placed(layout: Layout, cluster: Cluster) -> dict[str, AxisPlacement]:
    return {each.axis: each for each in place(layout, cluster)}


def test_megatron_order_keeps_tensor_ranks_on_a_node() -> None:
    found = placed(Layout(tp=8, pp=4, dp=2), dgx(64))
    assert list(found) == ["tp", "cp", "dp", "pp"]
    assert [(each.stride, each.nodes, each.ranks_per_node) for each in found.values()] == [
        (1, 1, 8),
        (8, 1, 1),
        (8, 2, 1),
        (16, 4, 1),
    ]
    assert [each.level for each in found.values()] == [
        Level.DOMAIN,
        Level.DEVICE,
        Level.NETWORK,
        Level.NETWORK,
    ]


def test_half_a_node_of_tensor_ranks_leaves_two_replicas_on_it() -> None:
    found = placed(Layout(tp=4, dp=16), dgx(64))
    assert (found["dp"].nodes, found["dp"].ranks_per_node) == (8, 2)


@pytest.mark.parametrize(
    ("fabric", "level"),
    [
        (Fabric(), Level.NETWORK),
        (Fabric(topology="rail-optimized"), Level.RAIL),
        (Fabric(topology="rail-optimized", pod_nodes=32), Level.RAIL),
        (Fabric(topology="rail-optimized", pod_nodes=16, oversubscription=2.0), Level.SPINE),
    ],
)
def test_levels_beyond_the_node(fabric: Fabric, level: Level) -> None:
    assert placed(Layout(tp=8, dp=32), dgx(256, fabric))["dp"].level is level


@pytest.mark.parametrize(
    ("tp", "level"), [(2, Level.RAIL), (4, Level.RAIL), (8, Level.RAIL), (16, Level.RAIL)]
)
def test_groups_stay_on_their_rail_where_strides_and_nodes_divide(tp: int, level: Level) -> None:
    found = placed(Layout(tp=tp, dp=128 // tp), dgx(128, Fabric(topology="rail-optimized")))
    assert found["dp"].level is level
    uneven = placed(Layout(tp=6, dp=8), replace(dgx(48), fabric=Fabric(topology="rail-optimized")))
    assert uneven["dp"].level is Level.NETWORK


def test_experts_take_their_own_stride() -> None:
    inside = placed(Layout(dp=16, ep=8), dgx(16))["ep"]
    assert (inside.stride, inside.level) == (1, Level.DOMAIN)
    with_tensor = placed(Layout(tp=4, dp=16, ep=8), dgx(64))["ep"]
    assert (with_tensor.stride, with_tensor.nodes, with_tensor.ranks_per_node) == (4, 4, 2)
    alone = placed(Layout(tp=4, dp=16, ep=8, etp=1), dgx(64))["ep"]
    assert (alone.stride, alone.level) == (1, Level.DOMAIN)


def test_sharding_groups_stay_inside_when_they_are_as_large_as_a_node() -> None:
    found = placed(Layout(dp=64, zero_stage=3, dp_shard=8), dgx(64))
    assert (found["shard"].size, found["shard"].level) == (8, Level.DOMAIN)
    assert found["dp"].nodes == 8
    assert "shard" not in placed(Layout(dp=64, zero_stage=3), dgx(64))


def test_a_rack_is_one_domain() -> None:
    rack = get_cluster(device="GB200", num_devices=72, node_type="GB200 NVL72")
    assert placed(Layout(tp=8, dp=9), rack)["dp"].level is Level.DOMAIN


def test_cards_without_nvlink_share_a_node() -> None:
    host = get_cluster(device="L4", num_devices=4, num_nodes=1)
    assert placed(Layout(tp=4), host)["tp"].level is Level.NODE


def test_words_name_each_axis() -> None:
    words = placement_in_words(Layout(tp=8, dp=8), dgx(64))
    assert words == (
        "Ranks in the order tp-cp-dp-pp: tp 8 inside an NVLink domain (nvlink4+nvswitch); "
        f"dp 8 on 8 nodes, 1 per node, over the network ({dgx(64).inter_node.name})."
    )
    assert placement_in_words(Layout(), dgx(1)) == ""


def test_tensor_ranks_across_nodes_are_warned_of() -> None:
    assert placement_warnings(Layout(tp=8, dp=8), dgx(64)) == ()
    (outside,) = placement_warnings(Layout(tp=16, dp=4), dgx(64))
    assert "Tensor parallelism crosses nodes: tp=16" in outside
    assert "tp=8 or less stays inside" in outside
    (reordered,) = placement_warnings(Layout(tp=8, dp=8, rank_order=("dp", "tp", "cp", "pp")), dgx(64))
    assert "tp=8" in reordered
    (experts,) = placement_warnings(Layout(dp=64, ep=64), dgx(64))
    assert "ep=64, 8 per node" in experts


def test_groups_that_straddle_nodes_are_warned_of() -> None:
    warnings = placement_warnings(Layout(tp=3, dp=8), dgx(24))
    assert any("tp=3 do not line up with 8 devices per node" in warning for warning in warnings)


@given(
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([1, 2, 4]),
    st.permutations(AXES),
)
def test_every_group_fills_its_nodes(tp: int, cp: int, dp: int, pp: int, order: list[str]) -> None:
    """Ranks of a group, counted one by one over the devices, are as many per node as the placement says."""
    layout = Layout(tp=tp, cp=cp, dp=dp, pp=pp, rank_order=tuple(order))
    for each in place(layout, dgx(layout.world_size)):
        nodes = [rank * each.stride // 8 for rank in range(each.size)]
        assert len(set(nodes)) == each.nodes
        assert nodes.count(0) == each.ranks_per_node
        assert (each.level is Level.DEVICE) == (each.size == 1)
        assert (each.level is Level.DOMAIN) == (each.size > 1 and each.nodes == 1)
