"""Plugins: packages that add devices, stacks, predictors, importers or trainers by entry points.

A package declares them in its pyproject.toml:

    [project.entry-points."precision_time.importers"]
    my-tracker = "my_package.importer:IMPORTER"

Names that are built in stay built in. A plugin that cannot be loaded is left out, with one warning that names
it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from .errors import ConfigError

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


def forget_plugins() -> None:
    """Look again: packages were installed or removed."""
    plugins.cache_clear()
    loaded.cache_clear()


def _say(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
