"""What the workers told of a point, put together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from .plan import Point
from .point import FinishedPoint

_OVERSUBSCRIBED, _SIMULATED = "oversubscribed", "simulated-nodes"
_LONGEST_ERROR = 500


def finished_point(
    campaign: str,
    point: Point,
    facts: Sequence[Mapping[str, Any]],
    group_start_s: float | None,
    figures: Sequence[Mapping[str, Any]],
) -> FinishedPoint:
    """A point that was measured.

    Args:
        campaign: Its name.
        point: As it was asked for.
        facts: Of each worker, by rank.
        group_start_s: How long the workers took to be ready.
        figures: What each worker measured, by rank; times are those of rank 0.
    """
    first = dict(figures[0])
    start_up = (group_start_s, first.get("build_s"), first.get("warmup_s"), first["train_time_s"])
    step_s = first.get("step_time_s")
    samples = point.batch_per_worker * point.setting.num_workers
    powers = [each["power_w"] for each in figures if each.get("power_w") is not None]
    peaks = [each["peak_memory_bytes"] for each in figures if each.get("peak_memory_bytes") is not None]
    return FinishedPoint(
        **asked(campaign, point),
        **where(facts),
        **{
            **first,
            "group_start_s": group_start_s,
            "total_time_s": sum(each for each in start_up if each is not None),
            "samples_per_s": samples / step_s if step_s else None,
            "power_w": sum(powers) if len(powers) == len(figures) else None,
            "peak_memory_bytes": max(peaks, default=None),
        },
    )


def failed_point(
    campaign: str, point: Point, facts: Sequence[Mapping[str, Any]], error: str
) -> FinishedPoint:
    """A point that could not be measured, and why."""
    text = " ".join(error.split())
    short = text if len(text) <= _LONGEST_ERROR else text[: _LONGEST_ERROR - 3] + "..."
    return FinishedPoint(**asked(campaign, point), **where(facts), status="failed", error=short)


def asked(campaign: str, point: Point) -> dict[str, Any]:
    """The fields of a finished point that were known before."""
    setting = point.setting
    return {
        "campaign": campaign,
        "key": point.key,
        "repeat": point.repeat,
        "model": point.model,
        "dataset": point.dataset,
        "dataset_fraction": point.fraction,
        "num_samples": point.num_samples,
        "num_workers": setting.num_workers,
        "cpus_per_worker": setting.cpus_per_worker,
        "gpus_per_worker": setting.gpus_per_worker,
        "batch_per_worker": point.batch_per_worker,
        "precision": point.precision,
        "optimizer": point.optimizer,
        "sizes": dict(point.sizes),
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def where(facts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of a finished point that say where it ran; none before the workers have arrived."""
    if not facts:
        return {}
    hosts = tuple(each["host"] for each in facts)
    busy: Counter[str] = Counter()
    for each in facts:
        busy[each["host"]] += each["threads"]
    cores = {each["host"]: each["cores"] for each in facts}
    nodes = len({each["ray_node"] for each in facts})
    labels = {
        _OVERSUBSCRIBED: any(busy[host] > cores[host] for host in cores),
        _SIMULATED: nodes > len(cores),
    }
    first = facts[0]
    return {
        "hosts": hosts,
        "num_hosts": len(cores),
        "num_ray_nodes": nodes,
        "cores_per_host": min(cores.values()),
        "label": " ".join(label for label, holds in labels.items() if holds),
        "device": first["device"],
        "framework_version": first["framework_version"],
        "ray_version": first["ray_version"],
        "python_version": first["python_version"],
        "backend": first["backend"] if len(facts) > 1 else "",
    }
