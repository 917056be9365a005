"""Plugins: packages that add devices, stacks, predictors, commands and what else `GROUPS` names.

A package declares them in its pyproject.toml:

    [project.entry-points."precision_time.importers"]
    my-tracker = "my_package.importer:IMPORTER"

Names that are built in stay built in. A plugin that cannot be loaded is left out, with one warning that names
it. What packages declare is read from their `entry_points.txt` and remembered by folder and modification
time: looking takes a fraction of a millisecond, where `importlib.metadata` takes a tenth of a second.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from .cache import clear, data
from .errors import ConfigError, OutputError
from .io import cache_folder, write_atomically

TRAINED = "trained_predictors"
TRAINED_BY_MEMBERS = {"hierarchical": "precision-time-papers"}
"""Those of the project's other distributions, so that whoever names one learns what to install."""
GROUPS = (
    "devices",
    "stacks",
    "predictors",
    TRAINED,
    "importers",
    "trainers",
    "captures",
    "executors",
    "price_lists",
    "commands",
    "routes",
)
BUILT_IN = {
    "captures": {"torch": "precision_time.capture.remembered:capture_remembered"},
    "executors": {"ray": "precision_time.ray.executor:ray_map"},
    "price_lists": {"catalogues": "precision_time.price_lists.catalogues:read_catalogues"},
}
"""What ships beside the rooms, and needs packages that may be absent: found as what plugins declare is."""
_PREFIX = "precision_time."
_REMEMBERED = "plugins.json"
_MOST_FOLDERS = 64
_Declared = dict[str, list[list[str]]]
"""By group: names, and where the objects are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Plugin:
    """What a package declares, not loaded yet."""

    name: str
    value: str
    """Where the object is, such as "my_package.importer:IMPORTER"."""

    def load(self) -> Any:
        """The object.

        Raises:
            Exception: Whatever its module raises; AttributeError if it has no such object.
        """
        module, _, names = self.value.partition(":")
        found: Any = import_module(module.strip())
        for name in filter(None, names.split("[")[0].strip().split(".")):
            found = getattr(found, name)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """A command of another package: data, from which help and completion are made without loading it."""

    path: str
    """What is typed after `precision-time`, such as "papers campaign run"."""
    module: str
    """Of the function."""
    attribute: str
    """Name of the function, or of a `typer.Typer`, in the module."""
    summary: str
    """The line of the help."""
    examples: str = "EXAMPLES"
    """Name of the text below the help, in the module."""
    hands_on: bool = False
    """Whether words that are no options of the command are another program's."""
    section: str = "More"
    """Title above it in the help."""
    leaves: str = ""
    """Of a command that goes with the next release: what stands in its place. The help does not list it."""


@data
def plugins(group: str) -> Mapping[str, Plugin]:
    """What installed packages add to a group, not loaded yet.

    Raises:
        ConfigError: If there is no such group.
    """
    if group not in GROUPS:
        raise ConfigError(f"{group!r} is no group of plugins. To fix: name one of {', '.join(GROUPS)}.")
    found = {name: Plugin(name=name, value=value) for name, value in BUILT_IN.get(group, {}).items()}
    for name, value in sorted(_declared().get(group, ()), key=lambda entry: entry[1]):
        if name in found:
            if found[name].value != value:
                _say(f"The plugin {value} is left out: {found[name].value} has its name {name}.")
            continue
        found[name] = Plugin(name=name, value=value)
    return found


def is_predictor(named: Any) -> bool:
    """Whether a word names a predictor that a package brings, or would bring, in the place of a folder."""
    return str(named) in TRAINED_BY_MEMBERS or str(named) in plugins(TRAINED)


@data
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


def check_member(distribution: str, version: str) -> None:
    """Refuse a distribution of this project that another version of the core is installed beside.

    Raises:
        ConfigError: If the versions differ.
    """
    from . import __version__

    if version != __version__:
        raise ConfigError(
            f"{distribution} {version} does not fit precision-time {__version__}: both have one version. "
            f"To fix: pip install '{distribution}=={__version__}'."
        )


def forget_plugins() -> None:
    """Look again: packages were installed or removed."""
    clear()  # tables that hold what plugins add, too


@data
def _declared() -> _Declared:
    """What all installed packages declare for our groups, in the order of `sys.path`."""
    remembered = cache_folder() / _REMEMBERED
    known = _known(remembered)
    found: _Declared = {}
    now: dict[str, Any] = {}
    for folder in dict.fromkeys(sys.path):
        try:
            changed_ns = os.stat(folder).st_mtime_ns
        except OSError:  # "", an archive, a folder that is not there
            continue
        if (entry := known.get(folder)) and entry[0] == changed_ns:
            now[folder] = entry
        elif (declared := _declared_in(folder)) is not None:
            now[folder] = [changed_ns, declared]
        for group, entries in now.get(folder, (0, {}))[1].items():
            found.setdefault(group, []).extend(entries)
    if now.keys() - {name for name, entry in now.items() if known.get(name) == entry}:
        kept = dict([*known.items(), *now.items()][-_MOST_FOLDERS:])
        with contextlib.suppress(OSError, OutputError):  # nothing is lost: the next process looks again
            remembered.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(remembered, json.dumps(kept))
    return found


def _known(remembered: Path) -> dict[str, list[Any]]:
    """What was found before: by folder, its modification time and what its packages declare."""
    try:
        found = json.loads(remembered.read_bytes())
        return {
            folder: [
                int(changed_ns),
                {group: [[*map(str, each)] for each in some] for group, some in declared.items()},
            ]
            for folder, (changed_ns, declared) in found.items()
        }
    except (OSError, ValueError, TypeError, AttributeError):  # absent, damaged, or of another version
        return {}


def _declared_in(folder: str) -> _Declared | None:
    """What the packages of a folder declare for our groups; None where no packages are installed in it."""
    try:
        with os.scandir(folder) as entries:
            packages = [entry.path for entry in entries if entry.name.endswith((".dist-info", ".egg-info"))]
    except OSError:
        return None
    if not packages:
        return None
    from configparser import ConfigParser

    found: _Declared = {}
    for package in sorted(packages):
        try:
            content = Path(package, "entry_points.txt").read_bytes()
        except OSError:  # most packages declare nothing
            continue
        if f"[{_PREFIX}".encode() in content:
            parser = ConfigParser(delimiters=("=",), interpolation=None)
            parser.optionxform = str  # type: ignore[assignment,method-assign]
            parser.read_string(content.decode("utf-8", errors="replace"))
            for section in parser.sections():
                if section.startswith(_PREFIX):
                    group = found.setdefault(section.removeprefix(_PREFIX), [])
                    group += [[name, value] for name, value in parser.items(section)]
    return found


def _say(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
