"""Files that config maps of the same manifests bring into a container: configurations that commands name."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from typing import Any

from ..commands.launchers import Files
from .kinds import at, items

ConfigMaps = Mapping[tuple[str, str], Mapping[str, str]]
"""Texts by name, by namespace (empty where none is given) and name of the map."""


def config_maps(documents: Iterable[Any]) -> dict[tuple[str, str], dict[str, str]]:
    """The config maps among some objects; broken ones are passed over."""
    found = {}
    for document in documents:
        if isinstance(document, Mapping) and document.get("kind") == "ConfigMap":
            meta, data = document.get("metadata"), document.get("data")
            if isinstance(meta, Mapping) and isinstance(data, Mapping):
                texts = {str(name): text for name, text in data.items() if isinstance(text, str)}
                found[str(meta.get("namespace") or ""), str(meta.get("name"))] = texts
    return found


def files_of(container: Mapping[str, Any], pod: Mapping[str, Any], namespace: str, maps: ConfigMaps) -> Files:
    """Texts of the files of a container, by the names that its command has for them.

    Args:
        container: Of the pod.
        pod: Its spec.
        namespace: Of the job; empty where none is given.
        maps: As `config_maps` found them.

    Raises:
        ConfigError: If volumes or mounts are something else than the schema says.
    """
    volumes = {str(each.get("name")): _texts(each, namespace, maps) for each in items(pod, "volumes")}
    found: dict[str, str] = {}
    for mount in items(container, "volumeMounts"):
        texts = volumes.get(str(mount.get("name")), {})
        path, part = str(mount.get("mountPath", "")), mount.get("subPath")
        if part is not None:
            found |= {posixpath.normpath(path): texts[part]} if part in texts else {}
        else:
            found |= {posixpath.normpath(posixpath.join(path, name)): text for name, text in texts.items()}
    folder = str(container.get("workingDir") or "/")

    def read(name: str) -> str | None:
        return found.get(posixpath.normpath(posixpath.join(folder, name)))

    return read


def _texts(volume: Mapping[str, Any], namespace: str, maps: ConfigMaps) -> dict[str, str]:
    """Texts by path inside a volume; none where it is no config map, or one that is not there."""
    source = at(volume, "configMap")
    name = str(source.get("name"))
    known = maps.get((namespace, name)) or maps.get(("", name)) or {}
    chosen = items(source, "items")
    if not chosen:
        return dict(known)
    paths = {str(each.get("key")): str(each.get("path")) for each in chosen}
    return {path: known[key] for key, path in paths.items() if key in known}
