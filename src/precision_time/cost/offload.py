"""Seconds of keeping optimizer state or parameters in host memory.

Reference: Ren et al., ZeRO-Offload, USENIX ATC 2021: gradients go down, the host updates, parameters
come up; the update streams through the host's memory.
"""

from __future__ import annotations

from ..hardware.device import Device
from ..parallel.layout import Layout, Offload
from ..precision.policy import PrecisionPolicy

_HOST_BYTES_PER_S = 20e9
"""Of the host's memory per device: about 160 GB/s of two sockets over eight devices. Assumed."""
_PCIE_SHARE = 0.8
_UPDATE_BYTES = 28.0
"""Adam in fp32 per parameter: weight, both moments read and written, gradient read."""


def offload_s(layout: Layout, device: Device, policy: PrecisionPolicy, *, params: float) -> float:
    """Transfers and host update per optimizer step, nothing hidden.

    Args:
        layout: What is offloaded, micro batches.
        device: For its PCIe bandwidth.
        policy: Types of gradients and parameters.
        params: Elements whose state this device's rank holds.
    """
    pcie = device.pcie_bandwidth_bytes_per_s * _PCIE_SHARE
    moved = params * (policy.reduce.num_bytes + policy.activation.num_bytes)
    if layout.offload is Offload.PARAMETERS:
        moved += params * policy.activation.num_bytes * 2.0 * layout.num_micro_batches
    return moved / pcie + params * _UPDATE_BYTES / _HOST_BYTES_PER_S
