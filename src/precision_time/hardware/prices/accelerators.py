"""What price lists call accelerators and instances, as devices of the catalog (`data/prices.toml`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...cache import memo
from ...errors import UnknownNameError
from ...io import packaged_toml
from ..device_table import get_device
from ..nodes import NodeType, find_node_type, get_node_type


def words() -> Mapping[str, Any]:
    """The tables of `data/prices.toml`."""
    return packaged_toml(__package__, "data/prices.toml")


@memo(8192)
def node_of_instance(instance_type: str, device: str, count: int) -> NodeType | None:
    """The node type of that very instance, or the pod that it is a part of; None where none is listed.

    Args:
        instance_type: As the cloud says.
        device: Name of the catalog; another is a user's own, which no node type knows.
        count: Devices of the instance.
    """
    try:
        node = get_node_type(instance_type)
        if node.devices == count and get_device(node.device).arch == get_device(device).arch:
            return node
    except UnknownNameError:
        pass
    try:
        node_or_pod = find_node_type(instance_type, device=get_device(device), devices_per_node=count)
    except UnknownNameError:
        return None
    return node_or_pod if node_or_pod is not None and node_or_pod.domain > 0 else None
