"""Names that drivers give, and what hardware can compute."""

from __future__ import annotations

import pytest

from precision_time.errors import ConfigError
from precision_time_integrations.measure.device import (
    MeasuredDevice,
    ResourceMonitor,
    catalog_name,
    find_device,
)


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("Tesla V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
        ("NVIDIA RTX 6000 Ada Generation", "RTX6000Ada"),
        ("Tesla T4", "T4"),
        ("AMD Instinct MI300X OAM", "MI300X"),
        ("AMD Instinct MI250X / MI250", "MI250X-GCD"),
        ("CPU-Intel(R) Xeon(R) Platinum 8480+", "CPU-Xeon-Platinum-8480+"),
        ("CPU-Intel(R) Xeon(R) Platinum 8180 CPU @ 2.50GHz", "CPU-Xeon-Platinum-8180"),
        ("CPU-AMD EPYC 7742 64-Core Processor", "CPU-2xAMD-EPYC-7742"),
    ],
)
def test_names_of_drivers_are_read_as_the_catalogue_spells_them(driver: str, name: str) -> None:
    assert catalog_name(driver) == name


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("CPU-Intel(R) Xeon(R) W-2295 CPU @ 3.00GHz", "CPU-Xeon-W-2295"),
        ("NVIDIA H200 MIG 1g.18gb", "NVIDIA-H200-MIG-1g.18gb"),
    ],
)
def test_unknown_devices_keep_their_name(driver: str, name: str) -> None:
    assert catalog_name(driver) == name


def test_the_source_is_a_plain_word(cpu: MeasuredDevice) -> None:
    assert cpu.source == "own-cpu-xeon-platinum-8480"


@pytest.mark.parametrize(
    ("capability", "refused"),
    [
        ((7, 0), {"tf32", "bf16", "bf16-mixed", "fp8-mixed"}),
        ((8, 0), {"fp8-mixed"}),
        ((8, 9), set()),
        ((9, 0), set()),
    ],
)
def test_a_gpu_refuses_what_it_has_no_units_for(capability: tuple[int, int], refused: set[str]) -> None:
    gpu = MeasuredDevice(name="X", kind="cuda", software="", framework_version="2.9", capability=capability)
    words = ("fp32", "tf32", "fp16", "bf16", "fp16-mixed", "bf16-mixed", "fp8-mixed")
    assert {word for word in words if gpu.refuses(word)} == refused


def test_a_processor_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    found = find_device(kind="cpu", name="CPU-Intel(R) Xeon(R) Platinum 8480+")
    assert (found.name, found.kind) == ("CPU-Xeon-Platinum-8480+", "cpu")
    assert found.refuses("fp8-mixed") and not found.refuses("bf16-mixed")
    assert find_device(kind="cpu").name.startswith("CPU-")
    with pytest.raises(ConfigError, match="auto, cuda or cpu"):
        find_device(kind="tpu")


def test_power_of_a_processor_is_not_measured_but_its_memory_is() -> None:
    monitor = ResourceMonitor("cpu")
    monitor.start()
    assert monitor.power_w() is None
    peak = monitor.peak_bytes()
    assert peak is None or peak > 1e6
