import tomllib
from dataclasses import replace
from functools import partial
from importlib.resources import files

import numpy as np
import pytest

from precision_time.cost.collectives import (
    LinkParams,
    all_reduce_lines,
    all_to_all_lines,
    broadcast_lines,
    collective_s,
    early_all_reduce_lines,
    fabric_share,
    link_kind,
    link_params,
    min_time_s,
    send,
)
from precision_time.cost.collectives.all_to_all import network_share
from precision_time.cost.collectives.gather_scatter import parameter_server, root_scatter
from precision_time.cost.collectives.nvls import nvls_all_reduce
from precision_time.cost.collectives.ring import ring_all_gather, ring_all_reduce
from precision_time.cost.collectives.tree import tree_all_reduce
from precision_time.hardware.device import Link
from precision_time.units import GIBI

all_reduce_s = partial(collective_s, all_reduce_lines)
all_to_all_s = partial(collective_s, all_to_all_lines)

NVLINK3 = link_params(Link(name="nvlink3+nvswitch", bandwidth_bytes_per_s=300e9, latency_s=0.6e-6))
NVLINK4 = link_params(
    Link(name="nvlink4+nvswitch", bandwidth_bytes_per_s=450e9, latency_s=0.6e-6, in_network_reduction=True)
)
NVLINK5 = link_params(
    Link(name="nvlink5+nvswitch", bandwidth_bytes_per_s=900e9, latency_s=0.6e-6, in_network_reduction=True)
)
HDR = link_params(Link(name="ib-200g x8", bandwidth_bytes_per_s=25e9, latency_s=2.7e-6))
EFA = link_params(Link(name="efa-100g x32", bandwidth_bytes_per_s=50e9, latency_s=10e-6))
XGMI = Link(name="xgmi", bandwidth_bytes_per_s=448e9, latency_s=0.6e-6)
NVLINK2 = Link(name="nvlink2", bandwidth_bytes_per_s=150e9, latency_s=0.6e-6)

# Bus bandwidth of an all-reduce as published [GB/s]: (source, devices, nodes, intra, inter, bytes, figure).
PUBLISHED = [
    ("vTrain, A100 server", 8, 1, NVLINK3, HDR, GIBI, 229.4),
    ("vTrain, A100 server", 4, 1, NVLINK3, HDR, GIBI, 221.9),
    ("ml-engineering, A100 node", 8, 1, NVLINK3, HDR, 16 * GIBI, 234.9),
    ("DeepOps, 2 DGX-A100", 16, 2, NVLINK3, HDR, 4 * GIBI, 188.5),
    ("DeepOps, 4 DGX-A100", 32, 4, NVLINK3, HDR, 4 * GIBI, 191.1),
    ("AWS, p5.48xlarge", 8, 1, NVLINK4, EFA, GIBI, 441.8),
    ("AWS, 2 p5.48xlarge", 16, 2, NVLINK4, EFA, GIBI, 436.9),
    ("ml-engineering, H200 node", 8, 1, NVLINK4, EFA, 16 * GIBI, 482.3),
    ("vTrain, V100 server", 8, 1, link_params(NVLINK2, 8), HDR, GIBI, 134.6),
    ("vTrain, V100 server", 4, 1, link_params(NVLINK2, 4), HDR, GIBI, 85.8),
    ("vTrain, V100 server", 2, 1, link_params(NVLINK2, 2), HDR, GIBI, 22.6),
    ("ml-engineering, MI300X node", 8, 1, link_params(XGMI, 8), HDR, 4 * GIBI, 312.9),
    ("ml-engineering, MI300X node", 2, 1, link_params(XGMI, 2), HDR, 4 * GIBI, 47.7),
    ("ml-engineering, p6-b200", 8, 1, NVLINK5, EFA, 16 * GIBI, 845.7),
]


@pytest.mark.parametrize("case", PUBLISHED, ids=lambda c: f"{c[0]} x{c[1]}")
def test_large_all_reduces_reach_the_published_bus_bandwidth(case):
    _, devices, nodes, intra, inter, size, published = case
    seconds = float(all_reduce_s(size, devices, nodes, intra, inter))
    bus = size / seconds * 2 * (devices - 1) / devices / 1e9
    assert bus == pytest.approx(published, rel=0.15)


def test_small_all_reduces_take_tens_of_microseconds():
    assert 10e-6 < float(all_reduce_s(8.0, 8, 1, NVLINK4, EFA)) < 40e-6
    assert 20e-6 < float(all_reduce_s(8.0, 16, 2, NVLINK3, HDR)) < 60e-6


def test_ring_slope_is_two_passes_of_all_but_the_own_share():
    line = ring_all_reduce(8, 1, NVLINK3, HDR)[-1]
    assert line.s_per_byte == pytest.approx(2 * 7 / 8 / (300e9 * NVLINK3.efficiency))


def test_ring_over_nodes_is_bound_by_the_slower_level():
    network = 2 * 15 / 16 / (8 * 25e9 * HDR.efficiency)
    assert ring_all_reduce(16, 2, NVLINK3, HDR)[-1].s_per_byte == pytest.approx(network)
    fast = replace(HDR, bandwidth_bytes_per_s=1e12)
    inside = 2 * 15 / 16 / (300e9 * NVLINK3.efficiency)
    assert ring_all_reduce(16, 2, NVLINK3, fast)[-1].s_per_byte == pytest.approx(inside)


def test_all_gather_and_reduce_scatter_are_half_an_all_reduce():
    for whole, half in zip(
        ring_all_reduce(8, 1, NVLINK3, HDR), ring_all_gather(8, 1, NVLINK3, HDR), strict=True
    ):
        assert half.s_per_byte * 2 == pytest.approx(whole.s_per_byte)


def test_the_choice_is_never_slower_than_any_algorithm_it_may_take():
    for size in (1e2, 1e5, 1e7, 1e10):
        chosen = all_reduce_s(size, 64, 8, NVLINK4, EFA)
        for algorithm in (ring_all_reduce, tree_all_reduce, nvls_all_reduce):
            assert chosen <= min_time_s(algorithm(64, 8, NVLINK4, EFA), size)


def test_trees_win_small_messages_on_many_nodes_and_rings_large_ones_on_one():
    args = (1024, 128, NVLINK3, HDR)
    assert min_time_s(tree_all_reduce(*args), 1e4) < min_time_s(ring_all_reduce(*args), 1e4) / 2
    args = (8, 1, NVLINK3, HDR)
    assert min_time_s(ring_all_reduce(*args), 1e9) < min_time_s(tree_all_reduce(*args), 1e9)


def test_reduction_in_the_switch_helps_large_messages_and_only_where_the_switch_can():
    without = replace(NVLINK4, in_network_reduction=0.0)
    assert all_reduce_s(GIBI, 8, 1, NVLINK4, EFA) < 0.9 * collective_s(
        all_reduce_lines, GIBI, 8, 1, without, EFA
    )
    both = replace(NVLINK4, in_network_reduction=np.array([1.0, 0.0]))
    np.testing.assert_allclose(
        all_reduce_s(GIBI, 8, 1, both, EFA),
        [
            all_reduce_s(GIBI, 8, 1, NVLINK4, EFA),
            all_reduce_s(GIBI, 8, 1, without, EFA),
        ],
    )


def test_all_to_all_over_nodes_is_bound_by_what_leaves_the_node():
    seconds = float(all_to_all_s(8 * GIBI, 16, 2, NVLINK3, HDR))
    assert seconds == pytest.approx(8 * GIBI * 8 / 16 / (25e9 * HDR.efficiency * network_share()), rel=0.05)


def test_a_message_between_nodes_takes_the_network():
    within, across = (float(min_time_s(send(crosses, NVLINK3, HDR), GIBI)) for crosses in (0.0, 1.0))
    assert within == pytest.approx(GIBI / (300e9 * NVLINK3.efficiency), rel=0.1)
    assert across == pytest.approx(GIBI / (25e9 * HDR.efficiency), rel=0.1)


def test_broadcast_passes_the_whole_buffer_once():
    assert float(collective_s(broadcast_lines, 8 * GIBI, 8, 1, NVLINK3, HDR)) == pytest.approx(
        8 * GIBI / (300e9 * NVLINK3.efficiency), rel=0.05
    )


def test_through_one_rank_the_root_link_carries_everything():
    rate = NVLINK3.rate(2)
    assert root_scatter(8, NVLINK3)[0].s_per_byte == pytest.approx(7 / 8 / rate)
    assert min_time_s(root_scatter(1, NVLINK3), 1e9) == 0.0
    assert parameter_server(8, 2, HDR)[0].s_per_byte == pytest.approx(2 * 4 / HDR.rate(2))
    assert parameter_server(8, 16, HDR)[0].s_per_byte == pytest.approx(2 / HDR.rate(2))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("nvlink4+nvswitch", "nvlink4"),
        ("nvlink2", "nvlink2-cube"),
        ("nvlink2+nvswitch", "nvlink2-switch"),
        ("NVLink3 mesh4", "nvlink-mesh4"),
        ("nvlink3-bridge", "nvlink-bridge"),
        ("pcie4", "pcie"),
        ("xgmi", "xgmi"),
        ("ib-200g x8", "infiniband"),
        ("efa-100g x4", "efa"),
        ("roce-200g x8", "roce"),
        ("omnipath-100g x1", "omni-path"),
        ("dcn-ethernet-100g x1", "ethernet"),
        ("gaudi-roce", "gaudi-roce"),
        ("ici", "torus"),
        ("something new", "other"),
    ],
)
def test_links_are_recognised_by_name(name, kind):
    assert link_kind(name) == kind


def test_meshes_give_few_devices_few_links():
    shares = [float(fabric_share("xgmi", n)) for n in (2, 4, 8)]
    assert shares == pytest.approx([1 / 7, 3 / 7, 1.0], abs=1e-3)
    assert float(fabric_share("nvlink3", 2)) == 1.0
    assert 1 / 7 < float(fabric_share("xgmi", 2.5)) < 2 / 7


def test_a_missing_link_costs_nothing_until_it_is_used():
    none = link_params(Link(name="none", bandwidth_bytes_per_s=0.0, latency_s=0.0))
    assert all_reduce_s(GIBI, 1, 1, none, none) == 0.0
    assert all_reduce_s(GIBI, 8, 1, NVLINK3, none) < 0.01
    assert all_reduce_s(GIBI, 16, 2, NVLINK3, none) > 1e6


def test_calibration_stays_within_what_links_can_do():
    text = files("precision_time.cost").joinpath("data/collectives.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    assert {entry["kind"] for entry in table["patterns"]} <= set(table["kinds"])
    for facts in table["kinds"].values():
        shares = [facts["efficiency"], facts["in_switch_efficiency"], *facts["protocol_efficiency"]]
        assert all(0.05 < share <= 1.0 for share in shares)
    overall = next(
        e for e in table["accuracy"] if e["link"] == e["collective"] == e["message_bytes"] == "all"
    )
    assert overall["fitted_mape_percent"] < overall["prior_mape_percent"]
    assert overall["held_out_mape_percent"] < 25.0


def test_defaults_of_link_params_are_usable():
    plain = LinkParams(bandwidth_bytes_per_s=100e9, latency_s=1e-6)
    assert 2 * 7 / 8 / 100e9 * 1e9 < float(all_reduce_s(1e9, 8, 1, plain, plain)) < 0.03


def test_trees_of_few_nodes_beat_rings_since_libraries_exchange_halves() -> None:
    intra, inter = NVLINK3, replace(HDR, bandwidth_bytes_per_s=3e9)
    args = (8, 2, intra, inter)
    ring = min_time_s(ring_all_reduce(*args), 1e9)
    assert min_time_s(all_reduce_lines(*args), 1e9) < 0.8 * ring
    assert min_time_s(early_all_reduce_lines(*args), 1e9) == ring
    # What is small still goes by the tree where there are many nodes.
    many = (512, 64, intra, inter)
    assert min_time_s(early_all_reduce_lines(*many), 1e4) < min_time_s(ring_all_reduce(*many), 1e4) / 2
