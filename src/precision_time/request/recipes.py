"""Recipes of other projects: which project a file is of; a plug-in reads what it says."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from ..errors import ConfigError
from ..io import open_input, packaged_toml, read_input, read_yaml, unique
from ..plugins import plugins

MOST_BYTES = 64 * 2**20
"""Of a file of requests."""
READER = "recipe"
"""Name of the plug-in, in the group `importers`."""
DISTRIBUTION = "precision-time-integrations"
DOCUMENTS = (".yaml", ".yml", ".toml", ".json")
SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".job", ".txt", ".cmd")
PYTHON_FILES = (".py", ".ipynb")
COMMAND_LINE = re.compile(
    r"\s*(?:[A-Za-z_]\w*=\S*\s+)*(?:\S*/)?(?:torchrun|python[\d.]*|accelerate|deepspeed|srun|sbatch|mpirun|mpiexec|"
    r"horovodrun|env|bash|sh|uv|docker|apptainer|singularity|conda|axolotl|llamafactory-cli|swift|megatron|trl|tune|"
    r"litgpt|lightning|nemo|composer|\S+\.(?:sh|py))\s+\S"
)
"""A line of a shell that begins with a program that starts trainings, and goes on."""
COMMAND, PYTHON, SHELL = "command", "python", "shell"
_NAMES = {COMMAND: "a command", PYTHON: "a Python script", SHELL: "a shell script"}
_SHOWN = 60
"""Characters of a value, in a report."""


class Recipe(Protocol):
    """What a recipe says, as the plug-in that reads it tells it."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """Of a request."""

    def merged(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the request with options in their place."""

    def lines(self, given: Mapping[str, Any]) -> Iterator[str]:
        """How the recipe was understood, beside options."""

    def to_dict(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The same, JSON-ready."""


def shortened(value: Any) -> str:
    """A value in a report."""
    text = " ".join(str(value).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def project_of(document: Any) -> str:
    """The project whose recipe a document is, by `data/recipes.toml`; empty where it is of none."""
    if not isinstance(document, Mapping):
        return ""
    for name, table in packaged_toml(__package__, "data/recipes.toml").items():
        if any(all(_stands_in(document, key) for key in keys) for keys in table["signs"]):
            return name
    return ""


def _stands_in(document: Any, key: str) -> bool:
    first, _, rest = key.partition(".")
    if not isinstance(document, Mapping):
        return False
    return key in document or (first in document and (not rest or _stands_in(document[first], rest)))


def kind_of(source: str) -> str:
    """What a word of the command line is: a project's document, a script, a command; empty for others."""
    if "\n" not in source and os.path.isfile(source):
        suffix = Path(source).suffix.lower()
        if suffix in DOCUMENTS:
            return project_of(_document(Path(source), suffix))
        if suffix in PYTHON_FILES:
            return PYTHON
        return SHELL if suffix in SCRIPTS or _is_script(source) else ""
    return COMMAND if COMMAND_LINE.match(source) and not os.path.exists(source) else ""


def _is_script(source: str) -> bool:
    """A file without a suffix of ours that begins as scripts do."""
    try:
        with open_input(source, most_bytes=None) as file:
            return file.read(2) == b"#!"
    except OSError:
        return False


def _document(path: Path, suffix: str) -> Any:
    try:
        return (
            parsed(suffix, read_input(path, encoding="utf-8-sig"))
            if path.stat().st_size <= MOST_BYTES
            else None
        )
    except (OSError, ValueError, RecursionError):  # told when it is read as a job
        return None


def parsed(suffix: str, text: str, *, once: bool = False) -> Any:
    """The content of a YAML, TOML or JSON text; with `once`, a key that stands twice is refused.

    Raises:
        ValueError, RecursionError: If it is not of its format, or nested too deeply.
    """
    if suffix == ".toml":
        import tomllib

        return tomllib.loads(text)
    if suffix == ".json":
        return json.loads(text, object_pairs_hook=unique if once else None)
    return read_yaml(text, once=once)


def recipe_of(source: str) -> Recipe | None:
    """What a recipe of another project says; None where a word names none.

    Args:
        source: A file, or a command line.

    Raises:
        ConfigError: If it is one that cannot be read, or no plug-in that reads it is installed.
    """
    kind = kind_of(source)
    if not kind:
        return None
    reader = plugins("importers").get(READER)
    if reader is None:
        table = packaged_toml(__package__, "data/recipes.toml")
        named = f"a {table[kind]['title']} recipe" if kind in table else _NAMES[kind]
        shown = source if kind != COMMAND else json.dumps(shortened(source))
        raise ConfigError(
            f"{shown} is {named}, which {DISTRIBUTION} reads. To fix: pip install {DISTRIBUTION}, or give "
            "the model and its options yourself."
        )
    found: Recipe = reader.load()(source, kind)
    return found
