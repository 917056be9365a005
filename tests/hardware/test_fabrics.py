"""How nodes are wired: by node type, by spelling, by a file of one's own; slices of tori."""

from __future__ import annotations

from math import prod
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.cli.catalogs import devices
from precision_time.errors import CatalogError, ConfigError
from precision_time.hardware.catalog import get_cluster, known_node_types, parse_network
from precision_time.hardware.device import Fabric
from precision_time.hardware.fabrics import slice_shape, split_network, torus_fabric

PODS = ["TPUv2-pod", "TPUv3-pod", "TPUv4-pod", "TPUv5e-pod", "TPUv5p-pod", "TPUv6e-pod", "TPU7x-pod"]


@pytest.mark.parametrize(
    ("node_type", "topology", "pod_nodes", "oversubscription"),
    [
        ("DGX-A100", "rail-optimized", 20, 1.0),
        ("DGX-H100", "rail-optimized", 32, 1.0),
        ("GB200-NVL72", "rail-optimized", 8, 1.0),
        ("Grand-Teton", "fat-tree", 384, 7.0),
        ("ABCI", "fat-tree", 34, 3.0),
        ("Frontier", "dragonfly", 128, 1.75),
        ("p5.48xlarge", "fat-tree", 0, 1.0),
        ("BM.GPU.H100.8", "fat-tree", 0, 1.0),
        ("HLS-Gaudi2", "fat-tree", 0, 1.0),
        ("g4dn.metal", "flat", 0, 1.0),
    ],
)
def test_wiring_of_node_types(node_type: str, topology: str, pod_nodes: int, oversubscription: float) -> None:
    fabric = get_cluster(node_type=node_type, num_devices=16).fabric
    assert fabric == Fabric(topology=topology, pod_nodes=pod_nodes, oversubscription=oversubscription)


def test_every_wiring_has_a_source_and_is_possible() -> None:
    for node in known_node_types():
        assert node.fabric_source, node.name
        assert node.fabric.oversubscription >= 1.0
        assert node.fabric.oversubscription == 1.0 or node.fabric.pod_nodes > 1


@pytest.mark.parametrize(
    ("spelling", "name", "wiring"),
    [
        ("ib-ndr-400g x8 2:1", "ib-400g x8", ("rail-optimized", 32, 2.0)),
        ("ib-ndr-400g x8, 2.5:1 oversubscribed, pods of 16 nodes", "ib-400g x8", ("rail-optimized", 16, 2.5)),
        ("ib-ndr-400g x8 fat-tree", "ib-400g x8", ("fat-tree", 32, 1.0)),
        ("fat tree ib-ndr-400g x8 pod 8 4:1", "ib-400g x8", ("fat-tree", 8, 4.0)),
        ("rail-optimized ib-ndr-400g x8", "ib-400g x8", ("rail-optimized", 32, 1.0)),
        ("roce-400g x8 3:1", "roce-400g x8", ("fat-tree", 32, 3.0)),
        ("slingshot11 4x200G", "slingshot-200g x4", ("dragonfly", 0, 1.0)),
        ("ethernet-50g", "ethernet-50g x1", ("flat", 0, 1.0)),
    ],
)
def test_wiring_as_people_write_it(spelling: str, name: str, wiring: tuple[str, int, float]) -> None:
    cluster = get_cluster(device="H100", num_devices=1024, inter_node=spelling)
    assert cluster.inter_node.name == name
    topology, pod_nodes, oversubscription = wiring
    assert cluster.fabric == Fabric(topology=topology, pod_nodes=pod_nodes, oversubscription=oversubscription)
    assert (
        cluster.inter_node
        == get_cluster(device="H100", num_devices=1024, inter_node=split_network(spelling)[0]).inter_node
    )


def test_a_stated_ratio_replaces_the_usual_one_and_a_usual_one_is_said() -> None:
    stated = get_cluster(node_type="Grand-Teton", num_devices=8192, inter_node="rdma-400g x8 1:1")
    assert stated.fabric.oversubscription == 1.0
    usual = get_cluster(node_type="Grand-Teton", num_devices=8192)
    assert any("7:1 beyond 384 nodes" in text for text in usual.assumptions)
    inside = get_cluster(node_type="Grand-Teton", num_devices=1024)
    assert not any("7:1" in text for text in inside.assumptions)


def test_pods_that_nobody_states_are_assumed_in_words() -> None:
    cluster = get_cluster(device="H100", num_devices=1024, inter_node="roce-400g x8 2:1")
    assert any("pods of 32 nodes assumed" in text for text in cluster.assumptions)


@pytest.mark.parametrize("spelling", ["ib-hdr-200g 0.5:1", "ib-hdr-200g 2:1 pods of 0"])
def test_impossible_wiring_is_refused(spelling: str) -> None:
    with pytest.raises(ConfigError, match="To fix"):
        get_cluster(device="A100", num_devices=16, inter_node=spelling)


@given(st.text(max_size=40))
def test_text_that_says_nothing_of_wiring_stays_as_it_is(text: str) -> None:
    try:
        words, stated = split_network(text)
    except ConfigError:
        return
    assert words == text or (stated.topology, stated.pod_nodes, stated.oversubscription) != (None, None, None)
    assert parse_network(text) == parse_network(words)


@pytest.mark.parametrize(
    ("pod", "devices", "shape"),
    [
        ("TPUv2-pod", 256, (16, 16)),
        ("TPUv3-pod", 1024, (32, 32)),
        ("TPUv3-pod", 4096, (32, 128)),
        ("TPUv5e-pod", 8, (2, 4)),
        ("TPUv5e-pod", 128, (8, 16)),
        ("TPUv6e-pod", 256, (16, 16)),
        ("TPUv4-pod", 32, (2, 4, 4)),
        ("TPUv4-pod", 128, (4, 4, 8)),
        ("TPUv4-pod", 1024, (8, 8, 16)),
        ("TPUv4-pod", 4096, (16, 16, 16)),
        ("TPUv5p-pod", 2048, (8, 16, 16)),
        ("TPUv5p-pod", 6144, (16, 16, 24)),
        ("TPU7x-pod", 9216, (16, 24, 24)),
    ],
)
def test_slices_have_the_shapes_of_the_documentation(pod: str, devices: int, shape: tuple[int, ...]) -> None:
    assert slice_shape(pod, devices) == shape


@given(pod=st.sampled_from(PODS), devices=st.integers(1, 9216))
def test_every_slice_holds_its_devices(pod: str, devices: int) -> None:
    fabric = torus_fabric(pod, devices)
    assert fabric is not None
    assert prod(fabric.torus) == devices
    assert len(fabric.wraps) == len(fabric.torus)


def test_sides_close_to_rings_only_where_the_hardware_does() -> None:
    def wraps(pod: str, devices: int) -> tuple[bool, ...]:
        fabric = torus_fabric(pod, devices)
        assert fabric is not None
        return fabric.wraps

    assert wraps("TPUv4-pod", 64) == (True, True, True)
    assert wraps("TPUv4-pod", 32) == (False, False, False)
    assert wraps("TPUv5e-pod", 128) == (False, True)
    assert wraps("TPUv3-pod", 4096) == (True, False)


def test_pods_beyond_one_meet_over_the_data_centre_network() -> None:
    cluster = get_cluster(device="TPUv5e", num_devices=1024)
    assert (cluster.num_nodes, cluster.fabric.torus, cluster.fabric.topology) == (4, (16, 16), "torus-2d")
    assert any("slice of 16x16" in text for text in cluster.assumptions)


def test_a_stated_shape_is_taken_where_it_holds_the_devices() -> None:
    stated = get_cluster(device="TPUv4", num_devices=128, intra_node="ici 2x4x16")
    assert stated.fabric.torus == (2, 4, 16)
    assert not any("slice" in text for text in stated.assumptions)
    assert get_cluster(device="TPUv4", num_devices=128, intra_node="ici 8x8x8").fabric.torus == (4, 4, 8)


def test_no_torus_where_devices_sit_behind_other_links() -> None:
    assert get_cluster(device="TPUv4", num_devices=4, intra_node="pcie4").fabric.torus == ()
    assert get_cluster(device="H100", num_devices=64).fabric.torus == ()


FILE = """
[link.mesh]
gb_per_s = 100
latency_us = 1

[node.box]
device = "TPUv5e"
devices = 16
intra_node = "mesh"
inter_node = "roce-400g x4"
topology = "fat-tree"
pod_nodes = 4
oversubscription = 3
torus = [4, 4]
"""


def test_a_file_of_ones_own_states_its_wiring(tmp_path: Path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(FILE)
    cluster = get_cluster(node_type="box", num_devices=128, custom=path)
    assert cluster.fabric == Fabric(topology="fat-tree", pod_nodes=4, oversubscription=3.0, torus=(4, 4))
    uneven = get_cluster(node_type="box", num_devices=8, custom=path)
    assert uneven.fabric.torus == ()
    assert any("torus 4x4 of box not used" in text for text in uneven.assumptions)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("oversubscription = 0.5", "oversubscription"),
        ('topology = "ring"', "topology"),
        ("torus = [0, 4]", "torus"),
        ("oversubscription = 2", "pod_nodes"),
    ],
)
def test_impossible_wiring_in_a_file_names_the_field(tmp_path: Path, line: str, words: str) -> None:
    path = tmp_path / "own.toml"
    path.write_text(f'[node.box]\ndevice = "T4"\ndevices = 4\n{line}\n')
    with pytest.raises(CatalogError, match=words):
        get_cluster(node_type="box", num_devices=8, custom=path)


def test_node_types_are_listed_with_their_wiring(capsys: pytest.CaptureFixture[str]) -> None:
    devices(node_types=True)
    listed = capsys.readouterr().out
    assert "fat-tree, 7:1 past 384" in listed
    assert "torus-3d" in listed
