"""What writes the answers of a step: its share of a device, and how many answers it has room for.

Settings of each engine stand in `data/engines.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..hardware.device import Device
from ..records import dataclass
from ..workload.method import Generation
from .constants import constants
from .job import Job, Jobs

_ELEMENT_BYTES = 2.0
"""Engines hold weights, keys and values in 16 bits; weights in fewer where the policy is trained in fewer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Engine:
    """An engine as it is placed."""

    name: str
    settings: Mapping[str, Any]
    devices: int
    """All that generate."""
    apart: bool
    """Whether they only generate."""
    resident: bool
    """Whether it stays on the devices that train."""
    tp: int
    weight_bytes: float
    """Of the policy on one device."""
    cache_bytes: float
    """What one device has for keys and values; below 0 where the weights leave nothing."""
    needed_bytes: float
    """Of one device: weights, the longest answer with its prompt, and what the engine leaves free."""
    concurrent: float
    """Answers that are written at once, at least 1: what settings allow and memory has room for."""


def engines() -> Mapping[str, Mapping[str, Any]]:
    """Settings of every engine by name."""
    return constants("engines")["engine"]  # type: ignore[no-any-return]


def engine_of(generation: Generation, job: Job | Jobs) -> Engine:
    """The engine of a method."""
    device, graph = job.cluster.device, job.workload.graph
    name = generation.engine or usual_engine(device)
    settings, apart = engines()[name], generation.devices > 0
    devices = generation.devices or job.layout.world_size
    share = settings["memory_apart" if apart else "memory_colocated"]
    resident = generation.resident and not apart and settings["graphs"]
    share = constants("engines")["resident"]["memory"] if resident else share
    usable = device.usable_bytes * share
    narrow = job.precision.matmul.num_bytes < _ELEMENT_BYTES and settings["narrow"]
    whole = graph.params * (job.precision.matmul.num_bytes if narrow else _ELEMENT_BYTES)
    tp = generation.tp or _least_degree(whole, usable * settings["most_weights"], devices)
    room = usable - whole / tp
    token_bytes = generation.token_cache_elems * _ELEMENT_BYTES / min(tp, generation.cache_heads)
    # The mean age of what runs at a time: long answers run for longer.
    age = min(generation.mean_tokens * (1.0 + generation.spread**2) / 2.0, generation.most_tokens)
    prompt = float(generation.prompt.seq_len or 0)
    return Engine(
        name=name,
        settings=settings,
        devices=devices,
        apart=apart,
        resident=resident,
        tp=tp,
        weight_bytes=whole / tp,
        cache_bytes=room,
        needed_bytes=(whole / tp + (prompt + generation.most_tokens) * token_bytes)
        / settings["memory_apart"],
        concurrent=min(max(room / max((prompt + age) * token_bytes, 1.0), 1.0), settings["most_sequences"]),
    )


def usual_engine(device: Device) -> str:
    """The first engine that runs on a device: the last one runs everywhere."""
    return next(
        name for name, table in engines().items() if device.vendor in table.get("vendors", (device.vendor,))
    )


def _least_degree(whole: float, room: float, devices: int) -> int:
    """The least degree that divides the devices and over which the weights fit; else all devices."""
    fitting = (degree for degree in range(1, devices + 1) if devices % degree == 0)
    return next((degree for degree in fitting if whole / degree <= room), devices)
