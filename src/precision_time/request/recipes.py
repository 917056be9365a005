"""Recipes of other projects: which project a file is of; a plug-in reads what it says."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path, PurePath
from typing import Any

from ..errors import ConfigError
from ..hardware.words import with_cluster_words
from ..io import open_input, packaged_toml, read_input, read_yaml
from ..plugins import plugins
from ..records import dataclass
from .schema import GLOBAL_BATCHES, RUN_LENGTHS, RequestFields

MOST_BYTES = 64 * 2**20
"""Of a file of requests."""
READER = "recipe"
"""Name of the plug-in, in the group `importers`."""
DISTRIBUTION = "precision-time-integrations"
_DOCUMENTS = (".yaml", ".yml", ".toml", ".json")
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch", ".job", ".txt", ".cmd")
_PYTHON = (".py", ".ipynb")
_COMMAND = re.compile(
    r"\s*(?:[A-Za-z_]\w*=\S*\s+)*(?:\S*/)?(?:torchrun|python[\d.]*|accelerate|deepspeed|srun|sbatch|mpirun|mpiexec|"
    r"horovodrun|env|bash|sh|uv|docker|apptainer|singularity|conda|axolotl|llamafactory-cli|swift|megatron|trl|tune|"
    r"litgpt|lightning|nemo|composer|\S+\.(?:sh|py))\s+\S"
)
"""A line of a shell that begins with a program that starts trainings, and goes on."""
COMMAND, PYTHON, SHELL = "command", "python", "shell"
_NAMES = {COMMAND: "a command", PYTHON: "a Python script", SHELL: "a shell script"}
_SHOWN = 60
"""Characters of a value, in a report."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Said:
    """A key of a recipe that was read."""

    key: str
    value: str
    fields: Mapping[str, Any]
    """What it says of the request."""
    line: int = 0
    """0 where no line is known."""
    file: str = ""
    """Where the line is, if not in the recipe itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """What a recipe says, and how it was understood."""

    source: str
    """The file, or "command"."""
    project: str
    """Whose recipe it is, with the version whose defaults are assumed: "axolotl 0.18.0"."""
    fields: Mapping[str, Any]
    """Of a request."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """Of a whole run."""
    read: tuple[Said, ...] = ()
    silent: frozenset[str] = frozenset()
    """Fields that the recipe does not say: defaults of its project, and what its name implies."""
    assumed: tuple[str, ...] = ()
    """By the defaults of the project, where the recipe is silent."""
    unread: tuple[str, ...] = ()
    """What is not understood or not modeled, each with its line."""
    idle: tuple[str, ...] = ()
    """Keys that change no time."""

    def overridden(self, given: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Fields with the value of the recipe and that of an option in its place; None where it is dropped.

        Args:
            given: Options, in words of the command line.
        """
        typed = _typed(given)
        gone = {name: (value, None) for name, value in self.fields.items() if name in _replaced(typed)}
        changed = {
            name: (self.fields[name], value)
            for name, value in typed.items()
            if name in self.fields and str(value) != str(self.fields[name])
        }
        return {**{name: pair for name, pair in gone.items() if name not in typed}, **changed}

    def merged(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the request with options in their place.

        Raises:
            ConfigError: If none of them is a model.
        """
        job = self.job(given)
        if "model" not in job:
            raise ConfigError(
                f"{self.source} ({self.project}) names no model. To fix: give --model, or the command that "
                "names both the model and this file."
            )
        return job

    def job(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """`merged`, also where nothing names a model."""
        typed = _typed(given)
        kept = {name: value for name, value in self.fields.items() if name not in _replaced(typed)}
        return {**kept, **typed}

    def lines(self, given: Mapping[str, Any]) -> Iterator[str]:
        """The report: read, assumed, not understood, overridden, in this order."""
        yield f"{self.source} is read as {self.project}: {'; '.join(map(_said, self.read)) or 'nothing'}."
        if self.assumed:
            yield f"Assumed: {'; '.join(self.assumed)}."
        for text in self.unread:
            yield f"Not understood: {text}."
        for name, (before, after) in self.overridden(given).items():
            what = "is left out" if after is None else f"is {_shown(after)}"
            yield f"Overridden by your options: {name}, {_shown(before)} in the recipe, {what}."
        if self.idle:
            yield f"Without effect on the time: {', '.join(self.idle)}."

    def to_dict(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "source": self.source,
            "project": self.project,
            "read": [
                {
                    "file": each.file,
                    "line": each.line,
                    "key": each.key,
                    "value": each.value,
                    "fields": dict(each.fields),
                }
                for each in self.read
            ],
            "assumed": list(self.assumed),
            "not_understood": list(self.unread),
            "overridden": [
                {"field": name, "recipe": before, "given": after}
                for name, (before, after) in self.overridden(given).items()
            ],
            "without_effect": list(self.idle),
            "run": dict(self.run),
        }


def _said(each: Said) -> str:
    """A key that was read, its line and what it says.

    >>> _said(Said(key="lora_r", value="8", fields={"lora_rank": 8}, line=3))
    'line 3: lora_r=8 (lora_rank=8)'
    >>> _said(Said(key="torchrun", value="", fields={"gpus": 8}))
    'torchrun (gpus=8)'
    """
    fields = {
        name: value for name, value in each.fields.items() if (name, str(value)) != (each.key, each.value)
    }
    meant = ", ".join(f"{name}={_shown(value)}" for name, value in fields.items())
    stated = f"{each.key}={_shown(each.value)}" if each.value else each.key
    return f"{place_of(each.line, each.file)}{stated}" + (f" ({meant})" if meant else "")


def place_of(line: int, file: str = "") -> str:
    """Where a key stands, before what is said of it.

    >>> place_of(7), place_of(3, "ds.json"), place_of(0)
    ('line 7: ', 'ds.json line 3: ', '')
    """
    return f"{file} line {line}: ".lstrip() if line else f"{file}: " if file else ""


def _typed(given: Mapping[str, Any]) -> dict[str, Any]:
    named = {RequestFields.own_name(name): value for name, value in given.items()}
    return with_cluster_words(named)


def _replaced(typed: Mapping[str, Any]) -> set[str]:
    """Fields that say in other words what was typed."""
    found = {name for names in (RUN_LENGTHS, GLOBAL_BATCHES) if {*names} & typed.keys() for name in names}
    if {"gpus", "node_type"} & typed.keys():
        found |= {"nodes", "node_type"}  # those of the recipe hold other devices
    if {"batch_size", *GLOBAL_BATCHES} & typed.keys():
        found |= {*GLOBAL_BATCHES}
    return found | typed.keys()


def _shown(value: Any) -> str:
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
        if suffix in _DOCUMENTS:
            return project_of(_document(Path(source), suffix))
        if suffix in _PYTHON:
            return PYTHON
        return SHELL if suffix in _SCRIPTS or _is_script(source) else ""
    return COMMAND if _COMMAND.match(source) and not os.path.exists(source) else ""


def kind_of_text(name: str, text: str) -> str:
    r"""`kind_of` of a file that is not here, by its name and its content.

    >>> kind_of_text("run.yaml", "base_model: gpt2\nsequence_len: 512")
    'axolotl'
    >>> kind_of_text("train", "#!/bin/bash\ntorchrun train.py"), kind_of_text("", "torchrun train.py")
    ('shell', 'command')
    """
    suffix = PurePath(name).suffix.lower()
    if suffix in _DOCUMENTS:
        try:
            return project_of(parsed(suffix, text))
        except (ValueError, RecursionError):
            return ""
    if suffix in _PYTHON:
        return PYTHON
    if suffix in _SCRIPTS or text.startswith("#!"):
        return SHELL
    return COMMAND if _COMMAND.match(text) else ""


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


def parsed(suffix: str, text: str) -> Any:
    """The content of a YAML, TOML or JSON text.

    Raises:
        ValueError, RecursionError: If it is not of its format, or nested too deeply.
    """
    if suffix == ".toml":
        import tomllib

        return tomllib.loads(text)
    return json.loads(text) if suffix == ".json" else read_yaml(text)


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
        shown = source if kind != COMMAND else json.dumps(_shown(source))
        raise ConfigError(
            f"{shown} is {named}, which {DISTRIBUTION} reads. To fix: pip install {DISTRIBUTION}, or give "
            "the model and its options yourself."
        )
    found: Recipe = reader.load()(source, kind)
    return found
