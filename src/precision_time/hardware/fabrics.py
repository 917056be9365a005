"""How nodes are wired: topology, pods, oversubscription, slices of tori (`data/fabrics.toml`)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..cache import data
from ..errors import ConfigError
from ..records import dataclass
from .device import Fabric
from .device_table import load_toml

_OVERSUBSCRIPTION = re.compile(r"(?<![\w.:])(\d+(?:\.\d+)?)\s*:\s*1(?![\w.:])(?:\s*oversubscri\w*)?", re.I)
_PODS = re.compile(r"\bpods?\s+(?:of\s+)?(\d+)(?:\s*nodes?)?\b", re.I)
_TOPOLOGY = re.compile(r"\b(rail|fat|dragonfly)(?:[- ]?(?:optimi[sz]ed|tree))?\b(?![-\w])", re.I)
_WORDS = {"rail": "rail-optimized", "fat": "fat-tree", "dragonfly": "dragonfly"}
_SHAPE = re.compile(r"(?<![\w.])(\d+(?:\s*x\s*\d+){1,2})\s*$", re.I)


@dataclass(frozen=True, kw_only=True, slots=True)
class StatedFabric:
    """What a spelling of a network says of its wiring; None where it says nothing."""

    topology: str | None = None
    pod_nodes: int | None = None
    oversubscription: float | None = None

    def over(self, usual: Fabric) -> tuple[Fabric, str | None]:
        """The usual wiring with what was stated in its place, and what had to be assumed."""
        pods, ratio, note = self.pod_nodes, self.oversubscription, None
        if ratio is not None and ratio > 1.0 and not (pods or usual.pod_nodes):
            pods = _file()["assumed"]["pod_nodes"]
            note = f"pods of {pods} nodes assumed for an oversubscription of {ratio:g}:1"
        fabric = replace(
            usual,
            topology=self.topology or usual.topology,
            pod_nodes=pods or usual.pod_nodes,
            oversubscription=ratio or usual.oversubscription,
        )
        return fabric, note


def split_network(spelling: str) -> tuple[str, StatedFabric]:
    """A spelling of a network without what it says of the wiring, and that.

    >>> split_network("ib-ndr-400g x8 2:1 pods of 32")[0]
    'ib-ndr-400g x8'

    Raises:
        ConfigError: An oversubscription below 1 or a pod without nodes.
    """
    ratio, pods, topology = (rule.search(spelling) for rule in (_OVERSUBSCRIPTION, _PODS, _TOPOLOGY))
    if ratio is not None and float(ratio.group(1)) < 1.0:
        raise ConfigError(
            f"The network {spelling!r} has an oversubscription of {ratio.group(0).strip()}, but it is the "
            "bandwidth into a pod over that out of it, at least 1. To fix: write 1:1, 2:1 ..."
        )
    if pods is not None and int(pods.group(1)) < 1:
        raise ConfigError(f"The network {spelling!r} has pods of no nodes. To fix: give at least 1.")
    stated = StatedFabric(
        topology=None if topology is None else _WORDS[topology.group(1).lower()],
        pod_nodes=None if pods is None else int(pods.group(1)),
        oversubscription=None if ratio is None else float(ratio.group(1)),
    )
    words = spelling
    for rule in (_OVERSUBSCRIPTION, _PODS, _TOPOLOGY):
        words = rule.sub(" ", words)
    return (spelling if stated == StatedFabric() else " ".join(words.split()).strip(" ,;")), stated


def family_fabric(family: str) -> tuple[Fabric, str]:
    """The usual wiring of a family of networks (links.toml), and its source."""
    row = _file()["family"].get(family)
    if row is None:
        return Fabric(topology="flat"), "nothing is known of the wiring"
    return Fabric(topology=row["topology"]), row["source"]


def node_fabric(node_type: str) -> tuple[Fabric, str] | None:
    """The wiring of a node type of the catalog and its source; None where only its network is known."""
    slices = _file()["torus"].get(node_type)
    if slices is not None:
        return Fabric(topology=f"torus-{len(slices['limits'])}d"), slices["source"]
    row = _file()["node"].get(node_type)
    if row is None:
        return None
    fabric = Fabric(
        topology=row["topology"],
        pod_nodes=row.get("pod_nodes", 0),
        oversubscription=row.get("oversubscription", 1.0),
    )
    return fabric, row["source"]


def stated_shape(spelling: str, devices: float) -> tuple[int, ...]:
    """Dimensions that a spelling of a torus ends in ("ici 4x4x8"), if they hold that many devices."""
    found = _SHAPE.search(spelling)
    dims = () if found is None else tuple(int(word) for word in re.split(r"\s*x\s*", found.group(1).lower()))
    return dims if dims and math.prod(dims) == round(devices) else ()


def torus_fabric(node_type: str, devices: float, stated: tuple[int, ...] = ()) -> Fabric | None:
    """The slice of a torus that so many devices get; None where the node type is not a torus.

    Returns:
        Fabric with the dimensions, shortest first, and whether each closes to a ring. Without stated
        dimensions the shape nearest to a cube that the hardware allows.
    """
    row = _file()["torus"].get(node_type)
    if row is None:
        return None
    dims = stated or slice_shape(node_type, max(round(devices), 1))
    block = row.get("block", 1)
    whole = row.get("closes_blocks", False) and all(dim % block == 0 for dim in dims)
    wraps = tuple(whole or dim in row.get("closes", ()) for dim in dims)
    return Fabric(topology=f"torus-{len(dims)}d", torus=dims, wraps=wraps)


def slice_shape(node_type: str, devices: int) -> tuple[int, ...]:
    """Dimensions of the most compact slice of so many devices, shortest first.

    >>> slice_shape("TPUv4-pod", 512), slice_shape("TPUv5e-pod", 32)
    ((8, 8, 8), (4, 8))
    """
    row = _file()["torus"][node_type]
    limits, block = row["limits"], row.get("block", 1)
    unit = block if devices % block ** len(limits) == 0 else 1
    blocks = devices // unit ** len(limits)
    shapes = [tuple(unit * side for side in shape) for shape in _factorized(blocks, len(limits))]
    within = [
        shape for shape in shapes if all(side <= limit for side, limit in zip(shape, limits, strict=True))
    ]
    return min(within or shapes, key=lambda shape: (sum(shape), shape))


def _factorized(number: int, parts: int, least: int = 1) -> Iterator[tuple[int, ...]]:
    """Every way to write a number as a product of so many factors, each at least as large as the last."""
    if parts == 1:
        if number >= least:
            yield (number,)
        return
    for factor in range(least, round(number ** (1 / parts)) + 1):
        if number % factor == 0:
            for rest in _factorized(number // factor, parts - 1, factor):
                yield (factor, *rest)


@data
def _file() -> Mapping[str, Any]:
    return load_toml("fabrics.toml")
