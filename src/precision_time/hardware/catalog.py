"""The hardware catalogue: devices, node types, links and clusters by name."""

from __future__ import annotations

from .device_table import canonical_device, device_assumption, get_device, known_devices

__all__ = ["canonical_device", "device_assumption", "get_device", "known_devices"]
