"""Devices of the catalog: an entry whose unit, source or place in another table is missing is caught here.

A wrong figure does not fail, it predicts. So each must lie where data sheets lie and carry its source, and
the other tables (links, node types, precision support) must know the architecture.
"""

from __future__ import annotations

from dataclasses import fields

from ..hardware.catalog import get_cluster, get_device
from ..hardware.device import Device
from ..hardware.device_table import bridged_cards
from ..hardware.links import default_fabric
from ..precision.catalog import get_policy
from ..precision.support import check_support, natural_precision, supported_precisions
from .checks import CNN, DECODER, answer

ORDERS = {
    "memory_bytes": (0.8 * 2**30, 1024 * 2**30),
    "memory_bandwidth_bytes_per_s": (4e10, 1e14),
    "sm_count": (1, 2000),
    "l2_bytes": (0, 1024 * 2**20),
    "boost_hz": (5e8, 6e9),
    "tdp_w": (10, 2000),
    "link_bandwidth_bytes_per_s": (0, 2e12),
    "pcie_bandwidth_bytes_per_s": (1e10, 5e11),
    "launch_overhead_s": (1e-6, 2e-5),
    "release_year": (2012, 2030),
}
"""Least and most of each figure over all accelerators."""
_FP32_PEAKS = (4e11, 1e15)
_GROUP = 16


class DeviceSuite:
    """Properties of one device; `device` is a `Device` of the catalog."""

    def test_every_figure_has_a_source(self, device: Device) -> None:
        """A reader must be able to look each of them up."""
        figures = {field.name for field in fields(Device)} - {"name", "base", "sources"}
        missing = {name for name in figures if not device.sources.get(name)}
        assert not missing, f"{device.name} has no source for {sorted(missing)}."

    def test_figures_are_of_the_right_order(self, device: Device) -> None:
        """Catches a wrong unit, or a digit too many or too few."""
        for name, (least, most) in ORDERS.items():
            assert least <= getattr(device, name) <= most, f"{device.name}: {name}={getattr(device, name)}"
        assert _FP32_PEAKS[0] <= device.peak_flops_per_s["fp32"] <= _FP32_PEAKS[1]

    def test_narrower_types_are_never_slower(self, device: Device) -> None:
        """Catches peaks in the wrong column, and a sparse peak among dense ones.

        Cards for export have their tensor rates cut, below those of their vector units in TF32.
        """
        peaks = device.peak_flops_per_s
        order = [peaks[word] for word in ("tf32", "fp16", "fp8", "fp4") if word in peaks]
        assert order == sorted(order)
        assert peaks["fp32"] <= 2.0 * peaks.get("tf32", peaks["fp32"])
        assert peaks["fp32"] <= peaks.get("fp16", peaks["fp32"])
        assert peaks["fp32"] <= peaks.get("bf16", peaks["fp32"]) <= peaks.get("fp8", float("inf"))

    def test_is_found_by_its_name(self, device: Device) -> None:
        """In any case and with other separators: no other device's alias hides it."""
        for spelling in (device.name, device.name.lower(), device.name.replace("-", " ")):
            assert get_device(spelling).name == device.name

    def test_its_links_and_node_type_are_known(self, device: Device) -> None:
        """A device with a fabric of its own must not be priced over PCIe or the network alone."""
        cluster = get_cluster(device=device.name, num_devices=_GROUP)
        assert cluster.inter_node.bandwidth_bytes_per_s > 0.0 or cluster.num_nodes == 1
        alone = cluster.num_nodes == _GROUP
        if device.link_bandwidth_bytes_per_s > 0.0 and not alone and not bridged_cards(device):
            fabric = default_fabric(device)
            assert not fabric.startswith("pcie"), (
                f"hardware/data/links.toml names no fabric for the architecture {device.arch}."
            )
            assert cluster.node_type != "workstation", (
                f"hardware/data/nodes.toml names no node type for {device.name}."
            )

    def test_its_natural_precision_runs_in_hardware(self, device: Device) -> None:
        """What is taken when nobody names a precision needs no emulation."""
        natural = natural_precision(device)
        assert natural in supported_precisions(device)
        if natural != "fp32":
            assert check_support(get_policy(natural), device) == ()

    def test_prices_a_cnn_and_a_decoder(self, device: Device) -> None:
        """The CNN alone, the decoder in a group, which has links and takes communication."""
        alone = answer(CNN, device=device.name)
        group = answer(DECODER, device=device.name, gpus=_GROUP)
        assert alone.precision.startswith(natural_precision(device))
        exposed = ("data_exposed_s", "straggler_s", "contention_s")
        assert sum(alone.terms.get(name, 0.0) for name in exposed) == 0.0
        assert sum(group.terms.get(name, 0.0) for name in exposed) > 0.0
