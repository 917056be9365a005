"""Plugins: packages that add devices, stacks, predictors, importers or trainers by entry points.

A package declares them in its pyproject.toml:

    [project.entry-points."precision_time.importers"]
    my-tracker = "my_package.importer:IMPORTER"

Names that are built in stay built in. A plugin that cannot be loaded is left out, with one warning that names
it.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS = ("devices", "stacks", "predictors", "importers", "trainers")
_PREFIX = "precision_time."


@cache
def plugins(group: str) -> Mapping[str, EntryPoint]:
    """What installed packages add to a group, not loaded yet.

    Args:
        group: One of GROUPS.

    Raises:
        ConfigError: If there is no such group.
    """
    if group not in GROUPS:
        raise ConfigError(f"{group!r} is no group of plugins. To fix: name one of {', '.join(GROUPS)}.")
    if not _any_installed():
        return {}
    from importlib.metadata import entry_points

    found: dict[str, EntryPoint] = {}
    for entry in sorted(entry_points(group=_PREFIX + group), key=lambda entry: entry.value):
        if entry.name in found:
            _say(
                f"The plugin {entry.value} is left out: {found[entry.name].value} has its name {entry.name}."
            )
            continue
        found[entry.name] = entry
    return found


@cache
def loaded(group: str) -> Mapping[str, Any]:
    """What the plugins of a group are, by name; those that cannot be loaded are left out with a warning.

    Raises:
        ConfigError: If there is no such group.
    """
    found: dict[str, Any] = {}
    for name, entry in plugins(group).items():
        try:
            found[name] = entry.load()
        except Exception as error:  # noqa: BLE001 - whatever a plugin does, the rest works
            _say(
                f"The plugin {entry.value} cannot be loaded and is left out: {type(error).__name__}: {error}"
            )
    return found


def left_out(group: str, plugin: str, error: Exception) -> None:
    """Warn that what a plugin gives for a group cannot be used."""
    from .errors import printable

    said = f"{group.capitalize()} of the plugin {plugin} are left out: {type(error).__name__}: {error}"
    _say(printable(said, longest=1000))


def forget_plugins() -> None:
    """Look again: packages were installed or removed."""
    for cached in (plugins, loaded, _any_installed):
        cached.cache_clear()


@cache
def _any_installed() -> bool:
    """Whether any package declares a plugin: importlib.metadata takes a tenth of a second to say so."""
    for folder in sys.path:
        if os.path.isdir(folder):
            with os.scandir(folder) as entries:
                packages = [
                    entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))
                ]
            for package in packages:
                declared = Path(package, "entry_points.txt")
                try:
                    if f"[{_PREFIX}".encode() in declared.read_bytes():
                        return True
                except OSError:  # most packages declare nothing
                    continue
    return False


def _say(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
