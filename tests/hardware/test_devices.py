"""Devices: figures that must hold for every data sheet, and every spelling of a name."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from precision_time.diagnostics import Diagnostics
from precision_time.errors import UnknownNameError
from precision_time.hardware.catalog import (
    canonical_device,
    device_assumption,
    get_device,
    known_device_names,
    known_devices,
)
from precision_time.hardware.device import Device
from precision_time.io import packaged, packaged_toml
from precision_time.request.request import Request
from precision_time.request.resolve import cluster_of

PUBLISHED_NAMES = (Path(__file__).parent / "published_device_names.txt").read_text().split("\n")[:-1]

# What torch.cuda.get_device_name and the vendors' tools print.
PRINTED_NAMES = {
    "NVIDIA A100-SXM4-80GB": "A100-SXM4-80GB",
    "NVIDIA A100-SXM4-40GB": "A100-SXM4-40GB",
    "A100-PCIE-40GB": "A100-PCIE-40GB",
    "NVIDIA A100 80GB PCIe": "A100-PCIE-80GB",
    "NVIDIA H100 80GB HBM3": "H100-SXM5-80GB",
    "NVIDIA H100 PCIe": "H100-PCIE-80GB",
    "NVIDIA H100 NVL": "H100-NVL-94GB",
    "NVIDIA H200": "H200-SXM-141GB",
    "NVIDIA GH200 480GB": "GH200-96GB",
    "NVIDIA B200": "B200-SXM-180GB",
    "NVIDIA GB200": "GB200",
    "NVIDIA L40S": "L40S",
    "NVIDIA L4": "L4",
    "NVIDIA A10G": "A10G",
    "NVIDIA RTX A6000": "A6000",
    "NVIDIA RTX 6000 Ada Generation": "RTX6000Ada",
    "NVIDIA GeForce RTX 4090": "RTX4090",
    "NVIDIA GeForce RTX 3090 Ti": "RTX3090Ti",
    "NVIDIA GeForce RTX 2080 Ti": "RTX2080Ti",
    "NVIDIA GeForce GTX 1080 Ti": "GTX1080Ti",
    "NVIDIA TITAN RTX": "TitanRTX",
    "NVIDIA TITAN Xp": "TitanXp",
    "Quadro RTX 8000": "QuadroRTX8000",
    "NVIDIA H800": "H800-SXM5-80GB",
    "NVIDIA H20": "H20-96GB",
    "NVIDIA A800-SXM4-80GB": "A800-SXM4-80GB",
    "NVIDIA A800 80GB PCIe": "A800-PCIE-80GB",
    "NVIDIA A100-SXM-64GB": "A100-SXM4-64GB",
    "NVIDIA GH200 144G HBM3e": "GH200-141GB",
    "NVIDIA GB10": "GB10",
    "NVIDIA A2": "A2",
    "NVIDIA RTX A2000 12GB": "A2000-12GB",
    "NVIDIA RTX 4000 Ada Generation": "RTX4000Ada",
    "NVIDIA RTX PRO 4000 Blackwell": "RTXPRO4000",
    "NVIDIA TITAN X (Pascal)": "TitanX-Pascal",
    "NVIDIA H20-3e": "H20-141GB",
    "AMD Instinct MI300X OAM": "MI300X",
    "NVIDIA RTX PRO 6000 Blackwell Workstation Edition": "RTXPRO6000-WE-96GB",
    "NVIDIA GeForce RTX 3060": "RTX3060",
    "NVIDIA GeForce RTX 3060 Laptop GPU": "RTX3060-Laptop",
    "NVIDIA GeForce RTX 4070 Ti SUPER": "RTX4070TiSuper",
    "NVIDIA GeForce RTX 4090 Laptop GPU": "RTX4090-Laptop",
    "NVIDIA GeForce RTX 5070 Ti": "RTX5070Ti",
    "NVIDIA GeForce GTX 1660 Ti": "GTX1660Ti",
    "NVIDIA GeForce RTX 2080 Super with Max-Q Design": "RTX2080Super-MaxQ",
    "Tesla M40 24GB": "M40",
    "Tesla V100S-PCIE-32GB": "V100S-PCIE-32GB",
    "AMD Instinct MI300A": "MI300A",
    "AMD Instinct MI250X": "MI250X-GCD",
    "AMD Radeon RX 7900 XT": "RX7900XT",
    "AMD Radeon PRO W7900": "RadeonPROW7900",
    "Apple M4 Pro": "Apple-M4-Pro-20c",
    "AMD EPYC 7763 64-Core Processor": "CPU-EPYC-7763",
    "AMD Ryzen 9 5950X 16-Core Processor": "CPU-Ryzen-9-5950X",
    "Intel(R) Xeon(R) Platinum 8380 CPU @ 2.30GHz": "CPU-Xeon-Platinum-8380",
    "13th Gen Intel(R) Core(TM) i9-13900K": "CPU-Core-i9-13900K",
    "Tesla V100-SXM2-16GB": "V100-SXM2-16GB",
    "Tesla V100-PCIE-32GB": "V100-PCIE-32GB",
    "Tesla P100-PCIE-16GB": "P100-PCIE-16GB",
    "Tesla T4": "T4",
    "Tesla K80": "K80",
    "AMD Instinct MI300X": "MI300X",
}
WRITTEN_NAMES = {
    "a100": "A100-SXM4-80GB",
    "a100-80gb": "A100-SXM4-80GB",
    "a100_40gb": "A100-SXM4-40GB",
    "h100": "H100-SXM5-80GB",
    "h100-sxm": "H100-SXM5-80GB",
    "H100 PCIe": "H100-PCIE-80GB",
    "4090": "RTX4090",
    "t4": "T4",
    "mi300x": "MI300X",
    "tpu-v5p": "TPUv5p",
    "v5litepod": "TPUv5e",
    "gaudi-2": "Gaudi2",
    "RTX6000-Quadro": "QuadroRTX6000",
    "trillium": "TPUv6e",
    "tpu v7": "TPUv7x",
    "RTX3060": "RTX3060",
    "rtx 3060 laptop": "RTX3060-Laptop",
    "3080 laptop 8gb": "RTX3080-Laptop-8GB",
    "5070 ti mobile": "RTX5070Ti-Laptop",
    "1080 ti": "GTX1080Ti",
    "4060ti-16gb": "RTX4060Ti-16GB",
    "rtx 3090 24gb": "RTX3090",
    "M3 Max": "Apple-M3-Max-40c",
    "m2 ultra 192gb": "Apple-M2-Ultra-76c-192GB",
    "h100-80gb": "H100-SXM5-80GB",
    "Ascend 910B3": "Ascend910B",
    "i9-13900k": "CPU-Core-i9-13900K",
    "ryzen 9 7950x": "CPU-Ryzen-9-7950X",
    "dgx spark": "GB10",
}


@pytest.mark.parametrize("name", PUBLISHED_NAMES)
def test_every_published_name_is_found(name: str) -> None:
    assert canonical_device(name) in known_device_names()


@pytest.mark.parametrize(("spelling", "name"), [*PRINTED_NAMES.items(), *WRITTEN_NAMES.items()])
def test_spelling_means_device(spelling: str, name: str) -> None:
    assert canonical_device(spelling) == name


def test_catalog_names_mean_themselves_without_an_assumption() -> None:
    rows = packaged_toml("precision_time.hardware", "data/devices.toml")["device"]
    with packaged("precision_time.hardware", "data/devices.csv").open(encoding="utf-8") as file:
        rows = rows | {row["name"]: row for row in csv.DictReader(file)}
    several = {name for name, row in rows.items() if row.get("variants_gib")}
    assert len(several) > 10
    for device in known_devices():
        assert canonical_device(device.name) == device.name
        assert canonical_device(device.name.lower()) == device.name
        # What is sold with several memories says which one is taken.
        assert (device_assumption(device.name) is not None) is (device.name in several)


def test_ambiguous_name_names_the_other_variants() -> None:
    assumption = device_assumption("a100")
    assert assumption is not None
    assert "A100-SXM4-80GB" in assumption
    assert "A100-PCIE-40GB" in assumption


def test_mixed_devices_are_as_slow_as_the_slowest() -> None:
    assert canonical_device("mixed:RTX-2080+RTX-3090+Titan-RTX") == "RTX2080"
    assert "slowest" in (device_assumption("mixed:RTX-3090+Titan-RTX") or "")


@pytest.mark.parametrize("name", ["a100 96gb", "rtx 4090 40gb", "m3 max 1024gb"])
def test_a_memory_that_is_not_sold_is_refused(name: str) -> None:
    with pytest.raises(UnknownNameError):
        get_device(name)


def test_another_memory_changes_the_memory_alone() -> None:
    usual, larger = get_device("rtx 4060 ti"), get_device("rtx 4060 ti 16gb")
    assert (usual.memory_bytes, larger.memory_bytes) == (8 * 2**30, 16 * 2**30)
    assert larger.peak_flops_per_s == usual.peak_flops_per_s
    assert "RTX4060Ti-16GB" in (device_assumption("rtx 4060 ti") or "")
    assert device_assumption("rtx 4060 ti 16gb") is None


def test_unknown_name_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"H100.*precision-time list devices") as caught:
        get_device("H1000")
    assert "H100" in caught.value.nearest


@given(st.text(max_size=30))
def test_any_text_is_a_device_or_a_clear_error(text: str) -> None:
    try:
        assert get_device(text).name in known_device_names()
    except UnknownNameError as error:
        assert repr(text) in str(error)


@pytest.mark.parametrize(
    "device",
    [d for d in known_devices() if d.vendor == "NVIDIA" and "tf32" in d.peak_flops_per_s],
    ids=lambda device: device.name,
)
def test_dense_tensor_peaks_of_nvidia_double_per_halved_width(device: Device) -> None:
    """A sparse figure in one column would show as a factor of four."""
    peaks = device.peak_flops_per_s
    assert peaks["fp16"] == peaks["bf16"]
    assert peaks["fp16"] / peaks["tf32"] == pytest.approx(2.0, rel=0.03)
    if "fp8" in peaks and device.name != "VR200":  # its narrow units are more than twice as wide
        assert peaks["fp8"] / peaks["fp16"] == pytest.approx(2.0, rel=0.03)
    if device.name != "RTX5090D":  # its tensor rates are cut below those of its vector units
        assert peaks["fp32"] <= peaks["tf32"]


@pytest.mark.parametrize(
    ("name", "cores_per_sm"),
    [("V100-SXM2-16GB", 64), ("A100-SXM4-80GB", 64), ("RTX3090", 128), ("RTX2080Ti", 64), ("L4", 128)],
)
def test_fp32_peak_is_cores_times_clock(name: str, cores_per_sm: int) -> None:
    device = get_device(name)
    expected = 2.0 * cores_per_sm * device.sm_count * device.boost_hz
    assert device.peak_flops_per_s["fp32"] == pytest.approx(expected, rel=0.03)


def test_geforce_turing_and_ampere_carry_the_rate_with_fp32_accumulation() -> None:
    assert get_device("RTX2080Ti").peak_flops_per_s["fp16"] == pytest.approx(53.8e12)
    assert get_device("TitanRTX").peak_flops_per_s["fp16"] == pytest.approx(130.5e12)
    assert get_device("RTX3090").peak_flops_per_s["fp16"] == pytest.approx(71.2e12)
    assert get_device("A6000").peak_flops_per_s["fp16"] == pytest.approx(154.8e12)


@pytest.mark.parametrize(
    ("name", "dtype", "tflops"),
    [
        ("V100-SXM2-16GB", "fp16", 125),
        ("A100-SXM4-80GB", "bf16", 312),
        ("A10", "tf32", 62.5),
        ("A10G", "fp16", 70),
        ("H100-SXM5-80GB", "fp8", 1979),
        ("H100-PCIE-80GB", "bf16", 756),
        ("MI300X", "bf16", 1307.4),
        ("TPUv5p", "bf16", 459),
        ("Gaudi2", "bf16", 432),
    ],
)
def test_published_peaks(name: str, dtype: str, tflops: float) -> None:
    assert get_device(name).peak_flops_per_s[dtype] == pytest.approx(tflops * 1e12)


@pytest.mark.parametrize(
    ("name", "tflops"),
    [
        *[("GTX1060", 4.4), ("GTX1070", 6.5), ("GTX1660Ti", 5.4), ("RTX2060", 6.5), ("RTX2080Super", 11.2)],
        *[("RTX3050", 9.1), ("RTX3060", 12.7), ("RTX3060Ti", 16.2), ("RTX3070Ti", 21.7), ("RTX3080Ti", 34.1)],
        *[("RTX4060", 15.1), ("RTX4060Ti", 22.1), ("RTX4070", 29.1), ("RTX4070Ti", 40.1), ("RTX4080", 48.7)],
        *[
            ("RTX4080Super", 52.2),
            ("RTX5060Ti", 23.7),
            ("RTX5070", 30.9),
            ("RTX5070Ti", 43.9),
            ("RTX5080", 56.3),
        ],
        *[("A2", 4.5), ("A2000", 8.0), ("RTX4000Ada", 26.7), ("RTX5000Ada", 65.3), ("RTXPRO5000", 66.9)],
        *[("RX6900XT", 23.0), ("RX7800XT", 37.3), ("RX7900XT", 51.6), ("RX9070XT", 48.7)],
    ],
)
def test_rates_of_a_family_give_the_published_fp32_peaks(name: str, tflops: float) -> None:
    """Multiprocessors, clock and rate per clock of the table against the makers' own figure."""
    assert get_device(name).peak_flops_per_s["fp32"] == pytest.approx(tflops * 1e12, rel=0.015)


def test_fp64_is_the_matrix_rate_on_every_card_that_has_one() -> None:
    """Twice the vector rate, which is the vector rate of fp32 (A100 and H100 data sheets)."""
    cards = [
        each for each in known_devices() if each.name.startswith(("A100-", "A800", "H100", "H200", "GH200"))
    ]
    assert len(cards) > 12
    for card in cards:
        assert card.peak_flops_per_s["fp64"] == pytest.approx(card.peak_flops_per_s["fp32"], rel=0.03), (
            card.name
        )


def test_the_tensor_rates_of_a_card_for_export_are_cut_and_nothing_else() -> None:
    cut, whole = get_device("RTX5090D").peak_flops_per_s, get_device("RTX5090").peak_flops_per_s
    assert cut.keys() == whole.keys()
    for dtype, rate in cut.items():
        share = 1.0 if dtype in ("fp32", "fp64") else 2375 / 3352
        assert rate == pytest.approx(share * whole[dtype], rel=0.002), dtype
    assert get_device("RTX5090D").sm_count == get_device("RTX5090").sm_count


def test_a_name_states_the_memory_that_its_entry_has() -> None:
    """Within what makers round: GiB of the device, GB of the label."""
    stated = [(each, re.search(r"-(\d+)GB", each.name)) for each in known_devices()]
    named = [(each, float(found[1]) * 2**30) for each, found in stated if found]
    assert len(named) >= 40
    for each, label_bytes in named:
        assert each.memory_bytes == pytest.approx(label_bytes, rel=0.01), each.name
    assert get_device("B100-SXM-192GB").name == get_device("B100").name == "B100-SXM-180GB"


@pytest.mark.parametrize(
    ("name", "device", "count"),
    [("TPU v3-256", "TPUv3", 128), ("v5litepod-16", "TPUv5e", 16), ("Cloud TPU v5p-8", "TPUv5p", 4)],
)
def test_slices_are_named_by_cores_or_chips(name, device, count):
    """A slice's number counts what its generation counts; asked alone it is as many devices."""
    assert get_device(name).name == device
    request = Request.of({"model": "resnet50", "device": name, "batch_size": 8})
    assert cluster_of(request, Diagnostics()).num_devices == count
    assert cluster_of(Request.of({**request.given(), "gpus": 2}), Diagnostics()).num_devices == 2


@pytest.mark.parametrize(
    ("name", "figure", "value"),
    [
        ("Gaudi2", "link_bandwidth_bytes_per_s", 21 * 12.5e9),
        ("Gaudi3", "link_bandwidth_bytes_per_s", 21 * 25e9),
        ("GH200-141GB", "memory_bandwidth_bytes_per_s", 4.9e12),
        ("B100-SXM-180GB", "memory_bytes", 180 * 2**30),
    ],
)
def test_figures_that_were_wrong_stay_mended(name: str, figure: str, value: float) -> None:
    """Ports that join the cards of a node alone, the sheet of the larger memory, a name as its memory."""
    assert getattr(get_device(name), figure) == pytest.approx(value)


@pytest.mark.parametrize(
    ("name", "device", "said"),
    [
        ("MacBook Pro M4 Pro", "Apple-M4-Pro-20c", "the other one"),
        ("MacBook Pro M3 Max 36GB", "Apple-M3-Max-30c", ""),
        ("Mac Studio", "Apple-M4-Max-40c", "M3 Ultra"),
        ("Mac mini M4", "Apple-M4-10c", "the other one"),
        ("Colab A100", "A100-SXM4-40GB", "80 GB"),
        ("Colab T4", "T4", ""),
        ("Kaggle P100", "P100-PCIE-16GB", "other variants"),
        ("Kaggle TPU v3-8", "TPUv3", "4 chips"),
        ("DGX Spark", "GB10", ""),
        ("Vera Rubin", "VR200", ""),
        ("MI400", "MI455X", "its series"),
        ("trn3", "Trainium3", ""),
        ("Intel Arc B580 Graphics", "ArcB580", ""),
        ("Jetson Orin Nano Super", "JetsonOrinNano-8GB", ""),
        ("M5 Max 128GB", "Apple-M5-Max-40c-128GB", "M5-Max"),
    ],
)
def test_machines_as_people_say_them(name: str, device: str, said: str) -> None:
    assert canonical_device(name) == device
    assert said in (device_assumption(name) or "")


@pytest.mark.parametrize("name", ["TPU8t", "TPU v8t", "Rubin Ultra", "M5 Ultra"])
def test_an_announced_part_without_rates_is_refused_with_what_is_missing(name: str) -> None:
    with pytest.raises(UnknownNameError, match=r"(states|announced).*\n?.*custom file"):
        get_device(name)


@pytest.mark.parametrize(
    "name", ["VR200", "MI455X", "Trainium3", "Ascend950DT", "ArcB580", "Apple-M5-Max-40c"]
)
def test_a_part_without_a_run_says_so_and_what_no_sheet_states(name: str) -> None:
    sources = get_device(name).sources
    assert "unmeasured" in sources["peak_flops_per_s"] and "from memory" not in sources["memory_bytes"]
    assert ("assumed, " in sources["tdp_w"]) == (name != "ArcB580")


def test_a_figure_read_in_a_second_table_names_it() -> None:
    sources = get_device("RTX3060").sources
    assert "read again in TechPowerUp" in sources["memory_bandwidth_bytes_per_s"]
    assert "from memory" in get_device("RTX3060-Laptop").sources["boost_hz"]
    with_some = [d for d in known_devices() if any("from memory" in text for text in d.sources.values())]
    assert len(with_some) <= 191  # the GTX Titan Black, read in no table; the cache of the RX 6600


@pytest.mark.parametrize(
    ("word", "such_as"), [("cuda", "A100"), ("cuda:0", "A100"), ("MPS", "M2-Max"), ("hpu", "Gaudi2")]
)
def test_what_a_framework_calls_a_kind_of_device_asks_for_the_device(word: str, such_as: str) -> None:
    with pytest.raises(UnknownNameError, match=f"To fix: name the .*{such_as}") as refused:
        get_device(word)
    assert not refused.value.nearest
    assert get_device(such_as).name
