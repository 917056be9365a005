"""Clusters: links by any spelling, defaults that say what they are, counts that cannot be."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import CatalogError, ConfigError, UnknownNameError
from precision_time.hardware.catalog import (
    find_node_type,
    get_cluster,
    get_device,
    get_node_type,
    known_devices,
    known_node_types,
    parse_network,
)
from precision_time.hardware.clusters import nodes_in_words

GB = 1e9


@pytest.mark.parametrize(
    ("device", "count", "nodes", "spelling", "name", "gb_per_s"),
    [
        ("A100-SXM4-80GB", 8, 1, "nvlink3+nvswitch", "nvlink3+nvswitch", 300),
        ("A100-SXM4-80GB", 8, 1, "nvswitch", "nvlink3+nvswitch", 300),
        ("A100-SXM4-80GB", 8, 1, "nvswitch (nvlink3)", "nvlink3+nvswitch", 300),
        ("A100-SXM4-80GB", 8, 1, "NVLink", "nvlink3+nvswitch", 300),
        ("H200-SXM-141GB", 8, 1, "nvswitch (nvlink4, NVLS)", "nvlink4+nvswitch", 450),
        ("H100-SXM5-80GB", 8, 1, "nvlink4", "nvlink4+nvswitch", 450),
        ("B200-SXM-180GB", 8, 1, "nvswitch (nvlink5)", "nvlink5+nvswitch", 900),
        ("GB200", 64, 16, "nvlink5", "nvlink5 nvl72", 900),
        ("V100-SXM2-16GB", 8, 1, "nvlink2", "nvlink2", 150),
        ("V100-SXM2-16GB", 8, 1, "pcie", "pcie3", 15.75),
        ("RTX2080Ti", 2, 1, "nvlink2-bridge", "nvlink2-bridge", 50),
        ("T4", 4, 1, "pcie3", "pcie3", 15.75),
        ("L40S", 8, 1, "PCIe Gen4", "pcie4", 31.5),
        ("MI300X", 8, 1, "xgmi", "xgmi", 448),
        ("Gaudi2", 8, 1, "gaudi-roce", "gaudi-roce", 262.5),
        ("Gaudi2", 8, 1, "24x 100Gb/s Ethernet 10x L3 Fat Tree", "gaudi-roce", 262.5),
        ("Gaudi", 8, 1, "gaudi-roce", "gaudi-roce", 87.5),
        ("Gaudi3", 8, 1, "gaudi-roce", "gaudi-roce", 525),
        ("TPUv4", 64, 16, "2-D toroidal mesh", "ici", 300),
        ("IPU-GC200", 16, 1, "IPULINK", "ipu-link", 160),
        ("Ascend910", 8, 1, "HCCS Mesh", "hccs", 45),
    ],
)
def test_link_inside_a_node(
    device: str, count: int, nodes: int, spelling: str, name: str, gb_per_s: float
) -> None:
    link = get_cluster(device=device, num_devices=count, num_nodes=nodes, intra_node=spelling).intra_node
    assert link.name == name
    assert link.bandwidth_bytes_per_s == pytest.approx(gb_per_s * GB)


@pytest.mark.parametrize(
    ("spelling", "family", "gbit_per_s", "adapters"),
    [
        ("ib-hdr-200g x8", "ib", 200, 8),
        ("ib-edr-100g", "ib", 100, 1),
        ("ib-ndr-400g x4", "ib", 400, 4),
        ("FDR", "ib", 56, 1),
        ("InfiniBand NDR x8", "ib", 400, 8),
        ("ethernet-50g", "ethernet", 50, 1),
        ("10Gb Ethernet", "ethernet", 10, 1),
        ("100GbE", "ethernet", 100, 1),
        ("100GB Ethernet", "ethernet", 100, 1),
        ("Ethernet, 12.5 GB/s", "ethernet", 100, 1),
        ("InfiniBand 50 GBps x8", "ib", 400, 8),
        ("BF3 200Gbps for NS and 2xBF3 400Gbps for EW", "ib", 400, 2),
        ("Storage: 2x BF3 400Gb/s, Compute: 8x BF3 200Gb/s, Management: 100Gb/s", "ib", 200, 8),
        ("4x ConnectX-8 IB XDR 800 Gb/s", "ib", 800, 4),
        ("efa 4x100Gbps", "efa", 100, 4),
        ("ib-400gx8", "ib", 400, 8),
        ("ib-400g*8", "ib", 400, 8),
        ("8xib-400g", "ib", 400, 8),
        ("8*400g-ib", "ib", 400, 8),
        ("efa-v2 32x100Gbps", "efa", 100, 32),
        ("slingshot11 4x200G", "slingshot", 200, 4),
        ("omni-path-100g", "omnipath", 100, 1),
        ("rdma-400g x8", "roce", 400, 8),
        ("roce-1600g", "roce", 200, 8),
        ("1x Cornelis Networks Omni-Path HFI Adapter 100 Series 100Gb/Sec", "omnipath", 100, 1),
        ("2x Mellanox ConnectX-6, 100Gb/s Ethernet", "roce", 100, 2),
        ("1x Ethernet 100Gb/Sec, 8x NVIDIA Quantum-2 CX7 InfiniBand (400Gb/s)", "ib", 400, 8),
        ("TofuD interconnect [68GB/s x2 (in/out)]", "tofud", 326.4, 1),
    ],
)
def test_network_spelling(spelling: str, family: str, gbit_per_s: float, adapters: int) -> None:
    network = parse_network(spelling)
    assert (network.family, network.gbit_per_s, network.adapters) == (family, gbit_per_s, adapters)
    assert network.assumption is None


@given(st.text(max_size=40))
def test_any_network_text_gives_a_network_or_an_assumption(text: str) -> None:
    network = parse_network(text)
    assert network.adapters >= 1
    assert network.gbit_per_s > 0 or network.family == "none" or "0" in text


@pytest.mark.parametrize(
    ("spelling", "device", "name"),
    [
        ("400g", "H100", "ib-400g x8"),
        ("3200g", "H100", "ib-400g x8"),
        ("800g", "H100", "ib-800g x1"),
        ("400g", "T4", "roce-400g x1"),
        ("800g", "MI300X", "roce-800g x1"),
        ("100Gbps", "V100", "ib-100g x4"),
        ("100Gbps", "T4", "ethernet-100g x1"),
        ("25 Gbit", "H100", "ethernet-25g x1"),
        ("504 GB/s", "H100", "ib-4032g x1"),
    ],
)
def test_a_speed_alone_is_of_the_technology_of_the_node_type(spelling: str, device: str, name: str) -> None:
    cluster = get_cluster(device=device, num_devices=16, num_nodes=2, inter_node=spelling)
    assert cluster.inter_node.name == name
    assert any("names no technology" in text for text in cluster.assumptions)


def test_tcp_carries_what_its_streams_do() -> None:
    def gbit_per_s(spelling: str, node_type: str | None = None) -> float:
        cluster = get_cluster(
            device="T4", num_devices=2, num_nodes=2, inter_node=spelling, node_type=node_type
        )
        return cluster.inter_node.bandwidth_bytes_per_s * 8 / GB

    assert [gbit_per_s(f"ethernet-{speed}g") for speed in (1, 10, 25, 100)] == [1, 10, 25, 30]
    assert gbit_per_s("ethernet-400g") == 400
    assert gbit_per_s("ethernet-50g", "g4dn.12xlarge") == 50
    assert gbit_per_s("ethernet-1g", "g4dn.12xlarge") == 1


def _of_node(**links: object) -> float:
    """Gbit/s that a host of eight has in all."""
    return get_cluster(device="A100", num_devices=16, **links).inter_node.bandwidth_bytes_per_s * 8 * 8 / GB  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("network", "gbit_per_s"),
    [
        ("10g-tcp", 10),
        ("25g-tcp", 25),
        ("100g-tcp", 30),
        ("200g-tcp", 30),
        ("100g-tcp 16 sockets", 100),
        ("400g-ib", 400),
        ("8x400g-ib", 3200),
        ("efa-400g", 400),
        ("roce-100g", 100),
        ("tcpx-800g", 800),
        ("gvnic-100g", 80),
        ("ib", 1600),
    ],
)
def test_a_network_is_named_by_what_a_host_has(network: str, gbit_per_s: float) -> None:
    assert _of_node(network=network) == pytest.approx(gbit_per_s)


def test_the_network_of_a_host_is_not_multiplied_by_the_adapters_of_its_node_type() -> None:
    assert _of_node(network="200g-ib", node_type="DGX-A100") == pytest.approx(200)
    assert _of_node(inter_node="ib-hdr-200g", node_type="DGX-A100") == pytest.approx(1600)


def test_what_no_adapter_carries_is_of_several() -> None:
    """One device of a host of eight drives its own adapters only."""
    for network, alone in (("efa-3200g", 400), ("3200g-ib", 400), ("400g-ib", 400)):
        cluster = get_cluster(device="H100", num_devices=2, num_nodes=2, network=network)
        assert cluster.inter_node.bandwidth_bytes_per_s * 8 / GB == pytest.approx(alone)
    assert _of_node(network="1600g-ib") == pytest.approx(1600)


def test_sockets_that_hold_the_adapter_back_are_told() -> None:
    told = get_cluster(device="A100", num_devices=16, network="100g-tcp").assumptions
    assert any("2 TCP sockets" in text and "30 of 100 Gbit/s" in text for text in told)
    plain = get_cluster(device="A100", num_devices=16, network="10g-tcp").assumptions
    assert not any("sockets" in text for text in plain)


def test_a_network_in_two_ways_is_refused() -> None:
    with pytest.raises(ConfigError, match="To fix: give one of them"):
        get_cluster(device="A100", num_devices=16, network="100g-tcp", inter_node="ib")


@pytest.mark.parametrize("spelling", ["pigeons", "?", "fast"])
def test_a_typed_network_that_means_nothing_is_an_error(spelling: str) -> None:
    with pytest.raises(UnknownNameError, match=r"To fix: write technology.*leave inter_node away"):
        get_cluster(device="H100", num_devices=16, num_nodes=2, inter_node=spelling)


@pytest.mark.parametrize("spelling", ["nvlink33", "pcie16", "nvlink9", "10Gb Ethernet", "pigeons"])
def test_a_typed_link_that_means_nothing_is_an_error(spelling: str) -> None:
    with pytest.raises(UnknownNameError, match=r"To fix: write nvlink4.*leave intra_node away"):
        get_cluster(device="H100", num_devices=8, intra_node=spelling)


@pytest.mark.parametrize(
    ("device", "num_devices", "nodes"),
    [("P100", 8, 1), ("P100-PCIE-16GB", 8, 1), ("T4", 8, 1), ("RTX2080Ti", 8, 1), ("RTX2080Ti", 4, 1),
     ("T4", 16, 2), ("RTX4090", 8, 1), ("RTX4090", 16, 2), ("K80", 8, 1), ("P40", 8, 1), ("A6000", 8, 1),
     ("M3 Max", 2, 2), ("RTX 4090 laptop", 2, 2), ("GH200", 8, 8), ("A100-SXM4-80GB", 16, 2)],
)  # fmt: skip
def test_up_to_eight_devices_sit_in_one_host_where_such_hosts_exist(
    device: str, num_devices: int, nodes: int
) -> None:
    assert get_cluster(device=device, num_devices=num_devices).num_nodes == nodes


def test_ten_cards_share_a_host_only_where_the_tree_is_stated() -> None:
    assert get_cluster(device="RTX4090", num_devices=10).num_nodes == 2
    assert get_cluster(device="RTX4090", num_devices=10, intra_node="pcie4").num_nodes == 1


@pytest.mark.parametrize("num_devices", [1, 8, 100])
def test_every_device_has_a_default_cluster_that_says_what_it_assumed(num_devices: int) -> None:
    for device in known_devices():
        cluster = get_cluster(device=device, num_devices=num_devices)
        assert cluster.device is device
        if cluster.num_nodes > 1:
            assert cluster.inter_node.bandwidth_bytes_per_s > 0
            assert any("network between nodes" in text.lower() for text in cluster.assumptions)
        if cluster.devices_per_node > 1:
            assert cluster.intra_node.bandwidth_bytes_per_s > cluster.inter_node.bandwidth_bytes_per_s
            assert any("inside a node" in text.lower() for text in cluster.assumptions)
        if num_devices == 1:
            assert cluster.num_nodes == 1
            assert cluster.assumptions == ()


def test_adapters_are_shared_by_the_devices_of_a_node() -> None:
    full = get_cluster(device="A100-SXM4-80GB", num_devices=16, num_nodes=2, inter_node="ib-hdr-200g x4")
    assert full.inter_node.bandwidth_bytes_per_s == pytest.approx(4 * 25 * GB / 8)
    single = get_cluster(device="A100-SXM4-80GB", num_devices=2, num_nodes=2, inter_node="ib-hdr-200g x8")
    assert single.inter_node.bandwidth_bytes_per_s == pytest.approx(25 * GB)
    rails = get_cluster(device="H100", num_devices=2, num_nodes=2, node_type="p5")
    assert rails.inter_node.bandwidth_bytes_per_s == pytest.approx(4 * 12.5 * GB)


@given(
    devices=st.integers(2, 64),
    gbit=st.sampled_from([1, 10, 25, 100]),
    adapters=st.integers(1, 8),
)
def test_a_faster_or_wider_network_never_gives_less(devices: int, gbit: int, adapters: int) -> None:
    def per_device(speed: int, count: int) -> float:
        cluster = get_cluster(
            device="T4", num_devices=devices, num_nodes=2, inter_node=f"ethernet-{speed}g x{count}"
        )
        return cluster.inter_node.bandwidth_bytes_per_s

    assert per_device(gbit * 2, adapters) >= per_device(gbit, adapters)
    assert per_device(gbit, adapters + 1) >= per_device(gbit, adapters)


def test_bridges_join_two_cards_only() -> None:
    two = get_cluster(device="RTX3090", num_devices=2, intra_node="nvlink3-bridge")
    four = get_cluster(device="RTX3090", num_devices=4, intra_node="nvlink3-bridge")
    assert two.intra_node.name == "nvlink3-bridge"
    assert four.intra_node.name == "pcie4"
    assert any("bridges join 2" in text for text in four.assumptions)


def test_cards_without_peer_access_get_half_of_pcie() -> None:
    geforce = get_cluster(device="RTX4090", num_devices=2).intra_node
    server = get_cluster(device="L40S", num_devices=2).intra_node
    assert geforce.name == server.name == "pcie4"
    assert geforce.bandwidth_bytes_per_s == pytest.approx(server.bandwidth_bytes_per_s / 2)


def test_rack_scale_fabric_counts_as_one_node() -> None:
    rack = get_cluster(device="GB200", num_devices=64, num_nodes=16)
    assert rack.num_nodes == 1
    two = get_cluster(device="GB200", num_devices=144)
    assert two.num_nodes == 2
    assert two.inter_node.bandwidth_bytes_per_s == pytest.approx(50 * GB)
    pod = get_cluster(device="TPUv4", num_devices=512, num_nodes=128)
    assert (pod.num_nodes, pod.intra_node.name) == (1, "ici")


def test_uneven_placement_keeps_a_fraction() -> None:
    cluster = get_cluster(device="T4", num_devices=3, num_nodes=2)
    assert cluster.devices_per_node == pytest.approx(1.5)


def test_node_type_alone_brings_its_device() -> None:
    cluster = get_cluster(node_type="p4d", num_devices=16)
    assert cluster.device.name == "A100-SXM4-40GB"
    assert (cluster.num_nodes, cluster.node_type, cluster.inter_node.name) == (
        2,
        "p4d.24xlarge",
        "efa-100g x4",
    )


def test_nvls_needs_hopper_or_later_behind_switches() -> None:
    assert get_cluster(device="H100", num_devices=8).intra_node.in_network_reduction
    assert not get_cluster(device="A100", num_devices=8).intra_node.in_network_reduction


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"device": "T4", "num_devices": 0}, "num_devices=0"),
        ({"device": "T4", "num_devices": -1}, "num_devices=-1"),
        ({"device": "T4", "num_devices": 1.5}, "num_devices=1.5"),
        ({"device": "T4", "num_devices": float("nan")}, "num_devices=nan"),
        ({"device": "T4", "num_devices": 4, "num_nodes": 0}, "num_nodes=0"),
        ({"device": "T4", "num_devices": 2, "num_nodes": 4}, "num_nodes <= 2"),
        ({"device": "A100", "num_devices": 32, "num_nodes": 2, "node_type": "DGX-A100"}, "num_nodes >= 4"),
        ({"num_devices": 8}, "Neither a device nor a node type"),
    ],
)
def test_impossible_counts_name_value_and_remedy(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigError, match=r"To fix") as caught:
        get_cluster(**arguments)  # type: ignore[arg-type]
    assert words in str(caught.value)


def test_node_type_must_hold_the_device() -> None:
    with pytest.raises(CatalogError, match="DGX-A100 holds A100-SXM4-80GB, not T4"):
        get_cluster(device="T4", num_devices=4, node_type="DGX-A100")
    with pytest.raises(UnknownNameError, match="DGX-A100"):
        get_node_type("DGX-A1000")


def test_node_types_hold_known_devices_and_links() -> None:
    for node in known_node_types():
        cluster = get_cluster(node_type=node.name, num_devices=node.devices * 2, num_nodes=2)
        assert cluster.device == get_device(node.device)
        unknown = [text for text in cluster.assumptions if "not known" in text or "says no speed" in text]
        assert not unknown, node.name


@pytest.mark.parametrize(
    ("system", "device", "name"),
    [
        ("1xXE8545x4A100-SXM-80GB (XE8545x4A100-SXM-80GB)", "A100", "HGX-A100-4"),
        ("NERSC Perlmutter (4x A100, Slingshot-11)", "A100", "Perlmutter"),
        ("4xNVIDIA DGX H100 (dgxh100_n4_preview)", "H100", "DGX-H100"),
        ("p6-b200.48xlarge", "B200", "p6-b200.48xlarge"),
        ("TPU v3-8192", "TPUv3", "TPUv3-pod"),
        ("10xNVIDIA DGX-2H", "V100-SXM3-32GB", "DGX-2H"),
        ("130xDGX-1 with V100", "V100", "DGX-1"),
        ("gaudi-8 (HLS-Gaudi2-PT)", "Gaudi2", "HLS-Gaudi2"),
    ],
)
def test_system_descriptions(system: str, device: str, name: str) -> None:
    found = find_node_type(system, device=get_device(device))
    assert found is not None
    assert found.name == name


def test_system_description_with_another_device_finds_nothing() -> None:
    assert find_node_type("DGX-A100", device=get_device("T4")) is None
    assert find_node_type("somebody's desk") is None


@pytest.mark.parametrize(
    ("device", "devices", "words"),
    [
        ("TPUv4", 64, "16 hosts of one fabric"),
        ("TPUv4", 4, "1 node"),
        ("GB200", 144, "36 hosts in 2 fabrics"),
        ("H100-SXM5-80GB", 16, "2 nodes"),
    ],
)
def test_hosts_are_named_where_a_fabric_spans_several(device: str, devices: int, words: str) -> None:
    """A TPU v4 host has four chips, and a tray of an NVL72 four GPUs."""
    cluster = get_cluster(device=device, num_devices=devices)
    assert nodes_in_words(cluster.num_nodes, cluster.assumptions) == words
