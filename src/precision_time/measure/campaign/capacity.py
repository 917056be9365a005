"""Whether a Ray cluster can hold what a campaign asks for, before anything is started on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError
from .plan import Point, Setting

_WAYS_OUT = {
    "CPU": "ask for fewer workers or CPUs per worker, connect to a larger cluster with --address, or set "
    "oversubscribe: true for a local Ray (such points are labelled)",
    "GPU": "ask for fewer GPUs, or connect to a cluster that has them with --address",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class RayNode:
    """What a living node of the cluster offers."""

    cpus: float
    gpus: float


def nodes_of(ray: Any) -> list[RayNode]:
    """The living nodes of the connected cluster."""
    resources: list[Mapping[str, float]] = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return [RayNode(cpus=each.get("CPU", 0.0), gpus=each.get("GPU", 0.0)) for each in resources]


def check_capacity(points: Sequence[Point], nodes: Sequence[RayNode]) -> None:
    """Refuse a campaign that the cluster cannot hold.

    Raises:
        ConfigError: If a point asks for more CPUs, GPUs or nodes than there are; it names the point.
    """
    first = {point.setting: point for point in reversed(points)}
    for setting, point in first.items():
        if setting.num_nodes > len(nodes):
            raise ConfigError(
                f"The point {point} is to be spread over {setting.num_nodes} nodes, the cluster has "
                f"{len(nodes)}. To "
                "fix: fewer nodes, or connect to a larger cluster with --address."
            )
        _check(point, "CPU", setting.cpus_per_worker, [node.cpus for node in nodes])
        _check(point, "GPU", setting.gpus_per_worker, [node.gpus for node in nodes])


def _check(point: Point, what: str, each: float, offered: Sequence[float]) -> None:
    setting: Setting = point.setting
    if not each:
        return
    room = sum(int(amount / each + 1e-9) for amount in offered)
    if room < setting.num_workers:
        raise ConfigError(
            f"The point {point} needs {setting.num_workers} workers x {each:g} {what} = "
            f"{setting.num_workers * each:g} {what}, the cluster has {sum(offered):g} on {len(offered)} "
            f"node{'s' * (len(offered) != 1)}. To fix: {_WAYS_OUT[what]}."
        )
