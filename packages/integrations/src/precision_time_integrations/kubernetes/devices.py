"""What pods say of devices: how many of which resource, and the labels of the nodes that they ask for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from precision_time.cache import data
from precision_time.errors import ConfigError, UnknownNameError, shown
from precision_time.hardware.nodes import get_node_type
from precision_time.hardware.prices.offers import offers
from precision_time.io import packaged_toml
from precision_time_integrations.inventory.mapping import map_device

from .kinds import at, items


@dataclass(frozen=True, kw_only=True, slots=True)
class Devices:
    """Devices of one pod."""

    count: int
    """0 where it asks for none."""
    resource: str = ""
    """Such as "nvidia.com/gpu"."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Nodes:
    """Of the nodes that pods ask for."""

    device: str = ""
    """In the catalog's spelling; empty where no label says it."""
    node_type: str = ""
    """Likewise; known of instances whose network the catalog has."""
    cloud: str = ""
    spot: bool = False
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    """Labels of devices that the catalog does not hold, each with the reason."""


def devices_of(pod: Mapping[str, Any]) -> Devices:
    """Devices that the containers of a pod ask for, in sum.

    Args:
        pod: Spec of a pod.

    Raises:
        ConfigError: If they are parts of devices, of several kinds, or no whole number.
    """
    counted: dict[str, int] = {}
    for container in items(pod, "containers"):
        stated = {**at(container, "resources", "requests"), **at(container, "resources", "limits")}
        for name, quantity in stated.items():
            for part, words in _table()["parts"].items():
                if str(name).startswith(part):
                    raise ConfigError(
                        f"The pod asks for {name}, {words}. The rule: whole devices are answered. To fix: "
                        "ask for a whole device, or leave this job out."
                    )
            if name in _table()["resources"]:
                counted[name] = counted.get(name, 0) + _quantity(str(name), quantity)
    found = {name: count for name, count in counted.items() if count}
    if len(found) > 1:
        raise ConfigError(
            f"The pod asks for {' and '.join(sorted(found))}. The rule: devices of one kind. To fix: one of "
            "them."
        )
    for name, count in found.items():
        return Devices(count=count, resource=name)
    return Devices(count=0)


def _quantity(name: str, given: Any) -> int:
    text = str(given).strip()
    if isinstance(given, bool) or not text.isascii() or not text.isdecimal() or len(text) > 6:  # noqa: PLR2004
        raise ConfigError(
            f"{name} is {shown(given)}. The rule: devices are a whole number. To fix: such as {name}: 8."
        )
    return int(text)


def nodes_of(pod: Mapping[str, Any]) -> Nodes:
    """What node selector and required node affinity say of the device.

    Raises:
        ConfigError: If several devices are allowed, so that it is not known which one is used.
    """
    asked = labels_of(pod)
    names, notes, unread, clouds = [], [], [], []
    for label, values, cloud, device in _stated(asked):
        clouds.append(cloud)
        mapped, said = zip(*(device(value) for value in values), strict=True)
        if not all(mapped):
            unread += [
                f"{label}={value}: {why}"
                for value, name, why in zip(values, mapped, said, strict=True)
                if not name
            ]
            continue
        found = sorted(set(mapped))
        if len(found) > 1:
            raise ConfigError(
                f"The pod may run on {' or '.join(found)} ({label}). The rule: the answer is for one device. "
                "To fix: ask for one, or say it in the annotation precision-time.dev/job (device)."
            )
        names += found
        if len(names) == 1:  # labels come the most exact first
            notes += [f"Device: {why} ({label})." for why in dict.fromkeys(said) if why]
    spots = [
        row
        for row in _table()["spot"]
        if {value.lower() for value in asked.get(row["label"], ())} == {row["value"].lower()}
    ]
    clouds += [row.get("cloud", "") for row in spots]
    device = names[0] if names else ""
    return Nodes(
        device=device,
        node_type=_node_type(asked, device),
        cloud=next(filter(None, clouds), ""),
        spot=bool(spots),
        notes=tuple(notes),
        unread=tuple(unread),
    )


def _stated(asked: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Sequence[str], str, Any]]:
    """Labels that say the device: name, values, cloud, and the function that reads a value."""
    for row in _table()["device"]:
        if values := asked.get(row["label"]):
            yield row["label"], values, row.get("cloud", ""), _named
    for row in _table()["instance"]:
        if values := asked.get(row["label"]):
            known = [_instances().get(value) for value in values]
            cloud = known[0][1] if known[0] is not None else ""
            yield row["label"], values, cloud, _of_instance


def _named(value: str) -> tuple[str, str | None]:
    shared = value.removesuffix("-SHARED")
    if shared != value:
        return "", f"{shown(value)} is a GPU that pods share"
    return map_device(_table()["spellings"].get(value, value))


def _of_instance(value: str) -> tuple[str, str | None]:
    listed, node = _instances().get(value), _known_node_type(value)
    if listed or node:
        return (listed[0] if listed else node.device), None
    return "", f"the instance type {shown(value)} is not known, or has no accelerators"


def _known_node_type(value: str) -> Any:
    try:
        return get_node_type(value)
    except UnknownNameError:
        return None


def _node_type(asked: Mapping[str, Sequence[str]], device: str) -> str:
    """The type of the nodes, where one instance with that device is asked for; else empty."""
    for row in _table()["instance"]:
        values = set(asked.get(row["label"], ()))
        if len(values) == 1:
            [value] = values
            found = _known_node_type(value)
            if found is not None and found.device == device:
                return value
    return ""


@data
def _instances() -> Mapping[str, tuple[str, str]]:
    """Device and cloud by type of instance, of the table of prices."""
    return {offer.instance_type: (offer.device, offer.cloud) for offer in offers()}


def labels_of(pod: Mapping[str, Any]) -> dict[str, list[str]]:
    """Values by label that a node must have: of the selector, and of required affinity with In.

    Terms of an affinity stand for each other, so that their values are joined.
    """
    found: dict[str, list[str]] = {}
    affinity = at(pod, "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution")
    for term in items(affinity, "nodeSelectorTerms"):
        for expression in items(term, "matchExpressions"):
            if expression.get("operator") == "In":
                values = [str(value) for value in at(expression, "values", kind=list)]
                found.setdefault(str(expression.get("key")), []).extend(values)
    for label, value in at(pod, "nodeSelector").items():
        found[str(label)] = [str(value)]
    return found


def _table() -> Mapping[str, Any]:
    return packaged_toml(__package__, "data/labels.toml")
