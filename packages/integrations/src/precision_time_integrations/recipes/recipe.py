"""What a recipe says, how it was understood, and of which project a text is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from precision_time.errors import ConfigError
from precision_time.hardware.words import with_cluster_words
from precision_time.request.recipes import (
    COMMAND,
    COMMAND_LINE,
    DOCUMENTS,
    PYTHON,
    PYTHON_FILES,
    SCRIPTS,
    SHELL,
    parsed,
    project_of,
    shortened,
)
from precision_time.request.schema import GLOBAL_BATCHES, RUN_LENGTHS, RequestFields


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
            what = "is left out" if after is None else f"is {shortened(after)}"
            yield f"Overridden by your options: {name}, {shortened(before)} in the recipe, {what}."
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
    meant = ", ".join(f"{name}={shortened(value)}" for name, value in fields.items())
    stated = f"{each.key}={shortened(each.value)}" if each.value else each.key
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


def kind_of_text(name: str, text: str) -> str:
    r"""`kind_of` of a file that is not here, by its name and its content.

    >>> kind_of_text("run.yaml", "base_model: gpt2\nsequence_len: 512")
    'axolotl'
    >>> kind_of_text("train", "#!/bin/bash\ntorchrun train.py"), kind_of_text("", "torchrun train.py")
    ('shell', 'command')
    """
    suffix = PurePath(name).suffix.lower()
    if suffix in DOCUMENTS:
        try:
            return project_of(parsed(suffix, text))
        except (ValueError, RecursionError):
            return ""
    if suffix in PYTHON_FILES:
        return PYTHON
    if suffix in SCRIPTS or text.startswith("#!"):
        return SHELL
    return COMMAND if COMMAND_LINE.match(text) else ""
