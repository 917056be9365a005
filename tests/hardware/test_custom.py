"""Users' own hardware files: what they say arrives, and what breaks a rule is named."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.errors import CatalogError, UnknownNameError
from precision_time.hardware.catalog import get_cluster, get_device, load_custom
from precision_time.hardware.device import Link
from precision_time.hardware.device_table import known_device_names
from precision_time.planning.energy.power import host_power_w, log_power_spread
from precision_time.predict.api import predict_time

TOML = """
[device.MyGPU]
base = "A100-SXM4-80GB"
memory_gb_per_s = 2500
tflops = { bf16 = 400 }

[device.FromNothing]
memory_gib = 16
memory_gb_per_s = 500
tflops = { fp32 = 20, fp16 = 80 }
sm_count = 40
boost_mhz = 1500
tdp_w = 200

[link.mynet]
gb_per_s = 40
latency_us = 3

[node.mynode]
device = "MyGPU"
devices = 4
intra_node = "nvlink3"
inter_node = "mynet"
"""

YAML = """
device:
  MyGPU: {base: A100-SXM4-80GB, memory_gb_per_s: 2500, tflops: {bf16: 400}}
  FromNothing: {memory_gib: 16, memory_gb_per_s: 500, tflops: {fp32: 20, fp16: 80},
                sm_count: 40, boost_mhz: 1500, tdp_w: 200}
link:
  mynet: {gb_per_s: 40, latency_us: 3}
node:
  mynode: {device: MyGPU, devices: 4, intra_node: nvlink3, inter_node: mynet}
"""


@pytest.fixture(params=["toml", "yaml"])
def hardware_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"mine.{request.param}"
    path.write_text(TOML if request.param == "toml" else YAML, encoding="utf-8")
    return path


def test_device_takes_the_rest_from_its_base(hardware_file: Path) -> None:
    device = load_custom(hardware_file).find_device("mygpu")
    assert device is not None
    base = get_device("A100-SXM4-80GB")
    assert device.memory_bandwidth_bytes_per_s == pytest.approx(2.5e12)
    assert device.peak_flops_per_s["bf16"] == pytest.approx(400e12)
    assert device.peak_flops_per_s["fp32"] == base.peak_flops_per_s["fp32"]
    assert device.memory_bytes == base.memory_bytes
    assert hardware_file.name in device.sources["memory_bandwidth_bytes_per_s"]


def test_device_without_base(hardware_file: Path) -> None:
    device = load_custom(hardware_file).find_device("FromNothing")
    assert device is not None
    assert device.memory_bytes == 16 * 2**30
    assert device.peak_flops_per_s == {"fp32": 20e12, "fp16": 80e12}
    assert device.tdp_w == 200


def test_cluster_of_the_file(hardware_file: Path) -> None:
    cluster = get_cluster(device="MyGPU", num_devices=8, custom=hardware_file)
    assert (cluster.node_type, cluster.num_nodes, cluster.devices_per_node) == ("mynode", 2, 4)
    assert cluster.inter_node.name == "mynet"
    assert cluster.inter_node.bandwidth_bytes_per_s == pytest.approx(40e9)
    assert cluster.intra_node.bandwidth_bytes_per_s == pytest.approx(300e9)
    named = get_cluster(node_type="mynode", num_devices=4, custom=hardware_file)
    assert named.device.name == "MyGPU"


def test_catalog_still_answers_beside_the_file(hardware_file: Path) -> None:
    cluster = get_cluster(device="T4", num_devices=4, inter_node="mynet", custom=hardware_file)
    assert cluster.device.name == "T4"
    assert cluster.inter_node.name == "mynet"


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    for gb_per_s in (10, 20):
        path.write_text(f"[link.wire]\ngb_per_s = {gb_per_s}\n")
        import os

        os.utime(path, ns=(gb_per_s, gb_per_s))
        assert load_custom(path).links["wire"].per_device_bytes_per_s == pytest.approx(gb_per_s * 1e9)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("[device.X]\nbase = 'T4'\nmemory_gib = -1\n", ["device.X.memory_gib", "greater than 0", "-1"]),
        ("[device.X]\nbase = 'T4'\nmemmory_gib = 1\n", ["device.X.memmory_gib", "not permitted"]),
        ("[device.X]\nbase = 'T4'\ntflops = { fp7 = 1 }\n", ["device.X.tflops", "fp7"]),
        ("[device.X]\nbase = 'T4'\ntdp_w = inf\n", ["device.X.tdp_w"]),
        ("[device.X]\nmemory_gib = 8\n", ["'X'", "lacks", "memory_gb_per_s", "base"]),
        ("[node.N]\ndevice = 'T4'\ndevices = 0\n", ["node.N.devices", "0"]),
        ("[node.N]\ndevices = 2\n", ["node.N.device", "required"]),
        ("[link.L]\ngb_per_s_per_node = 1\ngb_per_s = 2\n", ["link.L", "gb_per_s_per_node and gb_per_s"]),
        ("[link.L]\nlatency_us = 1\n", ["link.L", "gbit_per_s_per_node", "got none"]),
        ("[link.L]\ngb_per_s_per_node = 1\nkind = 'pigeon'\n", ["link.L.kind", "pigeon", "roce"]),
        ("device = 3\n", ["device", "3"]),
        ("[device.X\n", ["mine.toml", "not readable"]),
        ("\x00\x01", ["mine.toml", "not readable"]),
    ],
)
def test_broken_rule_names_field_rule_and_file(tmp_path: Path, content: str, words: list[str]) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(content)
    with pytest.raises(CatalogError, match="To fix") as caught:
        load_custom(path)
    for word in [*words, "mine.toml"]:
        assert word in str(caught.value)


def test_unknown_base_and_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[device.X]\nbase = 'A9000'\n")
    with pytest.raises(UnknownNameError, match="A9000"):
        load_custom(path)
    with pytest.raises(CatalogError, match="cannot be read"):
        load_custom(tmp_path / "absent.toml")


@pytest.mark.parametrize(
    ("named", "stated"),
    [
        ("inter_node", "ethernet-100g"),
        ("network", "100g-tcp"),
        ("network", "wire"),
        ("inter_node", "wire"),
        ("network", "bytes"),
    ],
)
def test_a_stated_network_has_one_time_in_every_spelling(tmp_path: Path, named: str, stated: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "[link.wire]\nkind = 'tcp'\ngbit_per_s_per_node = 100\n"
        "[link.bytes]\nkind = 'ethernet'\ngb_per_s_per_node = 12.5\n"
    )
    job = {"device": "A100-SXM4-80GB", "gpus": 16, "batch_size": 8, "seq_len": 512, "zero_stage": 3}
    usual = predict_time("gpt2", **job, inter_node="ethernet-100g")
    found = predict_time("gpt2", **job, **{named: stated}, custom=path)
    assert found.step_time_s == pytest.approx(usual.step_time_s, rel=1e-9)
    assert found.interval.high_s == pytest.approx(usual.interval.high_s, rel=1e-9)


def test_the_figure_of_a_link_says_of_what_it_is(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "[link.shared]\ngb_per_s_per_node = 40\n[link.own]\ngb_per_s_per_device = 40\n"
        "[link.old]\ngb_per_s = 40\n[link.lanes]\nkind = 'pcie4'\ngb_per_s_per_device = 20\n"
    )

    def link(name: str) -> Link:
        return get_cluster(device="A100", num_devices=16, network=name, custom=path).inter_node

    assert link("shared").bandwidth_bytes_per_s == pytest.approx(5e9)
    assert link("own").bandwidth_bytes_per_s == link("old").bandwidth_bytes_per_s == pytest.approx(40e9)
    old = get_cluster(device="A100", num_devices=16, network="old", custom=path)
    assert any("gb_per_s_per_device" in text for text in old.assumptions)
    inside = get_cluster(device="A100", num_devices=8, intra_node="lanes", custom=path).intra_node
    assert (inside.kind, inside.latency_s) == ("pcie4", pytest.approx(1e-6))


@given(content=st.binary(max_size=60), suffix=st.sampled_from([".toml", ".yaml"]))
def test_any_bytes_are_a_file_or_a_clear_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, suffix: str
) -> None:
    path = tmp_path_factory.mktemp("fuzz") / f"mine{suffix}"
    path.write_bytes(content)
    try:
        load_custom(path)
    except CatalogError as error:
        assert path.name in str(error)


@pytest.mark.parametrize("spelling", ["rail-optimized", "rail-optimised"])
def test_both_spellings_of_a_topology_are_read(tmp_path: Path, spelling: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(TOML + f'topology = "{spelling}"\npod_nodes = 16\n', encoding="utf-8")
    cluster = get_cluster(node_type="mynode", num_devices=64, custom=path)
    assert cluster.fabric.topology == "rail-optimized"


def _only_base(name: str) -> dict[str, object]:
    """A custom device that states nothing but what it is based on."""
    return {"device": "mine", "custom": {"device": {"mine": {"base": name}}}}


COUNTS = (1, 2, 8, 16, 64)


@pytest.mark.parametrize(
    "stated", [{}, {"network": "ethernet-25g"}, {"network": "100g-tcp"}, {"intra_node": "pcie4"}], ids=str
)
def test_a_device_that_states_only_its_base_has_its_host_and_links(stated: dict[str, str]) -> None:
    for name in known_device_names():
        for count in COUNTS:
            like = get_cluster(device=name, num_devices=count, **stated)
            mine = get_cluster(num_devices=count, **_only_base(name), **stated)  # type: ignore[arg-type]
            same = replace(mine, device=like.device, reference=None, assumptions=like.assumptions)
            assert same == like, (name, count)
            assert replace(mine.device, name=like.device.name, base="") == like.device
            assert mine.reference is not None
            assert replace(mine.reference, assumptions=like.assumptions) == like


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", known_device_names())
def test_a_device_that_states_only_its_base_trains_as_fast(name: str) -> None:
    for count in COUNTS:
        job = {"model": "resnet50", "gpus": count, "batch_size": 32}
        like = predict_time(device=name, **job)  # type: ignore[arg-type]
        mine = predict_time(**_only_base(name), **job)  # type: ignore[arg-type]
        assert mine.step_time_s == pytest.approx(like.step_time_s, rel=1e-9)
        assert mine.memory_bytes_per_device == pytest.approx(like.memory_bytes_per_device, rel=1e-9)


def test_nodes_of_a_device_with_a_base_are_as_large_as_those_of_the_base() -> None:
    for name in ("T4", "H200", "RTX5090-Laptop", "TPUv4"):
        like = predict_time(model="resnet50", device=name, nodes=2)
        assert predict_time(model="resnet50", nodes=2, **_only_base(name)).gpus == like.gpus  # type: ignore[arg-type]


def test_a_device_that_states_another_link_than_its_base_has_no_place_in_its_host() -> None:
    custom = {"device": {"mine": {"base": "H100-SXM5", "link_gb_per_s": 0}}}
    assert get_cluster(device="mine", num_devices=8, custom=custom).intra_node.name.startswith("pcie")


def test_power_and_host_of_a_device_with_a_base_are_those_of_the_base() -> None:
    mine = get_cluster(num_devices=8, **_only_base("H100-SXM5")).device  # type: ignore[arg-type]
    like = get_device("H100-SXM5")
    assert host_power_w(mine) == host_power_w(like)
    assert log_power_spread(mine) == log_power_spread(like)
