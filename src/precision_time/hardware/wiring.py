"""The wiring of one cluster: what a user says of it, over what its node type and network usually are."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from .custom import Custom
from .device import Device, Fabric
from .fabrics import family_fabric, split_network, stated_shape, torus_fabric
from .links import fabric_name, parse_network
from .nodes import NodeType, default_node_type

_TORUS = "ici"


def wiring_of(
    node: NodeType,
    device: Device,
    *,
    num_devices: int,
    num_nodes: int,
    inside: str,
    intra_node: str | None,
    inter_node: str | None,
    own: Custom,
) -> tuple[Fabric, list[str]]:
    """How the nodes of a cluster are wired, and what had to be assumed, in words.

    Args:
        node: Node type, with its usual wiring.
        device: Decides what the link inside a node means.
        num_devices: Devices in all.
        num_nodes: Nodes (or pods of a torus) as the network counts them.
        inside: Link inside a node, in exact words.
        intra_node: The same as the user says it; None where it is unspecified.
        inter_node: Network as the user says it; None where it is unspecified.
        own: Devices, node types and links of the user's file.
    """
    network = inter_node or node.inter_node
    words, stated = split_network(network)
    known = own.has_link(network) or own.has_link(words)
    alike = known or parse_network(words).family == parse_network(node.inter_node).family
    usual = node.fabric if alike else family_fabric(parse_network(words).family)[0]
    fabric, assumed = stated.over(replace(usual, torus=(), wraps=()))
    notes = [assumed] if assumed is not None and num_nodes > 1 else []
    thinned = fabric.oversubscription > 1.0 and 0 < fabric.pod_nodes < num_nodes
    if thinned and stated.oversubscription is None:
        notes.append(f"network {fabric.oversubscription:g}:1 beyond {fabric.pod_nodes} nodes ({node.name})")
    linked, per_node = own.has_link(inside), num_devices / num_nodes
    torus, found = None, []
    if node.fabric.torus and (linked or intra_node is None):
        torus, note = _own_torus(node, per_node)
        found.append(note)
    if torus is None and not linked and fabric_name(inside, device) == _TORUS:
        torus, note = _slice(node, device, per_node, intra_node)
        found.append(note)
    notes += [note for note in found if note is not None]
    if torus is None:
        return fabric, notes
    return replace(fabric, topology=torus.topology, torus=torus.torus, wraps=torus.wraps), notes


def _own_torus(node: NodeType, per_node: float) -> tuple[Fabric | None, str | None]:
    """The torus that a user's node type states, if it holds the devices."""
    if prod(node.fabric.torus) == round(per_node):
        return node.fabric, None
    shape = "x".join(map(str, node.fabric.torus))
    return None, f"torus {shape} of {node.name} not used: it does not hold {per_node:g} devices"


def _slice(
    node: NodeType, device: Device, per_node: float, intra_node: str | None
) -> tuple[Fabric | None, str | None]:
    """The slice of a pod that so many devices get: of the node type, else of the device's usual one."""
    stated = stated_shape(intra_node or "", per_node)
    for name in (node.name, default_node_type(device).name):
        found = torus_fabric(name, per_node, stated)
        if found is not None:
            said = stated or per_node <= 1
            shape = "x".join(map(str, found.torus))
            return found, None if said else f"slice of {shape} devices assumed ({name})"
    return None, None
