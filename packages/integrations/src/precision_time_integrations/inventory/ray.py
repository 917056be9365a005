"""A cluster from Ray's node list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from precision_time.errors import CatalogError
from precision_time.hardware.inventory import ClusterResources, NodeResources
from precision_time.ray.executor import ray_session

from .mapping import resources

_KIND = "accelerator_type:"
_COUNTED = ("GPU", "TPU", "HPU", "NPU", "neuron_cores")
"""Resources that count devices, by vendor."""


def read_ray_nodes(nodes: Sequence[Mapping[str, Any]], *, custom: str = "") -> ClusterResources:
    """The cluster of the dictionaries that `ray.nodes()` gives; dead nodes are left out and noted.

    Args:
        nodes: Each with `Alive`, `NodeManagerHostname` and `Resources`: among these a count of devices (GPU),
            `accelerator_type:NAME`, CPU and memory [B].
        custom: File with the user's own devices.

    Raises:
        CatalogError: If an entry is not such a dictionary.
    """
    dead: list[str] = []
    alive: list[NodeResources] = []
    for number, node in enumerate(nodes, start=1):
        try:
            name = str(node.get("NodeManagerHostname") or node.get("NodeManagerAddress") or f"node {number}")
            if node["Alive"]:
                alive.append(_node(name, node["Resources"]))
            else:
                dead.append(name)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CatalogError(
                f"Entry {number} of Ray's node list is not as ray.nodes() gives it ({error!r}). To fix: pass "
                "its list as it is."
            ) from error
    notes = [f"left out, not alive: {', '.join(dead)}"] if dead else []
    return resources(alive, source="Ray", notes=notes, custom=custom)


def collect_ray(address: str | None = None, *, custom: str = "") -> ClusterResources:
    """The cluster that a running Ray reports.

    Args:
        address: As `ray.init` takes it; None joins the one that the environment names.
        custom: File with the user's own devices.

    Raises:
        MissingExtraError: If ray is not installed.
        ConfigError: If no Ray answers there.
    """
    with ray_session(address or "auto") as ray:
        return read_ray_nodes(ray.nodes(), custom=custom)


def _node(name: str, reported: Mapping[str, Any]) -> NodeResources:
    kinds = sorted(key.removeprefix(_KIND) for key in reported if key.startswith(_KIND))
    count = max((int(reported[word]) for word in _COUNTED if word in reported), default=0)
    memory = reported.get("memory")
    return NodeResources(
        name=name,
        reported_device=kinds[0] if len(kinds) == 1 else "mixed:" + "+".join(kinds) if kinds else "",
        num_devices=count,
        cores=int(reported["CPU"]) if "CPU" in reported else None,
        memory_bytes=None if memory is None else float(memory),
    )
