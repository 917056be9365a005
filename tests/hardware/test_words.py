"""Cluster words in `device`: counts and hosts are understood, contradictions refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_time.diagnostics import Diagnostics
from precision_time.errors import ConfigError, UnknownNameError
from precision_time.hardware.device import Cluster
from precision_time.request.request import Request
from precision_time.request.resolve import cluster_of


def _cluster(**fields: object) -> Cluster:
    return cluster_of(Request.of({"model": "resnet50", **fields}), Diagnostics())


@pytest.mark.parametrize(
    ("fields", "device", "count", "nodes", "node_type"),
    [
        ({"device": "8xA100"}, "A100-SXM4-80GB", 8, 1, "DGX-A100"),
        ({"device": "8 A100s"}, "A100-SXM4-80GB", 8, 1, "DGX-A100"),
        ({"device": "A100 x 8"}, "A100-SXM4-80GB", 8, 1, "DGX-A100"),
        ({"device": "gpu_8x_h100_sxm5"}, "H100-SXM5-80GB", 8, 1, "DGX-H100"),
        ({"device": "2x8xH100"}, "H100-SXM5-80GB", 16, 2, "DGX-H100"),
        ({"device": "4090 x 2"}, "RTX4090", 2, 1, "workstation"),
        ({"device": "Kaggle T4 x2"}, "T4", 2, 1, "PCIe-server-4"),
        ({"device": "VR200-NVL72"}, "VR200", 72, 1, "VR200-NVL72"),
        ({"device": "gb200-nvl72"}, "GB200", 72, 1, "DGX-GB200"),
        ({"device": "8x4090"}, "RTX4090", 8, 1, "GPU-server-8"),
        ({"device": "p4d.24xlarge", "gpus": 32}, "A100-SXM4-40GB", 32, 4, "p4d.24xlarge"),
        ({"device": "p5.48xlarge"}, "H100-SXM5-80GB", 8, 1, "p5.48xlarge"),
        ({"device": "a3-megagpu-8g", "nodes": 4}, "H100-SXM5-80GB", 32, 4, "a3-megagpu-8g"),
        ({"device": "Standard_ND96isr_H100_v5"}, "H100-SXM5-80GB", 8, 1, "ND96isr_H100_v5"),
        ({"device": "2xml.p4d.24xlarge"}, "A100-SXM4-40GB", 16, 2, "p4d.24xlarge"),
        ({"device": "dgx-h100", "gpus": "16"}, "H100-SXM5-80GB", 16, 2, "DGX-H100"),
        ({"device": "4x dgx-h100"}, "H100-SXM5-80GB", 32, 4, "DGX-H100"),
        ({"device": "A100", "nodes": 2}, "A100-SXM4-80GB", 16, 2, "DGX-A100"),
        ({"node_type": "p4d.24xlarge", "nodes": 2}, "A100-SXM4-40GB", 16, 2, "p4d.24xlarge"),
        ({"device": "2080 ti"}, "RTX2080Ti", 1, 1, "workstation"),
    ],
)
def test_words_mean_a_cluster(fields, device, count, nodes, node_type) -> None:  # type: ignore[no-untyped-def]
    cluster = _cluster(**fields)
    assert (cluster.device.name, cluster.num_devices, cluster.num_nodes) == (device, count, nodes)
    assert cluster.node_type == node_type


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"device": "8xA100", "gpus": 16}, "gpus=8"),
        ({"device": "2x8xH100", "nodes": 4}, "nodes=2"),
        ({"device": "dgx-h100", "node_type": "p5"}, "node_type=dgx-h100"),
    ],
)
def test_a_contradiction_is_refused(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=rf"says {said}.*To fix: leave out"):
        Request.of({"model": "resnet50", **fields})


def test_a_number_that_agrees_may_be_said_twice() -> None:
    assert _cluster(device="8xA100", gpus=8).num_devices == 8


def test_hosts_and_devices_of_a_file_are_words_as_well(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[device.Mine]\nbase = 'A100'\n[node.box]\ndevice = 'Mine'\ndevices = 4\n")
    for words, count, nodes in (("2xbox", 8, 2), ("box", 4, 1), ("6xMine", 6, 2)):
        cluster = _cluster(device=words, custom=path)
        assert (cluster.device.name, cluster.num_devices, cluster.num_nodes) == ("Mine", count, nodes)


def test_an_unknown_host_offers_known_ones() -> None:
    with pytest.raises(UnknownNameError, match=r"p5\.48xlarge"):
        _cluster(device="p9.48xlarge")


@pytest.mark.parametrize(
    ("device", "stack"),
    [
        ("Gaudi2", "habana-lazy"),
        ("TPUv5e", "jax-xla"),
        ("Trainium2", "neuron"),
        ("M3 Max", "pytorch-eager"),
        ("EPYC 7763", "pytorch-eager"),
        ("Xeon Platinum 8480+", "pytorch-eager"),
        ("H100", "pytorch-llm"),
    ],
)
def test_the_software_fits_the_device(device: str, stack: str) -> None:
    job = Request.of({"model": "gpt2", "device": device, "batch_size": 1}).resolve()
    assert job.stack.profile == stack
