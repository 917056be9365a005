"""Node types: what one host of a product or a cloud instance holds (`data/nodes.toml`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ..cache import data
from ..errors import UnknownNameError
from ..lazy import LazyTable
from ..records import dataclass
from .device import Device, Fabric
from .device_table import base_name, family_of, folded, get_device, load_toml
from .fabrics import family_fabric, node_fabric
from .links import parse_network

_WORKSTATION = "workstation"
_STANDARD = "standard"
"""What the full names of Azure's sizes begin with."""
_SAGEMAKER = "ml."
"""What stands before the name of an instance in SageMaker."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeType:
    """One kind of host."""

    name: str
    device: str
    """Name of the device it comes with."""
    devices: int
    """Devices per host."""
    intra_node: str
    """Link inside the host, as `links.fabric_link` reads it."""
    inter_node: str
    """Network of the host, as `links.parse_network` reads it."""
    domain: int = 0
    """Devices that share the fabric beyond the host (NVL72, TPU pods); 0 where it ends at the host."""
    generic: bool = False
    """Any device fits."""
    most_devices: int = 0
    """Devices of the largest hosts of this kind, taken where the link inside is stated; 0: as usual."""
    larger: str = ""
    """Name of the type that is taken where a host shall hold more; empty: none."""
    source: str = ""
    fabric: Fabric = Fabric()
    """How such nodes are wired to each other; the dimensions of a torus follow from the number of devices."""
    fabric_source: str = ""


def get_node_type(name: str) -> NodeType:
    """The node type of a name or alias ("DGX-A100", "p4d", "ml.p4d.24xlarge", "GB200 NVL72").

    Raises:
        UnknownNameError: No such node type.
    """
    spelled = folded(name.lower().removeprefix(_SAGEMAKER))
    found = _spellings().get(spelled) or _spellings().get(spelled.removeprefix(_STANDARD))
    if found is None:
        raise UnknownNameError(
            kind="node type", name=name, known=_offered(), hint=f"All names: {', '.join(_nodes())}."
        )
    return _nodes()[found]


def find_node_type(
    system: str, *, device: Device | None = None, devices_per_node: float = 1.0
) -> NodeType | None:
    """The node type that a free description of a system names, or None.

    Args:
        system: As published: "1xXE8545x4A100-SXM-80GB", "Azure 8-GPU node", "TPU v3-4096".
        device: Only node types with devices of its architecture are taken.
        devices_per_node: Only node types with that many are taken.
    """
    named = (_nodes()[name] for name in _named(system))
    return next((node for node in named if _holds(node, device, devices_per_node)), None)


def _named(system: str) -> Iterator[str]:
    """The node types that a description names: by a spelling of its own, then by patterns."""
    if system in _nodes():
        yield system
    exact = _spellings().get(folded(system).removeprefix(_STANDARD))
    if exact is not None:
        yield exact
    words = system.lower()
    yield from (name for name, pattern in _patterns() if pattern.search(words))


def _holds(node: NodeType, device: Device | None, devices_per_node: float) -> bool:
    fits = device is None or node.generic or get_device(node.device).arch == device.arch
    return fits and (devices_per_node <= node.devices or node.domain > 0)


def default_node_type(device: Device) -> NodeType:
    """The host in which a device usually sits; a user's own sits like its base, else like its relatives.

    One that states a link its base lacks, or the other way round, has no place in the base's host.
    """
    defaults = _file()["default"]
    listed = base_name(device)
    name = defaults.get(listed) or _file()["default_family"].get(family_of(device))
    has_link = device.link_bandwidth_bytes_per_s > 0.0
    if listed is None or (get_device(listed).link_bandwidth_bytes_per_s > 0.0) is not has_link:
        relatives = (
            other.name
            for other in map(get_device, defaults)
            if other.arch == device.arch and (other.link_bandwidth_bytes_per_s > 0.0) is has_link
        )
        name = defaults.get(next(relatives, ""))
    return _nodes()[name or _WORKSTATION]


def known_node_types() -> tuple[NodeType, ...]:
    """Every node type, in the order of the file (makers, then clouds)."""
    return tuple(_nodes().values())


@data
def _file() -> Mapping[str, Any]:
    return load_toml("nodes.toml")


@data
def _nodes() -> Mapping[str, NodeType]:
    return LazyTable(_file()["node"], _node)


def _node(name: str, row: Mapping[str, Any]) -> NodeType:
    fabric, fabric_source = node_fabric(name) or family_fabric(parse_network(row["inter_node"]).family)
    given = {field: value for field, value in row.items() if field not in ("aliases", "match")}
    return NodeType(name=name, fabric=fabric, fabric_source=fabric_source, **given)


@data
def _spellings() -> Mapping[str, str]:
    table = {folded(name): name for name in _nodes()}
    for name, row in _file()["node"].items():
        for alias in row.get("aliases", ()):
            table.setdefault(folded(alias), name)
    return table


@data
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    rows = _file()["node"].items()
    return tuple((name, re.compile(row["match"])) for name, row in rows if "match" in row)


def _offered() -> tuple[str, ...]:
    aliases = [alias for row in _file()["node"].values() for alias in row.get("aliases", ())]
    return (*_nodes(), *aliases)
