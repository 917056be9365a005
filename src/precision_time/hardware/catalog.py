"""The hardware catalog: devices, node types, links and clusters by name."""

from __future__ import annotations

from .clusters import get_cluster
from .custom import Custom, load_custom
from .device_table import (
    canonical_device,
    device_assumption,
    devices_in_name,
    get_device,
    known_device_names,
    known_devices,
)
from .links import fabric_link, parse_network
from .nodes import NodeType, find_node_type, get_node_type, known_node_types

__all__ = [
    "Custom",
    "NodeType",
    "canonical_device",
    "device_assumption",
    "devices_in_name",
    "fabric_link",
    "find_node_type",
    "get_cluster",
    "get_device",
    "get_node_type",
    "known_device_names",
    "known_devices",
    "known_node_types",
    "load_custom",
    "parse_network",
]
