"""From a manifest to the fields of a request."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from precision_time.errors import ConfigError, shown
from precision_time.planning.run.schema import RunOptions
from precision_time.request.schema import ALIASES
from precision_time.request.sweep import RUN

from ..commands.read import ReadCommand, read_command
from ..commands.statement import VARIABLE
from .config_maps import ConfigMaps, files_of
from .devices import Devices, Nodes, devices_of, nodes_of
from .kinds import Kind, Place, PodGroup, Shape, at, items
from .limits import PREFIX

JOB_ANNOTATION = f"{PREFIX}job"
"""What is trained, as a JSON object of fields of a request and of a run."""
_LONGEST = 64 * 2**10
"""Of that annotation [characters]."""
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_QUEUE_LABEL, _QUEUE_LIMIT = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/max-exec-time-seconds"


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What one object says of a training."""

    source: str
    """Such as "batch/v1 Job"."""
    name: str
    """With its namespace, where it has one; of a generated name what comes before the dots."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    reason: str = ""
    """Why it cannot be answered; empty where nothing speaks against it."""
    trains: bool = True
    """Whether it has accelerators or states in our words what it trains."""
    lacks_device: bool = False
    """Whether that is the reason, so that a device that the user states removes it."""
    deadlines: tuple[Place, ...] = ()
    """Where its limit of time belongs."""
    limits: tuple[str, ...] = ()
    """Other limits of time that hold for it, in words."""


def read_manifest(document: Mapping[str, Any], kind: Kind, maps: ConfigMaps | None = None) -> Manifest:
    """What an object says; what is broken or cannot be answered is the reason, never an error.

    Args:
        document: An object of that kind.
        kind: As `kind_of` found it.
        maps: Config maps, which may hold files that its command names.
    """
    source = f"{document['apiVersion']} {kind.name}"
    name = ""
    try:
        name = _name(document)
        return _read(document, kind, source, name, maps or {})
    except (ConfigError, RecursionError) as error:
        return Manifest(source=source, name=name, reason=str(error) or "The manifest is nested too deeply.")


def _name(document: Mapping[str, Any]) -> str:
    meta = at(document, "metadata")
    name = meta.get("name") or (f"{meta['generateName']}..." if meta.get("generateName") else "")
    return f"{meta['namespace']}/{name}" if meta.get("namespace") else str(name)


def _read(document: Mapping[str, Any], kind: Kind, source: str, name: str, maps: ConfigMaps) -> Manifest:
    shape = kind.read(document)
    counted = [(group, devices_of(at(group.template, "spec"))) for group in shape.groups if group.count]
    with_devices = [(group, devices) for group, devices in counted if devices.count]
    training = [group for group, _ in with_devices] or [group for group, _ in counted]
    if not training and not shape.elsewhere:
        raise ConfigError("The job has no pods. To fix: give it at least one replica.")
    stated, unread = _stated_job(document, training)
    notes = [*shape.notes]
    fields: dict[str, Any] = {}
    if with_devices:
        per_pod = {devices.count for _, devices in with_devices}
        if len({devices.resource for _, devices in with_devices}) > 1:
            raise ConfigError("The pods ask for devices of several kinds. To fix: one kind for each job.")
        fields["gpus"] = sum(group.count * devices.count for group, devices in with_devices)
        fields["nodes"] = sum(group.count for group, _ in with_devices)
        if fields["nodes"] > 1:
            notes.append(
                f"Each of the {fields['nodes']} pods with devices is taken to be on a node of its own."
            )
        if len(per_pod) > 1:
            notes.append(f"The pods have {', '.join(map(str, sorted(per_pod)))} devices: the mean is taken.")
    if any(at(each, "resources").get("claims") for group in training for each in _containers(group)):
        unread.append("devices of resource claims (DRA): say device and gpus in the annotation")
    nodes = _nodes(training)
    notes += nodes.notes
    unread = [*unread, *nodes.unread]
    if nodes.device:
        fields["device"] = nodes.device
    if nodes.node_type:
        fields["node_type"] = nodes.node_type
    options: dict[str, Any] = {"spot": True} if nodes.spot else {}
    if nodes.cloud:
        options["cloud"] = nodes.cloud
    namespace = str(at(document, "metadata").get("namespace") or "")
    read, hidden = _command(shape, kind, training, with_devices, (namespace, maps))
    unread += [*hidden, *read.unread]
    notes += (*read.notes, *read.assumed)
    counted_twice = read.gpus and not shape.tells_torchrun and "gpus" not in {*read.stated, *stated}
    if counted_twice and fields.get("gpus", read.gpus) != read.gpus:
        notes.append(
            f"Processes that the command starts: {read.gpus}; devices of the pods: {fields['gpus']}, all of "
            "which are taken to train."
        )
    explicit = {name: value for name, value in read.fields.items() if name in read.stated}
    is_stated = not {"device", "node_type"}.isdisjoint({*explicit, *stated})
    if is_stated:
        fields = {name: value for name, value in fields.items() if name not in ("device", "node_type")}
    fields = {**read.fields, **fields, **explicit}
    options |= read.run_options
    on_run = RunOptions.model_fields.keys()
    options |= {key: value for key, value in stated.items() if key in on_run}
    fields |= {key: value for key, value in stated.items() if key not in on_run}
    if shape.suspended:
        notes.append("The job is suspended: its limit of time counts from when it is resumed.")
    reason = "" if is_stated else shape.elsewhere or _no_device(fields, document, asks=bool(with_devices))
    return Manifest(
        source=source,
        name=name,
        fields=fields,
        options=options,
        unread=tuple(unread),
        notes=tuple(dict.fromkeys(notes)),
        reason=reason,
        trains=bool(with_devices or stated or read.stated),
        lacks_device=bool(reason),
        deadlines=_deadlines(kind, training),
        limits=_limits(document, training),
    )


def _no_device(fields: Mapping[str, Any], document: Mapping[str, Any], *, asks: bool) -> str:
    """Why it is not known on what the job runs; empty where it is."""
    if asks and fields.get("device"):
        return ""
    say = (
        f"in the node selector (nvidia.com/gpu.product, cloud.google.com/gke-accelerator, "
        f"node.kubernetes.io/instance-type ...), in the annotation {JOB_ANNOTATION}, or as --device"
    )
    if not asks:
        return (
            "The job asks for no GPU, TPU or other accelerator. To fix: nothing, where it trains no model; "
            f"else give its containers a limit such as nvidia.com/gpu: 8, and say which device {say}."
        )
    queue = at(document, "metadata", "labels").get(_QUEUE_LABEL)
    where = f", and the queue {shown(queue)} may choose any" if queue else ""
    return f"The manifest does not say which device the nodes have{where}. To fix: say it {say}."


def _stated_job(
    document: Mapping[str, Any], training: Sequence[PodGroup]
) -> tuple[dict[str, Any], list[str]]:
    """Fields of our annotation on the object, or on its pods.

    Raises:
        ConfigError: If it is no JSON object of fields.
    """
    places = [document, *(group.template for group in training)]
    found: dict[str, Any] = {}
    unread: list[str] = []
    for place in reversed(places):  # the object's own counts most
        text = at(place, "metadata", "annotations").get(JOB_ANNOTATION)
        if text is not None:
            found |= _parsed(text)
    return found, unread


def _parsed(text: Any) -> dict[str, Any]:
    example = f'{JOB_ANNOTATION}: \'{{"model": "resnet50", "batch_size": 256, "epochs": 90}}\''
    try:
        if not isinstance(text, str) or len(text) > _LONGEST:
            raise ValueError(f"it is no text of at most {_LONGEST:,} characters")
        given = json.loads(text)
        if not isinstance(given, dict):
            raise ValueError("it is no object")
        nested = given.pop(RUN, {})
        if not isinstance(nested, dict):
            raise ValueError(f"{RUN} is no object")
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"The annotation {JOB_ANNOTATION} is {shown(text)}: {error}. The rule: a JSON object of fields "
            f"of a job. To fix: such as {example}."
        ) from None
    return {ALIASES.get(name, name): value for name, value in {**given, **nested}.items()}


def _nodes(training: Sequence[PodGroup]) -> Nodes:
    """What the pods that train ask of their nodes.

    Raises:
        ConfigError: If groups ask for different devices.
    """
    found = [nodes_of(at(group.template, "spec")) for group in training]
    if len({each.device for each in found}) > 1:
        raise ConfigError("The pods ask for nodes with different devices. To fix: one device for each job.")
    return found[0] if found else Nodes()


def _command(
    shape: Shape,
    kind: Kind,
    training: Sequence[PodGroup],
    with_devices: Sequence[tuple[PodGroup, Devices]],
    maps: tuple[str, ConfigMaps],
) -> tuple[ReadCommand, list[str]]:
    """What the command of the training says, and what of it stands elsewhere."""
    launching = [group for group in shape.groups if group.role in kind.launchers] or list(training)
    pod: Mapping[str, Any] = at(launching[0].template, "spec") if launching else {}
    container = _container(pod)
    environment, hidden = _environment(container)
    environment = {**shape.environment, **environment}
    words: Any = shape.entry
    if words is None:
        texts = [str(word) for name in ("command", "args") for word in at(container, name, kind=list)]
        words = _script([_expanded(text, environment) for text in texts])
    elsewhere = [f"{VARIABLE} comes from a secret or a config map"] if VARIABLE in hidden else []
    if not words and VARIABLE not in environment:
        return ReadCommand(), elsewhere
    per_pod = shape.processes_per_pod or next((devices.count for _, devices in with_devices), None)
    read = read_command(
        words,
        environment=environment,
        files=files_of(container, pod, *maps),
        gpus_per_node=per_pod,
        nodes=sum(group.count for group in training),
    )
    return read, elsewhere


def _script(words: list[str]) -> list[str] | str:
    """The text that a shell is given by `-c`, in the place of the words."""
    if words and words[0].rpartition("/")[2] in _SHELLS:
        for place, word in enumerate(words[1:-1], start=1):
            if word.startswith("-") and word.endswith("c") and not word.startswith("--"):
                return words[place + 1]
    return words


def _containers(group: PodGroup) -> Sequence[Mapping[str, Any]]:
    return items(at(group.template, "spec"), "containers")


def _container(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container that trains: the one with devices, else the first."""
    containers = items(pod, "containers")
    for container in containers:
        if devices_of({"containers": [container]}).count:
            return container
    return containers[0] if containers else {}


def _environment(container: Mapping[str, Any]) -> tuple[dict[str, str], set[str]]:
    """Variables with their values, and names of those whose values stand elsewhere."""
    found: dict[str, str] = {}
    hidden = set()
    for item in items(container, "env"):
        name = str(item.get("name", ""))
        if "valueFrom" in item:
            hidden.add(name)
        else:
            found[name] = _expanded(str(item.get("value", "")), found)
    return found, hidden


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """A text with `$(NAME)` replaced, as Kubernetes does; unknown names stay, `$$` is one dollar."""
    return _REFERENCE.sub(
        lambda found: "$" if found[0] == "$$" else environment.get(found[1], found[0]), text
    )


def _deadlines(kind: Kind, training: Sequence[PodGroup]) -> tuple[Place, ...]:
    if kind.deadline is not None:
        return (kind.deadline,)
    return tuple(group.deadline for group in training if group.deadline is not None)


def _limits(document: Mapping[str, Any], training: Sequence[PodGroup]) -> tuple[str, ...]:
    """Limits of time that are not ours to set: of pods, and of a queue. With their seconds."""
    found = []
    queue = at(document, "metadata", "labels").get(_QUEUE_LIMIT)
    if queue is not None:
        found.append(f"label {_QUEUE_LIMIT}={queue}")
    for group in training:
        own = at(group.template, "spec").get("activeDeadlineSeconds")
        if own is not None:
            found.append(f"activeDeadlineSeconds={own} of the pods")
    return tuple(dict.fromkeys(found))
