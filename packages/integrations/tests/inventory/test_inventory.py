"""Clusters out of inventory files, Slurm's listings, Ray's node list and this machine."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import CatalogError, ConfigError, MissingExtraError
from precision_time.hardware.clusters import get_cluster
from precision_time_integrations.inventory.file import read_inventory
from precision_time_integrations.inventory.local import collect_local
from precision_time_integrations.inventory.mapping import map_device
from precision_time_integrations.inventory.ray import collect_ray, read_ray_nodes
from precision_time_integrations.inventory.slurm import expand_hostlist, gpus_of_gres, read_slurm

# Written by hand after the manual page of scontrol: two usable nodes, one drained, one without GPUs.
SCONTROL = """\
NodeName=gpu01 Arch=x86_64 CoresPerSocket=64
   CPUAlloc=0 CPUEfctv=256 CPUTot=256 CPULoad=0.05
   AvailableFeatures=a100,ib
   ActiveFeatures=a100,ib
   Gres=gpu:a100:8(S:0-1)
   NodeAddr=gpu01 NodeHostName=gpu01 Version=23.02.4
   OS=Linux 5.14.0-362.el9.x86_64 #1 SMP PREEMPT_DYNAMIC
   RealMemory=1031000 AllocMem=0 FreeMem=990123 Sockets=2 Boards=1
   State=IDLE ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=gpu
   CfgTRES=cpu=256,mem=1031000M,billing=256,gres/gpu=8

NodeName=gpu02 Arch=x86_64 CoresPerSocket=64
   CPUAlloc=256 CPUTot=256 Gres=gpu:a100:8(S:0-1)
   RealMemory=1031000 State=ALLOCATED ThreadsPerCore=2 Partitions=gpu

NodeName=gpu03 Arch=x86_64 CPUTot=256 Gres=gpu:a100:8(S:0-1) RealMemory=1031000
   State=IDLE+DRAIN ThreadsPerCore=2 Partitions=gpu Reason=broken fan [admin@2024-03-01T10:00:00]

NodeName=login1 Arch=x86_64 CPUTot=32 Gres=(null) RealMemory=128000 State=IDLE Partitions=login
"""
SINFO = """\
NODELIST GRES CPUS MEMORY AVAIL_FEATURES STATE
v100-01 gpu:tesla_v100-sxm2-32gb:4(S:0-1) 40 385000 v100 idle
v100-01 gpu:tesla_v100-sxm2-32gb:4(S:0-1) 40 385000 v100 idle
v100-02 gpu:tesla_v100-sxm2-32gb:4(S:0-1) 40 385000 v100 mix
v100-03 gpu:tesla_v100-sxm2-32gb:4(S:0-1) 40 385000 v100 down*
"""
RAY = [
    {
        "NodeID": "a" * 56, "Alive": True, "NodeManagerAddress": "10.0.0.1", "NodeManagerHostname": "ray-1",
        "Resources": {"CPU": 96.0, "GPU": 8.0, "memory": 8e11, "accelerator_type:H100": 1.0, "node:a": 1.0},
    },
    {
        "NodeID": "b" * 56, "Alive": True, "NodeManagerAddress": "10.0.0.2", "NodeManagerHostname": "ray-2",
        "Resources": {"CPU": 96.0, "GPU": 8.0, "memory": 8e11, "accelerator_type:H100": 1.0},
    },
    {"NodeID": "c" * 56, "Alive": False, "NodeManagerHostname": "ray-3", "Resources": {}},
]  # fmt: skip


def test_scontrol_gives_usable_nodes_and_says_which_were_left_out() -> None:
    found = read_slurm(SCONTROL)
    assert [node.name for node in found.nodes] == ["gpu01", "gpu02", "login1"]
    assert found.num_devices == 16
    assert found.nodes[0].cores == 256
    assert found.nodes[0].memory_bytes == 1031000 * 2**20
    assert any("gpu03" in note and "drain" in note for note in found.notes)
    assert any("A100-SXM4-80GB" in note and "2 nodes" in note for note in found.notes)
    cluster = found.cluster()
    assert (cluster.num_nodes, cluster.num_devices) == (2, 16)
    assert cluster.device.name == "A100-SXM4-80GB"


def test_one_line_records_read_the_same() -> None:
    records = [" ".join(record.split()) for record in SCONTROL.split("\n\n")]
    assert read_slurm("\n".join(records)).nodes == read_slurm(SCONTROL).nodes


def test_sinfo_counts_a_node_of_two_partitions_once() -> None:
    found = read_slurm(SINFO)
    assert [node.name for node in found.nodes] == ["v100-01", "v100-02"]
    assert found.cluster().device.name == "V100-SXM2-32GB"
    assert found.cluster().devices_per_node == 4
    assert any("v100-03" in note for note in found.notes)


def test_sinfo_of_node_groups_is_expanded() -> None:
    table = (
        "PARTITION NODES STATE GRES NODELIST\ngpu* 3 idle gpu:h100:4 n[07-09]\ngpu* 1 idle~ gpu:h100:4 n11\n"
    )
    assert [node.name for node in read_slurm(table).nodes] == ["n07", "n08", "n09", "n11"]


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "scontrol show node"),
        ("PARTITION AVAIL TIMELIMIT NODES STATE NODELIST\ngpu up 1-00:00:00 2 idle n[1-2]\n", "GRES"),
        ("NODELIST GRES STATE\nn1 gpu:a100:8\n", "Line 2"),
        ("NODELIST GRES STATE\nn[01-0 gpu:a100:8 idle\n", "cut off"),
        ("NodeName=n1 Gres=gpu:a100:8\n", "no State"),
    ],
)
def test_broken_listings_are_named(text: str, named: str) -> None:
    with pytest.raises(CatalogError, match=named) as caught:
        read_slurm(text)
    assert "To fix" in str(caught.value)


@pytest.mark.parametrize(
    ("gres", "expected"),
    [
        ("(null)", {}),
        ("gpu:8", {"": 8}),
        ("gpu", {"": 1}),
        ("gpu:a100", {"a100": 1}),
        ("gpu:tesla:2(S:0-1),gpu:kepler:2(S:2,3),mps:400", {"tesla": 2, "kepler": 2}),
    ],
)
def test_generic_resources(gres: str, expected: dict[str, int]) -> None:
    assert gpus_of_gres(gres) == expected


def test_untyped_gpus_are_named_by_a_feature_or_reported() -> None:
    table = "NODELIST GRES AVAIL_FEATURES STATE\nn1 gpu:4 skylake,v100,ib idle\n"
    found = read_slurm(table)
    assert found.cluster().device.name == "V100-SXM2-16GB"
    assert any("feature 'v100'" in note for note in found.notes)
    nameless = read_slurm("NODELIST GRES STATE\nn1 gpu:4 idle\n")
    with pytest.raises(CatalogError, match="no name"):
        nameless.cluster()


def test_slices_and_unknown_devices_are_said_and_refused() -> None:
    found = read_slurm("NODELIST GRES STATE\nn1 gpu:a100_1g.10gb:4 idle\nn2 gpu:warp9000:1 idle\n")
    assert found.unmapped == ("a100_1g.10gb", "warp9000")
    with pytest.raises(CatalogError, match="warp9000.*To fix"):
        found.cluster()


def test_ray_nodes() -> None:
    found = read_ray_nodes(RAY)
    cluster = found.cluster()
    assert (cluster.num_nodes, cluster.num_devices, cluster.device.name) == (2, 16, "H100-SXM5-80GB")
    assert any("ray-3" in note for note in found.notes)
    with pytest.raises(CatalogError, match="Entry 1"):
        read_ray_nodes([{"Alive": True}])


def test_ray_is_asked_for_only_when_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match="ray"):
        collect_ray()


def test_this_machine_has_one_node() -> None:
    found = collect_local()
    assert len(found.nodes) == 1
    assert found.nodes[0].cores
    assert found.nodes[0].num_devices >= 1


def test_inventory_file(tmp_path: Path) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(
        "nodes:\n"
        "  - {name: 'gpu[01-03]', device: A100, device_memory_gib: 40, devices: 8, clock_ghz: 2.45}\n"
        "  - {device: A100-SXM4-40GB, devices: 4, count: 2, memory_gib: 512}\n"
        "inter_node: ib-hdr-200g x8\n"
    )
    found = read_inventory(path)
    assert [node.name for node in found.nodes] == ["gpu01", "gpu02", "gpu03", "entry 2 1", "entry 2 2"]
    assert found.nodes[0].clock_hz == 2.45e9
    cluster = found.cluster()
    assert (cluster.num_devices, cluster.num_nodes) == (32, 5)
    assert cluster.device.name == "A100-SXM4-40GB"
    assert cluster.inter_node.name == "ib-200g x8"


ALIASES = "\n".join(
    ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)), "nodes: *a8"]
)
"""A few hundred bytes that stand for 43 million values."""


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("nodes: [{device: A100, devices: -1}]", "nodes.0.devices"),
        ("nodes: [{device: A100, gpus: 4}]", "gpus"),
        ("nodes: [{device: A100, name: 'a[1-2]', count: 3}]", "count"),
        ("cluster: x", "nodes"),
        ("- 1\n- 2", "file"),
        ("nodes: [", "YAML"),
        ("nodes: [{device: A100, name: 'n[1-1000][1-1000][1-1000]'}]", "more than 200,000 hosts"),
        ("nodes: [{device: A100, name: 'n[1-99999999999999999999999]'}]", "not a range of numbers"),
        ("nodes: [{device: A100, count: 1000000}]", "nodes.0.count"),
        (ALIASES, "aliases"),
        ("nodes: \x1b[31m", "YAML"),
    ],
)
def test_broken_inventories_name_the_field(tmp_path: Path, text: str, named: str) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(text)
    with pytest.raises(CatalogError, match=named):
        read_inventory(path)


def test_more_nodes_than_any_cluster_has_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("precision_time_integrations.inventory.mapping.MOST_NODES", 5)
    path = tmp_path / "lab.yaml"
    path.write_text("nodes: [{device: A100, count: 3}, {device: A100, count: 3}]")
    with pytest.raises(CatalogError, match="more than 5 nodes"):
        read_inventory(path)


def test_counts_beyond_any_cluster_are_refused() -> None:
    with pytest.raises(ConfigError, match="num_devices=9000000000000 is not a count"):
        get_cluster(device="A100-SXM4-80GB", num_devices=9 * 10**12)
    with pytest.raises(CatalogError, match="too many devices"):
        gpus_of_gres("gpu:a100:" + "9" * 5000)


@pytest.mark.parametrize("text", ["nodes: []", "nodes: [{device: A100, devices: 0}]"])
def test_a_cluster_of_nothing_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="has (no node|1 nodes without a device)"):
        read_inventory(path).cluster()


def test_own_devices_come_first(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[device.warp9000]\nbase = "A100-SXM4-80GB"\nmemory_gb_per_s = 9000\n')
    path = tmp_path / "lab.yaml"
    path.write_text("nodes: [{device: warp9000, devices: 2}]\ncustom: own.toml\n")
    assert read_inventory(path).cluster().device.memory_bandwidth_bytes_per_s == 9e12


@pytest.mark.parametrize(
    ("reported", "memory_gib", "expected"),
    [
        ("NVIDIA A100-SXM4-40GB", None, "A100-SXM4-40GB"),
        ("nvidia_a100_80gb_pcie", None, "A100-PCIE-80GB"),
        ("nvidia_h100_80gb_hbm3", 79.6, "H100-SXM5-80GB"),
        ("A100", 39.4, "A100-SXM4-40GB"),
        ("V100", 31.7, "V100-SXM2-32GB"),
        ("Intel(R) Xeon(R) Platinum 8480+", None, "CPU-Xeon-Platinum-8480+"),
    ],
)
def test_names_of_drivers_and_memory_tell_variants_apart(
    reported: str, memory_gib: float | None, expected: str
) -> None:
    assert map_device(reported, None if memory_gib is None else memory_gib * 2**30)[0] == expected


def test_an_exact_name_with_other_memory_is_kept_and_said() -> None:
    name, note = map_device("A100-SXM4-80GB", 40 * 2**30)
    assert name == "A100-SXM4-80GB"
    assert note is not None
    assert "40 GiB" in note


@given(st.text(max_size=40))
def test_any_text_is_a_host_list_or_a_clear_error(text: str) -> None:
    try:
        assert all(isinstance(host, str) for host in expand_hostlist(text))
    except CatalogError as error:
        assert "To fix" in str(error)


@given(st.text(max_size=200))
def test_any_text_is_a_listing_or_a_clear_error(text: str) -> None:
    with pytest.raises(CatalogError, match="To fix"):
        read_slurm(text)
