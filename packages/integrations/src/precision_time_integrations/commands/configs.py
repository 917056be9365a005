"""Configuration files that a command names: JSON, YAML and TOML, of bounded size, as plain mappings."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from precision_time.errors import PrecisionTimeError
from precision_time.io import read_input, read_yaml

MOST_BYTES = 1_000_000
_MOST_DEPTH = 12


def files_below(folder: Path) -> Callable[[str], str | None]:
    """Reads files by the names that commands have for them: below a folder where they are relative.

    Returns:
        A function from a name to the text; None where there is no such regular file, or one that is too long.
    """

    def read(name: str) -> str | None:
        try:
            path = folder / Path(name).expanduser()
            if not path.is_file() or path.stat().st_size > MOST_BYTES:
                return None
            return read_input(path)
        except (OSError, ValueError, RuntimeError):
            return None

    return read


def no_files(name: str) -> str | None:
    """No file is read."""
    del name
    return None


def parsed_config(name: str, text: str) -> Mapping[str, Any] | None:
    """The mapping of a file, by the ending of its name; None where it holds none."""
    if len(text) > MOST_BYTES:
        return None
    try:
        if name.endswith(".toml"):
            tree: Any = tomllib.loads(text)
        elif name.endswith((".yaml", ".yml")):
            tree = read_yaml(text)
        else:
            tree = json.loads(text)
    except (ValueError, RecursionError, PrecisionTimeError):
        return None
    return tree if isinstance(tree, Mapping) else None


def flattened(tree: Mapping[str, Any], prefix: str = "", depth: int = 0) -> dict[str, str]:
    """Values by keys joined with dots, as a command line has them.

    >>> flattened({"trainer": {"max_epochs": 3, "benchmark": True}})
    {'trainer.max_epochs': '3', 'trainer.benchmark': 'true'}
    """
    found: dict[str, str] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and depth < _MOST_DEPTH:
            found |= flattened(value, f"{name}.", depth + 1)
        elif isinstance(value, bool):
            found[name] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            found[name] = str(value)
    return found
