"""User-defined devices, node types and links, from one TOML or YAML file, or from the tables of one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from ..barrier import check_may_read
from ..errors import CatalogError
from ..io import once_per_file, read_input, write_atomically
from ..records import dataclass
from ..units import GIGA
from .device import Device, Fabric, Link
from .device_table import canonical_device, folded, get_device
from .fabrics import family_fabric
from .links import Network, known_networks, network_of_node, parse_network, usual_latency_s
from .nodes import NodeType, default_node_type

BESIDE = ".hardware.toml"
"""Ending of the file that `measure` writes beside its rows: the device they ran on."""
_BITS_PER_BYTE = 8.0
_UNNAMED = "custom hardware"
"""What tables are called that came in no file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnLink:
    """A link of a user's file."""

    name: str
    kind: str
    """Kind of the catalog that it is of; empty where the file does not say."""
    network: Network
    """What a host has in all; of a link that is stated per device, the latency alone."""
    per_device_bytes_per_s: float | None
    """What one device gets, where the file states that."""
    in_network_reduction: bool = False
    note: str | None = None
    """What was assumed to read it."""

    def seen(self, *, devices_per_node: float, slots: float) -> Link:
        """The link as one device sees it (`Network.link`)."""
        shared = self.network.link(devices_per_node=devices_per_node, slots=slots)
        stated = self.per_device_bytes_per_s
        return replace(
            shared,
            name=self.name,
            kind=self.kind,
            bandwidth_bytes_per_s=shared.bandwidth_bytes_per_s if stated is None else stated,
            stream_bytes_per_s=shared.stream_bytes_per_s if stated is None else None,
            in_network_reduction=self.in_network_reduction,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Custom:
    """What one custom file adds to the catalog; keys are folded names."""

    devices: Mapping[str, Device] = field(default_factory=dict)
    node_types: Mapping[str, NodeType] = field(default_factory=dict)
    links: Mapping[str, OwnLink] = field(default_factory=dict)

    def find_device(self, name: str) -> Device | None:
        """The file's device of that name, in any spelling."""
        return self.devices.get(folded(name))

    def device(self, name: str) -> Device:
        """The device of that name: the file's comes first.

        Raises:
            UnknownNameError: If the catalog has none either.
        """
        return self.find_device(name) or get_device(name)

    def usual_node_type(self, device: Device) -> NodeType:
        """The usual host of a device: the file's comes first."""
        return self.default_for(device) or default_node_type(device)

    def find_node_type(self, name: str) -> NodeType | None:
        """The file's node type of that name, in any spelling."""
        return self.node_types.get(folded(name))

    def find_link(self, name: str) -> OwnLink | None:
        """The file's link of that name, in any spelling."""
        return self.links.get(folded(name))

    def default_for(self, device: Device) -> NodeType | None:
        """The first node type of the file that holds the device, or None."""
        return next((node for node in self.node_types.values() if node.device == device.name), None)


def hardware_beside(path: str | Path) -> Path | None:
    """The description of the devices of a file of measurements: NAME.hardware.toml beside it."""
    file = Path(path)
    found = file.with_suffix(BESIDE) if file.name else None  # "/" and "." have none
    return found if found is not None and os.path.isfile(found) else None


def copy_hardware(measured: Path, to: Path) -> None:
    """Keep the description of the devices of measured steps beside what was made of them."""
    beside = hardware_beside(measured)
    if beside is not None and beside != to.with_suffix(BESIDE):
        write_atomically(to.with_suffix(BESIDE), read_input(beside))


def load_custom(given: str | Path | Mapping[str, Any]) -> Custom:
    """Devices, node types and links of a user's file, or of its content.

    The file has three tables, all optional; units are those of data sheets::

        [device.MyGPU]
        base = "A100-SXM4-80GB"        # what is left out is taken from it
        memory_gb_per_s = 2500
        tflops = { bf16 = 400 }

        [link.mynet]
        gbit_per_s_per_node = 400       # one direction; or gb_per_s_per_node, gb_per_s_per_device
        kind = "roce"                   # of the catalog: gives its efficiency and latency

        [node.mynode]
        device = "MyGPU"
        devices = 4
        intra_node = "nvlink3"
        inter_node = "mynet"
        topology = "fat-tree"           # or rail-optimized, dragonfly, torus-2d, torus-3d, flat
        pod_nodes = 16                  # nodes below one group of leaf switches
        oversubscription = 2            # bandwidth into such a pod over bandwidth out of it
        torus = [4, 4]                  # devices along each dimension, for a torus

    Args:
        given: `.toml`, `.yaml` or `.yml` file, or the tables that one holds.

    Raises:
        CatalogError: The file cannot be read, or a field breaks a rule; names the field and the rule.
        UnknownNameError: A base device or a node's device is unknown.
    """
    if isinstance(given, Mapping):
        return _of_text(tables_text(given))
    check_may_read(given)
    try:
        return once_per_file(_of_file, Path(given))
    except OSError as error:
        raise CatalogError(
            f"Custom hardware file {str(given)!r} cannot be read: {error.strerror}. "
            "To fix: give an existing file."
        ) from error


def tables_text(tables: Mapping[str, Any]) -> str:
    """The tables of a file as JSON: equal texts are equal hardware.

    Raises:
        CatalogError: If they hold what no file can.
    """
    try:
        return json.dumps(tables)
    except (TypeError, ValueError, RecursionError) as error:
        raise CatalogError(
            f"Custom hardware is not made of tables, texts and numbers: {error}. To fix: correct it."
        ) from error


def _of_file(file: Path) -> Custom:
    from . import custom_schema

    return _custom(custom_schema.read(file), file.name)


def _of_text(tables: str) -> Custom:
    """Of tables as JSON."""
    from . import custom_schema

    return _custom(custom_schema.checked(json.loads(tables), _UNNAMED), _UNNAMED)


def _custom(sheet: Any, origin: str) -> Custom:
    devices = {folded(name): _device(name, row, origin) for name, row in sheet.device.items()}
    links = {folded(name): _link(name, row, origin) for name, row in sheet.link.items()}
    nodes = {folded(name): _node_type(name, row, origin, devices, links) for name, row in sheet.node.items()}
    return Custom(devices=devices, node_types=nodes, links=links)


def _link(name: str, row: Any, origin: str) -> OwnLink:
    """A user's link; the figure's name says whether it is of a device or of a host."""
    kind = row.kind or ""
    is_network = kind in known_networks()
    per_device = row.gb_per_s_per_device or row.gb_per_s
    of_node = row.gbit_per_s_per_node or (row.gb_per_s_per_node or per_device) * _BITS_PER_BYTE
    network = network_of_node(kind if is_network else "", of_node)
    latency_s = usual_latency_s(kind) if row.latency_us is None else row.latency_us * 1e-6
    old = f"{origin}: gb_per_s of link {name} read as gb_per_s_per_device, its name of today"
    return OwnLink(
        name=name,
        kind=kind,
        network=replace(network, latency_s=latency_s, flows=row.sockets or network.flows),
        per_device_bytes_per_s=None if per_device is None else per_device * GIGA,
        in_network_reduction=row.in_network_reduction,
        note=None if row.gb_per_s is None else old,
    )


def _node_type(
    name: str, row: Any, origin: str, devices: Mapping[str, Device], links: Mapping[str, OwnLink]
) -> NodeType:
    """A user's node type; its wiring is the usual one of its network where the file says nothing."""
    own_device, own_link = devices.get(folded(row.device)), links.get(folded(row.inter_node))
    family = parse_network(row.inter_node).family if own_link is None else own_link.network.family
    usual = family_fabric(family)[0] if family else Fabric()
    topology = f"torus-{len(row.torus)}d" if row.torus else usual.topology
    return NodeType(
        name=name,
        device=own_device.name if own_device is not None else canonical_device(row.device),
        devices=row.devices,
        intra_node=row.intra_node,
        inter_node=row.inter_node,
        domain=row.domain,
        source=origin,
        fabric=Fabric(
            topology=row.topology or topology,
            pod_nodes=row.pod_nodes,
            oversubscription=row.oversubscription,
            torus=row.torus,
        ),
        fabric_source=origin,
    )


def _device(name: str, row: Any, origin: str) -> Device:
    """A user's device: the fields of `base`, replaced by those the file gives."""
    given = row.si_fields()
    sources = dict.fromkeys(given, row.source or f"{origin}, device {name}")
    if row.base is not None:
        base = get_device(row.base)
        peaks = {**base.peak_flops_per_s, **given.pop("peak_flops_per_s", {})}
        stated = {**given, "peak_flops_per_s": peaks, "sources": {**base.sources, **sources}}
        return replace(base, **stated, name=name, base=base.name)
    missing = row.missing_fields()
    if missing:
        raise CatalogError(
            f"Device {name!r} in {origin!r} lacks {', '.join(missing)}. "
            "To fix: give them, or name a similar device as base."
        )
    return Device(name=name, sources=sources, **{**row.DEFAULTS, **given})
