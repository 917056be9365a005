"""dstack: a task's YAML in, estimates out.

Reference: dstack.ai/docs, "dstack.yml: task"; GPU words as `GPUSpec.parse` of dstack's `resources.py` reads
them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from precision_time.errors import ConfigError, PrecisionTimeError, shown
from precision_time.hardware.device_table import canonical_device
from precision_time.units import format_duration

from .cloud_tasks import DEVICE_REMEDY, Rented, estimate_task, rented
from .estimate import JobEstimate

SOURCE = "dstack task"
_READ = frozenset({"type", "name", "nodes", "commands", "env", "resources", "spot_policy", "max_duration"})
_WITHOUT_EFFECT = frozenset(
    {
        "image", "user", "privileged", "entrypoint", "working_dir", "home_dir", "registry_auth", "python",
        "nvcc", "single_branch", "shell", "priority", "volumes", "docker", "repos", "files", "dstack",
        "setup",
        "ports", "retry", "stop_duration", "max_price", "creation_policy", "idle_duration",
        "utilization_policy", "startup_order", "stop_criteria", "schedule", "fleets", "tags",
        "backends", "regions", "instance_types", "availability_zones", "init",
    }
)  # fmt: skip
"""Fields that move neither time nor money of the training itself, or that are read with the hosts."""
_VENDORS = frozenset({"nvidia", "amd", "google", "tpu", "intel", "tenstorrent", "tt"})
_BACKENDS = {"datacrunch": "verda"}
"""Backends that have another name in the price lists."""
_MEMORY = re.compile(r"(\d+(?:\.\d+)?)\s*(tb|gb|mb)?", re.I)
_GB = {"tb": 1024.0, "gb": 1.0, "mb": 1.0 / 1024.0}
_DURATION = re.compile(r"(?:(\d+)w)?(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?")
_UNIT_S = (7 * 86400, 86400, 3600, 60, 1)


def is_task(document: Any) -> bool:
    """Whether a YAML document is a dstack task."""
    return isinstance(document, Mapping) and document.get("type") == "task" and "apiVersion" not in document


def estimate(
    documents: Sequence[Any], *, folder: Path | None = None, given: Mapping[str, Any] | None = None
) -> list[JobEstimate]:
    """One estimate for each task, and for each GPU where a task names several.

    Args:
        documents: Of the YAML file.
        folder: Where files lie that the commands name; None where nothing may be read.
        given: Fields of `Request` and `RunOptions` that stand in the place of those of the file.

    Raises:
        ConfigError: If no document is a task.
    """
    tasks = [document for document in documents if is_task(document)]
    if not tasks:
        raise ConfigError("No dstack task: it has `type: task`. To fix: give the file of `dstack apply`.")
    return [found for task in tasks for found in _estimates(task, folder, given)]


def _estimates(
    task: Mapping[str, Any], folder: Path | None, given: Mapping[str, Any] | None
) -> Iterator[JobEstimate]:
    name = str(task.get("name") or "")
    try:
        if task.get("groups"):
            raise ConfigError("groups: hosts that differ are not predicted. To fix: nodes, all alike.")
        command, environment = _command(task.get("commands")), _environment(task.get("env"))
        choices = list(_choices(task))
        most_s = _most_s(task.get("max_duration"))
    except ConfigError as error:
        yield JobEstimate(source=SOURCE, name=name, reason=str(error))
        return
    unread = tuple(f"{key}: {shown(task[key])}" for key in task if str(key) not in _READ | _WITHOUT_EFFECT)
    for hosts in choices:
        found = estimate_task(
            hosts,
            source=SOURCE,
            name=name,
            command=command,
            environment=environment | _of_dstack(hosts),
            unread=unread,
            folder=folder,
            given=given,
        )
        if found.run is not None and most_s is not None:
            share = found.run.probability_within(most_s)
            note = (
                f"max_duration {format_duration(most_s)}: the run ends before with probability {share:.0%}."
            )
            found = replace(found, notes=(*found.notes, note))
        yield found


def _command(commands: Any) -> str:
    if commands is None:
        return ""
    if not isinstance(commands, list) or not all(isinstance(line, str) for line in commands):
        raise ConfigError(f"commands={shown(commands)} is no list of texts. To fix: one `- command` a line.")
    return "\n".join(commands)


def _environment(env: Any) -> dict[str, str]:
    """Variables with their values; those without one are not known here."""
    if env is None:
        return {}
    if isinstance(env, Mapping):
        return {str(name): str(value) for name, value in env.items() if value is not None}
    if isinstance(env, list):
        pairs = (str(line).partition("=") for line in env)
        return {name: value for name, equals, value in pairs if equals}
    raise ConfigError(f"env={shown(env)} is neither mapping nor list. To fix: write `- NAME=value`.")


def _of_dstack(hosts: Rented) -> dict[str, str]:
    """What dstack sets on the first host."""
    return {
        "DSTACK_NODES_NUM": str(hosts.nodes),
        "DSTACK_GPUS_PER_NODE": str(hosts.devices_per_node),
        "DSTACK_GPUS_NUM": str(hosts.devices_per_node * hosts.nodes),
        "DSTACK_NODE_RANK": "0",
        "DSTACK_MASTER_NODE_IP": "127.0.0.1",
    }


def _choices(task: Mapping[str, Any]) -> Iterator[Rented]:
    nodes = task.get("nodes")
    nodes = 1 if nodes is None else nodes
    if isinstance(nodes, bool) or not isinstance(nodes, int) or not 1 <= nodes <= 1_000_000:
        raise ConfigError(f"nodes={shown(nodes)} must be a whole number above 0. To fix: correct it.")
    resources = task.get("resources") or {}
    if not isinstance(resources, Mapping):
        raise ConfigError(
            f"resources={shown(resources)} is no mapping. To fix: `resources: {{gpu: A100:8}}`."
        )
    names, count, memory_gb, notes = _gpu(resources.get("gpu"))
    cloud, region, instance_type = (_only(task.get(key)) for key in ("backends", "regions", "instance_types"))
    known = _BACKENDS.get(cloud.lower(), cloud)
    spot = task.get("spot_policy") == "spot"
    if task.get("spot_policy") == "auto":
        notes += ("spot_policy: auto may rent either; the on-demand price is taken.",)
    if not names and not instance_type:
        said = "names no GPU" if resources.get("gpu") is None else f"{shown(resources['gpu'])} names no GPU"
        yield Rented(
            nodes=nodes, reason=f"resources.gpu {said}: any that is free may be rented. {DEVICE_REMEDY}"
        )
        return
    for name in names or [""]:
        hosts = rented(
            accelerator=_with_memory(name, memory_gb) if name else "",
            count=count,
            nodes=nodes,
            cloud=known,
            region=region,
            instance_type=instance_type,
            spot=spot,
        )
        taken = f"{name}: taken as {hosts.device}." if name and hosts.device and hosts.device != name else ""
        yield replace(hosts, notes=(*hosts.notes, *notes, *([taken] if taken else [])))


def _only(value: Any) -> str:
    """The one of a list; empty where there are several, or none: dstack chooses."""
    items = value if isinstance(value, list) else [] if value is None else [value]
    return str(items[0]) if len(items) == 1 else ""


def _gpu(spec: Any) -> tuple[list[str], float, float | None, tuple[str, ...]]:
    """Names, count, least memory [GB] and notes of `resources.gpu`."""
    if spec is None:
        return [], 1.0, None, ()
    if isinstance(spec, int | str) and not isinstance(spec, bool):
        spec = _words(str(spec))
    if not isinstance(spec, Mapping):
        raise ConfigError(f"resources.gpu={shown(spec)} is not read. To fix: write it like A100:80GB:8.")
    names = spec.get("name")
    names = names if isinstance(names, list) else [] if names is None else [names]
    low, is_range = _least(spec.get("count", 1))
    count = float(low) if re.fullmatch(r"\d+", low) else 0.0
    if not 1.0 <= count <= 1e6:
        raise ConfigError(f"resources.gpu: count {shown(spec.get('count'))} is none. To fix: as in A100:8.")
    notes: tuple[str, ...] = (f"gpu count {spec['count']}: the least is taken, {low}.",) if is_range else ()
    memory, memory_range = _least(spec.get("memory", ""))
    memory_gb = None
    if memory:
        match = _MEMORY.fullmatch(memory)
        if match is None:
            raise ConfigError(f"resources.gpu: memory {shown(spec['memory'])} is none. To fix: as in 80GB.")
        memory_gb = float(match[1]) * _GB[(match[2] or "gb").lower()]
        if memory_range:
            notes += (f"gpu memory {spec['memory']}: the least is taken, {memory_gb:g}GB.",)
    return [str(name) for name in names], count, memory_gb, notes


def _words(text: str) -> dict[str, Any]:
    """`vendor:name,name:memory:count` in any order, each at most once."""
    spec: dict[str, Any] = {}
    for token in text.replace(" ", "").split(":"):
        if token.lower() in _VENDORS:
            key, value = "vendor", token
        elif token[:1].isalpha():
            key, value = "name", token.removeprefix("tpu-").split(",")  # type: ignore[assignment]
        else:
            key, value = ("memory" if any(map(str.isalpha, token)) else "count"), token
        if key in spec or not token:
            raise ConfigError(f"resources.gpu={shown(text)} is not read. To fix: write it like A100:80GB:8.")
        spec[key] = value
    return spec


def _least(value: Any) -> tuple[str, bool]:
    """The lower end of a range, and whether it is one; the upper where the lower is open."""
    if isinstance(value, Mapping):
        low, high = value.get("min"), value.get("max")
        return str(low if low is not None else high), low != high
    low, dots, high = str(value).replace(" ", "").partition("..")
    return low or high, bool(dots) and low != high


def _with_memory(name: str, memory_gb: float | None) -> str:
    """A GPU's name with its memory, where the catalog tells them apart."""
    if memory_gb is None:
        return name
    for spelled in (f"{name}-{memory_gb:g}GB", name):
        try:
            canonical_device(spelled)
        except PrecisionTimeError:
            continue
        return spelled
    return name


def _most_s(value: Any) -> float | None:
    """Seconds of `max_duration`; None where it is off."""
    if value in (None, "off", False):
        return None
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return float(value)
    match = _DURATION.fullmatch(str(value).replace(" ", "")) if str(value) else None
    seconds = (
        sum(int(part) * unit for part, unit in zip(match.groups(), _UNIT_S, strict=True) if part)
        if match
        else 0
    )
    if not seconds:
        raise ConfigError(f"max_duration={shown(value)} is no duration. To fix: write it like 2h or 1d.")
    return float(seconds)
