"""Cluster words where a device is asked for: "8xA100", "2x8xH100", "p5.48xlarge", "4x dgx-h100"."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError, PrecisionTimeError, UnknownNameError
from .custom import Custom, load_custom
from .device_table import canonical_device, get_device
from .nodes import NodeType, default_node_type, get_node_type

_BEFORE = re.compile(
    r"(?:gpu[_ ])?(?:(?P<nodes>\d{1,7})\s*[x*×]\s*)?(?P<count>\d{1,7})(?:\s*[x*×][\s_]*|\s+)(?P<name>\S.*)",
    re.I,
)
_AFTER = re.compile(r"(?P<name>.*\S)\s*[x*×]\s*(?P<count>\d{1,7})", re.I)


def with_cluster_words(given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request with what its `device` says of counts and hosts in their own fields.

    >>> with_cluster_words({"device": "2x8xH100"})
    {'device': 'H100', 'gpus': 16, 'nodes': 2}
    >>> with_cluster_words({"device": "p4d.24xlarge", "gpus": 32})
    {'gpus': 32, 'node_type': 'p4d.24xlarge'}

    Raises:
        ConfigError: If the fields say something else than the words.

    Assumes: nodes without a number of devices are full.
    """
    fields = dict(given)
    own = _own(fields.get("custom"))
    words = fields.get("device")
    if isinstance(words, str) and not _is_device(words, own):
        said = _said(words, own)
        if said:
            del fields["device"]
            for name, value in said.items():
                if str(fields.setdefault(name, value)) != str(value):
                    raise ConfigError(
                        f"device={words} says {name}={value}, but {name}={fields[name]} is given as well. "
                        f"To fix: leave out {name}, or name the device alone."
                    )
            if "gpus" not in fields and "nodes" not in fields and (whole := _node_type(words, own)):
                fields["gpus"] = whole.domain or whole.devices
    if "nodes" in fields and "gpus" not in fields and (host := _host(fields, own)) is not None:
        # The rule of `nodes` names what is no count.
        with contextlib.suppress(TypeError, ValueError):
            fields["gpus"] = int(fields["nodes"]) * host.devices
    return fields


def _said(words: str, own: Custom) -> dict[str, Any]:
    """Fields that words stand for; none where they are no cluster words."""
    node = _node_type(words, own)
    if node is not None:
        return {"node_type": words}
    for rule in (_BEFORE, _AFTER):
        found = rule.fullmatch(words.strip())
        if found is None:
            continue
        counts = found.groupdict()
        name, count, nodes = counts["name"], int(counts["count"]), int(counts.get("nodes") or 0)
        for singular in (name, name.removesuffix("s")):
            if _is_device(singular, own):
                hosts = {"nodes": nodes} if nodes else {}
                return {"device": singular, "gpus": count * (nodes or 1), **hosts}
            node = _node_type(singular, own)
            if node is not None and not nodes:
                # Hosts of a larger domain (NVL72, TPU pods) are counted by the network, not by the user.
                hosts = {} if node.domain else {"nodes": count}
                return {"node_type": singular, "gpus": count * (node.domain or node.devices), **hosts}
    return {}


def _host(fields: Mapping[str, Any], own: Custom) -> NodeType | None:
    """The stated node type, or the usual one of the device."""
    if isinstance(fields.get("node_type"), str):
        return _node_type(fields["node_type"], own)
    device = fields.get("device")
    if not isinstance(device, str) or not _is_device(device, own):
        return None
    known = own.find_device(device) or get_device(device)
    return own.default_for(known) or default_node_type(known)


def _is_device(name: str, own: Custom) -> bool:
    try:
        return own.find_device(name) is not None or bool(canonical_device(name))
    except UnknownNameError:
        return False


def _node_type(name: str, own: Custom) -> NodeType | None:
    try:
        return own.find_node_type(name) or get_node_type(name)
    except UnknownNameError:
        return None


def _own(custom: Any) -> Custom:
    """What a custom file adds; nothing for one that cannot be read, which is told where it is used."""
    try:
        return Custom() if custom is None else load_custom(custom)
    except (PrecisionTimeError, TypeError):
        return Custom()
