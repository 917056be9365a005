"""From what a user states of a cluster to a `Cluster`: the rest is filled in and listed as assumptions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, prod
from numbers import Integral
from pathlib import Path
from typing import Any

from ..errors import CatalogError, ConfigError, UnknownNameError, shown
from .custom import Custom, OwnLink, load_custom
from .device import Cluster, Device, Fabric, Link
from .device_table import catalog_name, device_assumption, get_device, nearest_device
from .fabrics import family_fabric, split_network, stated_shape, torus_fabric
from .links import (
    Network,
    default_fabric,
    fabric_link,
    fabric_name,
    in_adapters,
    is_kind_of,
    known_fabrics,
    known_networks,
    parse_network,
    per_node,
    says_adapters,
)
from .nodes import NodeType, default_node_type, get_node_type

_MOST_DEVICES = 10_000_000
"""Of one cluster: a guard against slips of the keyboard."""
_SWITCHED_BOARD = 8
_BARE_NVLINK = frozenset({"nvlink3", "nvlink4", "nvlink5"})
_TORUS = "ici"
_SPANNED = re.compile(r"(\d+) hosts counted as")
"""Of the assumption that a fabric spans hosts."""
_NETWORK_WORDS = {
    False: "technology, Gbit/s of an adapter, adapters (ib-ndr-400g x8, ethernet-25g)",
    True: "Gbit/s of a host and technology (400g-ib, 8x400g-ib, 100g-tcp, efa-400g)",
}


def get_cluster(
    *,
    device: str | Device | None = None,
    num_devices: int,
    num_nodes: int | None = None,
    node_type: str | None = None,
    intra_node: str | None = None,
    inter_node: str | None = None,
    network: str | None = None,
    custom: str | Path | Mapping[str, Any] | None = None,
) -> Cluster:
    """The cluster that a user means, with every gap filled and listed in `assumptions`.

    Args:
        device: Name or device; None takes the one the node type comes with.
        num_devices: Devices in all.
        num_nodes: Hosts; by default as few as the node type allows.
        node_type: "DGX-A100", "p4d.24xlarge" ...; by default the usual host of the device.
        intra_node: Link inside a host, as people write it ("nvlink3+nvswitch", "pcie4"); of a torus with the
            shape of the slice ("ici 4x4x8").
        inter_node: Network, as people write it ("ib-hdr-200g x8", "ethernet-50g"); what follows of its wiring
            is read too: "ib-ndr-400g x8 2:1" is oversubscribed twofold beyond a pod, "pods of 32" says where
            that begins, "rail-optimized", "fat-tree" or "dragonfly" name the topology.
        network: The same by what a node has in all ("100g-tcp", "400g-ib", "efa-400g", "8x400g-ib"), or the
            name of a link of the custom file.
        custom: TOML or YAML file with own devices, node types and links, or its tables (`load_custom`).

    Returns:
        The cluster. On machines whose fabric reaches beyond the host (NVL72 racks, TPU pods) `num_nodes`
        counts those domains, as the network has no slower level inside one.

    Raises:
        UnknownNameError: Unknown device, node type or link.
        ConfigError: Invalid counts, or a network in two ways.
        CatalogError: A device that the node type does not hold, or a custom file that breaks its rules.
    """
    _check_counts(num_devices, num_nodes)
    own = load_custom(custom) if custom is not None else Custom()
    if network is not None:
        if inter_node is not None:
            raise ConfigError(
                f"inter_node={inter_node} and network={network} state one network twice. To fix: give one of "
                "them: network counts the Gbit/s of a node, inter_node those of an adapter."
            )
        inter_node = network if own.find_link(network) else per_node(network)
    said = _Said(
        own=own,
        node_type=node_type,
        intra_node=intra_node,
        inter_node=inter_node,
        of_node=network is not None,
    )
    chosen = _device(device, said)
    node = _node_type(chosen, said, num_devices, num_nodes)
    hosts = _hosts(num_devices, num_nodes, node, said)
    fabric = _fabric_spelling(chosen, node, num_devices / hosts, said)
    nodes = _network_nodes(num_devices, hosts, node, fabric, chosen, said)
    intra = _intra(fabric, chosen, node, num_devices / nodes, said)
    inter = _inter(node, num_devices / hosts, nodes, said)
    wiring = _wiring(node, chosen, num_devices / nodes, nodes, fabric, said)
    return Cluster(
        device=chosen,
        num_devices=num_devices,
        num_nodes=nodes,
        intra_node=intra,
        inter_node=inter,
        node_type=node.name,
        fabric=wiring,
        assumptions=tuple(said.assumptions),
        reference=None if custom is None else _reference(chosen, num_devices, hosts, node, said),
    )


def _reference(device: Device, num_devices: int, num_nodes: int, node: NodeType, said: _Said) -> Cluster:
    """The cluster of catalog hardware most like the user's own: its base, else the nearest data sheet.

    Of a network of a known kind it has the catalog's with the same figures, and what else was stated in words
    of the catalog.
    """
    own, like = said.own, device
    if own.find_device(device.name) is not None or catalog_name(device) is None:
        like = get_device(device.base or nearest_device(device).name)
    network = said.inter_node or node.inter_node
    mine = said.own_network(network)
    if mine is not None:
        stated = mine.kind in known_networks() and mine.per_device_bytes_per_s is None
        network = mine.network.name if stated else ""
    elif said.inter_node is None:
        network = ""
    of_node = said.of_node and mine is None  # speed of a host in all, not of an adapter
    fabric = said.intra_node if said.intra_node and own.find_link(said.intra_node) is None else None
    listed = own.find_node_type(node.name) is None and like is device
    return get_cluster(
        device=like,
        num_devices=num_devices,
        num_nodes=num_nodes,
        node_type=said.node_type if listed else None,
        intra_node=fabric,
        inter_node=None if of_node else network or None,
        network=network if of_node else None,
    )


@dataclass(kw_only=True, slots=True)
class _Said:
    """What the caller stated, and what had to be assumed so far."""

    own: Custom
    node_type: str | None
    intra_node: str | None
    inter_node: str | None
    of_node: bool = False
    """Whether the network was stated by what a node has in all."""
    assumptions: list[str] = field(default_factory=list)

    def named_node(self, name: str) -> NodeType:
        """The node type of that name: the user's own comes first."""
        return self.own.find_node_type(name) or get_node_type(name)

    @property
    def network_field(self) -> str:
        """The argument that stated the network."""
        return "network" if self.of_node else "inter_node"

    def own_network(self, spelling: str) -> OwnLink | None:
        """The user's own network of a spelling, with or without words on its wiring."""
        return self.own.find_link(spelling) or self.own.find_link(split_network(spelling)[0])

    def assume(self, text: str | None) -> None:
        if text is not None:
            self.assumptions.append(text)


def _check_counts(num_devices: int, num_nodes: int | None) -> None:
    """Counts must be whole and at least 1, and every node needs a device."""
    for name, value in (("num_devices", num_devices), ("num_nodes", num_nodes)):
        if value is not None and not (isinstance(value, Integral) and 1 <= value <= _MOST_DEVICES):
            raise ConfigError(
                f"{name}={shown(value)} is not a count. To fix: give a whole number from 1 to "
                f"{_MOST_DEVICES:,}."
            )
    if num_nodes is not None and num_nodes > num_devices:
        raise ConfigError(
            f"{num_devices} devices cannot be spread over {num_nodes} nodes: each node needs at least one. "
            f"To fix: num_nodes <= {num_devices}."
        )


def _device(given: str | Device | None, said: _Said) -> Device:
    if isinstance(given, Device):
        return given
    if given is None:
        if said.node_type is None:
            raise ConfigError(
                "Neither a device nor a node type is given. To fix: name a device (precision-time list "
                "devices) or a node type such as 'DGX-A100'."
            )
        given = said.named_node(said.node_type).device
    found = said.own.find_device(given)
    if found is None:
        said.assume(device_assumption(given))
    return found or get_device(given)


def _node_type(device: Device, said: _Said, num_devices: int, num_nodes: int | None) -> NodeType:
    """The node type; the stated one must hold devices of the same architecture.

    Unstated, it is the usual one of the device, or the larger kind where a host shall hold more; one with the
    most slots that are built only where the link inside is stated.
    """
    if said.node_type is None:
        usual = said.own.usual_node_type(device)
        per_host = num_devices if num_nodes is None else ceil(num_devices / num_nodes)
        if per_host > usual.devices and usual.larger:
            usual = get_node_type(usual.larger)
        if said.intra_node is None or not usual.devices < per_host <= usual.most_devices:
            return usual
        said.assume(f"{per_host} devices on a node, where {usual.devices} are usual ({usual.name})")
        return replace(usual, devices=usual.most_devices)
    node = said.named_node(said.node_type)
    own = said.own.find_node_type(said.node_type) or said.own.find_device(device.name)
    if node.generic or own is not None:
        return node
    if get_device(node.device).arch != device.arch:
        raise CatalogError(
            f"Node type {node.name} holds {node.device}, not {device.name}. To fix: name another node_type, "
            "leave it away, or state its links by intra_node and network."
        )
    return node


def _hosts(num_devices: int, num_nodes: int | None, node: NodeType, said: _Said) -> int:
    """Hosts: as stated, if the node type has room for the devices; else as few as possible."""
    if num_nodes is None:
        hosts = ceil(num_devices / node.devices)
        if hosts > 1:
            said.assume(f"{node.devices} devices per node ({node.name}): {hosts} nodes")
        return hosts
    per_node = ceil(num_devices / num_nodes)
    if node.domain or per_node <= node.devices:
        return num_nodes
    if said.node_type is not None:
        least = ceil(num_devices / node.devices)
        raise ConfigError(
            f"{num_devices} devices on {num_nodes} nodes are {per_node} per node, but {node.name} has "
            f"{node.devices}. To fix: num_nodes >= {least}, or leave node_type away."
        )
    said.assume(f"{per_node} devices on a node, where {node.devices} are usual ({node.name})")
    return num_nodes


def _fabric_spelling(device: Device, node: NodeType, per_host: float, said: _Said) -> str:
    """The link inside a node in exact words: bare NVLink generations get their switches or mesh."""
    if said.intra_node is None:
        known = said.own.find_link(node.intra_node) or fabric_name(node.intra_node, device)
        unlinked = per_host > 1 and fabric_name(node.intra_node, device) == "none"
        return node.intra_node if known and not unlinked else default_fabric(device)
    own = said.own.find_link(said.intra_node) is not None
    name = None if own else fabric_name(said.intra_node, device)
    if name is None and not own:
        raise UnknownNameError(
            kind="link inside a node",
            name=said.intra_node,
            known=known_fabrics(),
            hint="To fix: write nvlink4+nvswitch, pcie4, xgmi ..., or leave intra_node away for the link "
            f"of {node.name} ({node.intra_node}).",
        )
    usual = fabric_name(node.intra_node, device)
    if name is None or usual is None:
        return said.intra_node
    if node.domain and name.partition("+")[0] == usual.partition(" ")[0]:
        return usual
    if name not in _BARE_NVLINK:
        return said.intra_node
    if usual.startswith(name) and 1.0 < per_host <= node.devices:
        return usual
    switched = per_host >= _SWITCHED_BOARD or name == "nvlink5"
    return f"{name}+nvswitch" if switched else f"{name} mesh4"


def _network_nodes(
    num_devices: int, hosts: int, node: NodeType, fabric: str, device: Device, said: _Said
) -> int:
    """Nodes as the network sees them: hosts, or whole domains where the fabric spans hosts."""
    if not node.domain or hosts == 1 or fabric_name(fabric, device) != fabric_name(node.intra_node, device):
        return hosts
    domains = ceil(num_devices / node.domain)
    said.assume(
        f"{node.domain} devices share one fabric ({node.intra_node}): {hosts} hosts counted as {domains} "
        f"{'node' if domains == 1 else 'nodes'} of the network"
    )
    return domains


def nodes_in_words(nodes: int, assumptions: Iterable[str]) -> str:
    """The nodes of an answer, or its hosts where a fabric spans several (`_network_nodes`)."""
    for spanned in filter(None, map(_SPANNED.search, assumptions)):
        return f"{spanned[1]} hosts " + ("of one fabric" if nodes == 1 else f"in {nodes} fabrics")
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def _intra(spelling: str, device: Device, node: NodeType, per_node: float, said: _Said) -> Link:
    own = said.own.find_link(spelling)
    if own is not None:
        said.assume(own.note if per_node > 1 else None)
        return own.seen(devices_per_node=per_node, slots=node.devices)
    link, note = fabric_link(spelling, device, devices_per_node=per_node)
    if per_node > 1:
        said.assume(note)
        if said.intra_node is None:
            said.assume(f"Link inside a node not given: {link.name} ({node.name})")
    return link


def _inter(node: NodeType, per_host: float, nodes: int, said: _Said) -> Link:
    """The network as one device sees it: a host's adapters shared by the devices on it."""
    spelling = said.inter_node or node.inter_node
    own = said.own_network(spelling)
    if own is not None:
        if nodes > 1:
            said.assume(own.note)
            said.assume(own.network.limit if own.per_device_bytes_per_s is None else None)
        return own.seen(devices_per_node=per_host, slots=node.devices)
    network = parse_network(spelling, fallback=node.inter_node)
    if not network.known:
        raise UnknownNameError(
            kind="network",
            name=spelling,
            known=known_networks(),
            hint=f"To fix: write {_NETWORK_WORDS[said.of_node]}, or leave {said.network_field} away for "
            f"that of {node.name} ({node.inter_node}).",
        )
    if said.of_node and network.speed_stated:
        network = in_adapters(network, parse_network(node.inter_node))
    if not says_adapters(spelling):
        network = _as_usual(network, node, explicit=said.node_type is not None)
    if nodes > 1:
        said.assume(network.assumption)
        said.assume(network.limit)
        usual = parse_network(node.inter_node)
        if said.of_node and usual.family == network.family and usual.adapters > network.adapters:
            said.assume(f"{network.name}: Gbit/s of a node in all; {node.name} usually has {usual.name}")
        if said.inter_node is None and said.node_type is None:
            said.assume(f"Network between nodes not given: {network.name} ({node.name})")
    return network.link(devices_per_node=per_host, slots=node.devices)


def _as_usual(network: Network, node: NodeType, *, explicit: bool) -> Network:
    """The network completed from the node type, when the adapters are unspecified.

    A spelling without a speed takes the node type's network of that family, usual or stated; one with a
    speed takes its number of adapters only where the node type was stated. Ethernet of a node type whose
    Ethernet has limits of its own has them.
    """
    usual = parse_network(node.inter_node)
    if not network.technology_stated or not is_kind_of(usual.family, network.family):
        return network
    network = replace(network, family=usual.family, flow_gbit_per_s=usual.flow_gbit_per_s, flows=usual.flows)
    if not network.speed_stated:
        note = f"network taken as {usual.name} ({node.name}): its speed is not given"
        return replace(usual, assumption=note)
    if explicit and usual.gbit_per_s == network.gbit_per_s:
        return replace(network, adapters=usual.adapters)
    return network


def _wiring(
    node: NodeType, device: Device, per_node: float, num_nodes: int, inside: str, said: _Said
) -> Fabric:
    """How the nodes are wired: what the caller states, over what node type and network usually are."""
    network = said.inter_node or node.inter_node
    words, stated = split_network(network)
    own = said.own_network(network)
    family = own.network.family if own else parse_network(words, fallback=node.inter_node).family
    same = not family or said.inter_node is None or is_kind_of(parse_network(node.inter_node).family, family)
    usual = node.fabric if same else family_fabric(family)[0]
    fabric, assumed = stated.over(replace(usual, torus=(), wraps=()))
    if num_nodes > 1:
        said.assume(assumed)
    oversubscribed = fabric.oversubscription > 1.0 and 0 < fabric.pod_nodes < num_nodes
    if oversubscribed and stated.oversubscription is None:
        said.assume(f"network {fabric.oversubscription:g}:1 beyond {fabric.pod_nodes} nodes ({node.name})")
    torus, linked = None, said.own.find_link(inside) is not None
    if node.fabric.torus and (linked or said.intra_node is None):
        torus = _stated_torus(node, per_node, said)
    if torus is None and not linked and fabric_name(inside, device) == _TORUS:
        torus = _slice(node, device, per_node, said)
    if torus is None:
        return fabric
    return replace(fabric, topology=torus.topology, torus=torus.torus, wraps=torus.wraps)


def _stated_torus(node: NodeType, per_node: float, said: _Said) -> Fabric | None:
    """The torus that a user's node type states, if it holds the devices."""
    if prod(node.fabric.torus) == round(per_node):
        return node.fabric
    shape = "x".join(map(str, node.fabric.torus))
    said.assume(f"torus {shape} of {node.name} not used: it does not hold {per_node:g} devices")
    return None


def _slice(node: NodeType, device: Device, per_node: float, said: _Said) -> Fabric | None:
    """The slice of a pod that so many devices get: of the node type, else of the device's usual one."""
    stated = stated_shape(said.intra_node or "", per_node)
    for name in (node.name, default_node_type(device).name):
        found = torus_fabric(name, per_node, stated)
        if found is not None:
            if not stated and per_node > 1:
                said.assume(f"slice of {'x'.join(map(str, found.torus))} devices assumed ({name})")
            return found
    return None
