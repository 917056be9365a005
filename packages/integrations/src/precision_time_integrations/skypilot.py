"""SkyPilot: a task's YAML in, estimates out; and how long a task takes, for SkyPilot's optimizer.

Reference: docs.skypilot.co, "SkyPilot YAML"; fields as of SkyPilot 0.14.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from precision_time.errors import ConfigError, PrecisionTimeError, shown

from .cloud_tasks import Rented, estimate_task, rented
from .estimate import JobEstimate

SOURCE = "SkyPilot task"
_TASK = frozenset({"run", "resources", "num_nodes", "setup"})
"""Fields by which a task is known; `run` is what it does."""
_SILENT = frozenset(
    {
        "name", "workdir", "setup", "run", "resources", "num_nodes", "envs", "secrets", "managed_secrets",
        "file_mounts", "volumes", "volume_mounts", "event_callback", "inputs", "outputs", "config",
        "api_server_access", "file_mounts_mapping",
    }
)  # fmt: skip
"""Fields of a task that are read, or that move neither time nor money of the training itself."""
_SILENT_RESOURCES = frozenset(
    {
        "cloud", "region", "zone", "infra", "accelerators", "instance_type", "use_spot", "any_of", "ordered",
        "ports", "labels", "image_id", "disk_size", "disk_tier", "ephemeral_storage", "priority",
        "priority_class", "autostop", "memory", "accelerator_args", "job_recovery", "volumes",
    }
)  # fmt: skip
_MOST_CHOICES = 64
NEVER_S = 10 * 365 * 86400
"""What SkyPilot is told of hosts on which the task does not fit, or that nobody here knows [s]."""


def is_task(document: Any) -> bool:
    """Whether a YAML document is a SkyPilot task."""
    return isinstance(document, Mapping) and "apiVersion" not in document and not _TASK.isdisjoint(document)


def estimate(
    documents: Sequence[Any], *, folder: Path | None = None, given: Mapping[str, Any] | None = None
) -> list[JobEstimate]:
    """One estimate for each task, and for each choice of hosts where a task has several.

    Args:
        documents: Of the YAML file; several are a pipeline, whose first may hold its name alone.
        folder: Where files lie that `run` names; None where nothing may be read.
        given: Fields of `Request` and `RunOptions` that stand in the place of those of the file.

    Raises:
        ConfigError: If no document is a task.
    """
    tasks = [document for document in documents if is_task(document)]
    if not tasks:
        raise ConfigError(
            "No SkyPilot task: a task is a mapping with `run` and `resources`. To fix: give the file that "
            "`sky launch` takes."
        )
    return [found for task in tasks for found in _estimates(task, folder, given)]


def _estimates(
    task: Mapping[str, Any], folder: Path | None, given: Mapping[str, Any] | None
) -> Iterator[JobEstimate]:
    name = str(task.get("name") or "")
    try:
        if "service" in task or "pool" in task:
            raise ConfigError("It is a service or a pool, not a training. To fix: give the task that trains.")
        nodes = _nodes(task.get("num_nodes"))
        choices = list(_choices(task.get("resources"), nodes))
        command, environment = _text(task.get("run"), "run"), _environment(task)
    except ConfigError as error:
        yield JobEstimate(source=SOURCE, name=name, reason=str(error))
        return
    unread = tuple(f"{key}: {shown(task[key])}" for key in task if str(key) not in _SILENT)
    for hosts, ignored in choices:
        yield estimate_task(
            hosts,
            source=SOURCE,
            name=name,
            command=command,
            environment=environment | _of_sky(hosts),
            unread=(*unread, *ignored),
            folder=folder,
            given=given,
        )


def _text(value: Any, name: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise ConfigError(f"{name} is {type(value).__name__}, not text. To fix: write the commands as text.")


def _nodes(value: Any) -> int:
    if value is None:
        return 1
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1_000_000:
        raise ConfigError(f"num_nodes={shown(value)} must be a whole number above 0. To fix: correct it.")
    return value


def _environment(task: Mapping[str, Any]) -> dict[str, str]:
    envs = task.get("envs") or {}
    if not isinstance(envs, Mapping):
        raise ConfigError(f"envs={shown(envs)} is no mapping. To fix: write it like `envs: {{NAME: value}}`.")
    return {str(name): str(value) for name, value in envs.items() if value is not None}


def _of_sky(hosts: Rented) -> dict[str, str]:
    """What SkyPilot sets on the first host."""
    return {
        "SKYPILOT_NUM_NODES": str(hosts.nodes),
        "SKYPILOT_NUM_GPUS_PER_NODE": str(hosts.devices_per_node),
        "SKYPILOT_NODE_RANK": "0",
        "SKYPILOT_NODE_IPS": "\n".join(["127.0.0.1"] * min(hosts.nodes, 1024)),
    }


def _choices(resources: Any, nodes: int) -> Iterator[tuple[Rented, tuple[str, ...]]]:
    """Hosts that the task may run on, and what is not understood of each."""
    if resources is None:
        resources = {}
    if not isinstance(resources, Mapping):
        raise ConfigError(
            f"resources={shown(resources)} is no mapping. To fix: write it like `resources: {{accelerators: "
            "A100:8}`."
        )
    several = resources.get("any_of") or resources.get("ordered") or [{}]
    if not isinstance(several, Sequence) or not all(isinstance(each, Mapping) for each in several):
        raise ConfigError("any_of and ordered are lists of resources. To fix: write `- accelerators: A100`.")
    count = 0
    for each in several:
        one = {**resources, **each}
        ignored = tuple(f"resources.{key}: {shown(one[key])}" for key in one if key not in _SILENT_RESOURCES)
        for accelerator, devices in _accelerators(one.get("accelerators")):
            count += 1
            if count > _MOST_CHOICES:
                raise ConfigError(f"More than {_MOST_CHOICES} choices of hosts. To fix: name fewer.")
            cloud, region = _where(one)
            yield (
                rented(
                    accelerator=accelerator,
                    count=devices,
                    nodes=nodes,
                    cloud=cloud,
                    region=region,
                    instance_type=str(one.get("instance_type") or ""),
                    spot=one.get("use_spot") is True,
                ),
                ignored,
            )


def _accelerators(value: Any) -> Iterator[tuple[str, float]]:
    """Names and counts: `A100:8`, `{A100: 8}`, a list or set of such; one nameless where none is given."""
    if value is None:
        yield "", 0.0
    elif isinstance(value, str):
        name, _, count = value.partition(":")
        yield name.strip(), _count(count or 1, value)
    elif isinstance(value, Mapping):
        for name, count in value.items():
            # A set of `A100:8` is read as keys without values.
            yield from _accelerators(str(name)) if count is None else [(str(name), _count(count, value))]
    elif isinstance(value, list):
        for each in value:
            yield from _accelerators(each)
    else:
        raise ConfigError(f"accelerators={shown(value)}: write it like A100:8. To fix: correct it.")


def _count(count: Any, value: Any) -> float:
    try:
        number = float(count)
    except (TypeError, ValueError):
        number = math.nan
    if not (math.isfinite(number) and number > 0.0):
        raise ConfigError(f"accelerators={shown(value)}: {shown(count)} is no count. To fix: as in A100:8.")
    return number


def _where(resources: Mapping[str, Any]) -> tuple[str, str]:
    """Cloud and region, of their own fields or of `infra: cloud/region/zone`; empty for anywhere."""
    infra = str(resources.get("infra") or "")
    cloud, _, region = infra.partition("/")
    cloud = str(resources.get("cloud") or cloud)
    region = str(resources.get("region") or region.partition("/")[0])
    return "" if cloud == "*" else cloud, "" if region == "*" else region


def time_estimator(task: Any, *, quantile: float = 0.5, **fields: Any) -> Callable[[Any], int]:
    """How long a task takes on hosts, for `sky.Task.set_time_estimator`.

    SkyPilot asks it once for each of the task's `resources`, and does not say on how many nodes: that is the
    task's.

    Args:
        task: A `sky.Task`, or the mapping of its YAML; its `run`, `envs` and `num_nodes` are read.
        quantile: Probability with which the run ends within the answer.
        fields: Of `Request` and `RunOptions`, in the place of what `run` says.

    Returns:
        From `sky.Resources` to seconds; `NEVER_S`, with a warning, for hosts that the task does not fit on or
        that are not known: SkyPilot then takes others.

    Raises:
        ConfigError: If the task does not say which model it trains, or how long.

    Example:
        `task.set_time_estimator(time_estimator(task))`
    """
    config = dict(task if isinstance(task, Mapping) else task.to_yaml_config())
    config["resources"] = {"accelerators": "A100:1"}
    known = estimate([config], given=fields)[0]
    if known.missing:
        raise ConfigError(known.reason)

    def seconds(resources: Any) -> int:
        asked = {**config, "resources": _of_resources(resources)}
        try:
            [found] = estimate([asked], given=fields)
            duration = found.duration_s(quantile)
        except PrecisionTimeError as error:
            found, duration = known, None
            reason = str(error)
        else:
            reason = found.reason
        if duration is None or not found.fits:
            warnings.warn(f"{resources}: {reason or 'the task does not fit in memory there'}", stacklevel=2)
            return NEVER_S
        return math.ceil(duration)

    return seconds


def _of_resources(resources: Any) -> dict[str, Any]:
    """The fields of a `sky.Resources` that a task's YAML would have."""
    cloud = getattr(resources, "cloud", None)
    return {
        "accelerators": dict(resources.accelerators) if resources.accelerators else None,
        "instance_type": getattr(resources, "instance_type", None),
        "cloud": None if cloud is None else str(cloud),
        "region": getattr(resources, "region", None),
        "use_spot": bool(getattr(resources, "use_spot", False)),
    }
