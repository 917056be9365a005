"""The part `recipe` of `../projects/data`: what a project calls things, assumes, and what changes no time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import translate
from typing import Any

from precision_time.cache import data
from precision_time.io import packaged_toml

from .. import projects
from .documents import Given, Stated

RECIPES = (
    "hf-trainer", "trl", "axolotl", "llama-factory", "ms-swift", "unsloth", "accelerate", "fsdp", "deepspeed",
    "deepspeed-chat", "torchtune", "torchtitan", "megatron", "ms-swift-megatron", "nemo2", "nanotron",
    "maxtext", "litgpt", "lightning", "timm", "torchvision",
)  # fmt: skip
"""Projects with such a part, roughly by the number of their users."""


@dataclass(frozen=True, slots=True)
class RecipeRule:
    """What several keys say together."""

    when: Mapping[str, re.Pattern[str]]
    """By key, what its whole word matches, whatever the case."""
    unless: Mapping[str, re.Pattern[str]]
    """By key, what its word does not match; a key that is absent matches nothing."""
    fields: Mapping[str, Any]
    """Fields of a request that they say; None takes a field away."""
    assume: Mapping[str, Any]
    """Fields that hold where nothing else says them."""
    note: str
    """What is not modeled of it, or where an assumption comes from."""

    def holds(self, given: Given) -> bool:
        """Whether it is about these keys."""
        return all(_matches(given.get(key), pattern) for key, pattern in self.when.items()) and not any(
            _matches(given.get(key), pattern) for key, pattern in self.unless.items()
        )


def _matches(value: Stated | None, pattern: re.Pattern[str]) -> bool:
    return value is not None and not value.unknown and pattern.fullmatch(value.word) is not None


@dataclass(frozen=True, slots=True)
class RecipeVocabulary:
    """How one project says what a request says."""

    name: str
    title: str
    own: bool
    """Whether the project has a part `recipe`, rather than the names of its arguments alone."""
    version: str
    """Whose defaults these are."""
    source: str
    """Where the keys and defaults were read, with the commit."""
    stack: str
    """What it implies of the software; empty for nothing."""
    fields: Mapping[str, Sequence[str]]
    """Our names to theirs, the surest first."""
    values: Mapping[str, Mapping[str, Any]]
    """Of a field: what their words mean."""
    respell: Mapping[str, Sequence[tuple[re.Pattern[str], str]]]
    """Of a field: patterns of their words and what stands in their place, one after the other."""
    joined: Mapping[str, Mapping[str, str]]
    """Of a field: keys that are switches, and the word that each adds to it."""
    times: Mapping[str, Sequence[str]]
    """Of a field: fields that theirs is still to be multiplied by."""
    defaults: Mapping[str, Any]
    fill: Mapping[str, int]
    """Fields that the project sets so that a global batch of that many samples is reached."""
    run: Mapping[str, Sequence[str]]
    """Options of a whole run to their names."""
    rules: Sequence[RecipeRule]
    files: Sequence[str]
    """Keys that name a DeepSpeed configuration."""
    includes: Sequence[str]
    """Keys that name a file of further keys, which the recipe's own go before."""
    launcher: str
    """The table of `precision_time.launch` that reads layout, batch and sizes; empty for none."""
    calls: Mapping[str, str]
    """Of Python scripts: pattern of a call to what stands before its arguments' names."""
    unmodeled: Mapping[str, str]
    """Pattern of keys to why they may change the time that is not modeled."""
    idle: re.Pattern[str]
    """Keys that change no time."""

    @property
    def versioned(self) -> str:
        """Title and version."""
        return f"{self.title} {self.version}".strip()

    def why_unmodeled(self, key: str) -> str:
        """Why a key is not modeled; empty where nothing is known of it."""
        return next((why for glob, why in self.unmodeled.items() if re.fullmatch(translate(glob), key)), "")


@data
def vocabulary(name: str) -> RecipeVocabulary:
    """The vocabulary of a project, that of what it extends included.

    Raises:
        KeyError: If it has none.
    """
    file = packaged_toml(projects.__name__, f"data/{name}.toml")
    table = dict(file["recipe"]) if "recipe" in file else _of_arguments(file["arguments"])
    parents = [vocabulary(each) for each in table.get("extends", ())]
    own_fields = {field: tuple(keys) for field, keys in table.get("fields", {}).items()}
    fields = dict(own_fields)
    values: dict[str, Mapping[str, Any]] = {}
    for parent in parents:
        for field, keys in parent.fields.items():
            fields[field] = (
                *fields.get(field, ()),
                *(key for key in keys if key not in fields.get(field, ())),
            )
        values |= {field: {**words, **values.get(field, {})} for field, words in parent.values.items()}
    for field, words in table.get("values", {}).items():
        values[field] = {**values.get(field, {}), **{word.lower(): meant for word, meant in words.items()}}
    for key in table.get("drop", ()):
        fields = {field: tuple(each for each in keys if each != key) for field, keys in fields.items()}
    idle = [*table.get("idle", ())]
    own_idle = "|".join(translate(glob) for glob in idle) or r"(?!)"
    return RecipeVocabulary(
        name=name,
        title=table["title"],
        own="recipe" in file,
        version=table.get("version", ""),
        source=table["source"],
        stack=table.get("stack", ""),
        fields=fields,
        values=values,
        defaults={**_merged(parent.defaults for parent in parents), **table.get("defaults", {})},
        respell={
            **_merged(parent.respell for parent in parents),
            **{
                field: tuple((re.compile(pattern), new) for pattern, new in rows)
                for field, rows in table.get("respell", {}).items()
            },
        },
        joined={**_merged(parent.joined for parent in parents), **table.get("joined", {})},
        fill={**_merged(parent.fill for parent in parents), **table.get("fill", {})},
        times={**_merged(parent.times for parent in parents), **table.get("times", {})},
        run={**_merged(parent.run for parent in parents), **table.get("run", {})},
        rules=(*(rule for parent in parents for rule in parent.rules), *map(_rule, table.get("rules", ()))),
        files=tuple(
            dict.fromkeys([*table.get("files", ()), *(key for parent in parents for key in parent.files)])
        ),
        includes=tuple(table.get("includes", ())),
        launcher=table.get("launcher", ""),
        calls={**table.get("calls", {}), **_merged(parent.calls for parent in parents)},
        unmodeled={**table.get("unmodeled", {}), **_merged(parent.unmodeled for parent in parents)},
        idle=re.compile("|".join([own_idle, *(parent.idle.pattern for parent in parents)])),
    )


def _of_arguments(part: Mapping[str, Any]) -> dict[str, Any]:
    """A part `arguments` as a recipe."""
    switches = [{"when": {key: "true"}, "set": fields} for key, fields in part.get("switches", {}).items()]
    return {
        "title": part["title"],
        "source": part["source"],
        "fields": part.get("fields", {}),
        "values": part.get("values", {}),
        "run": part.get("run", {}),
        "idle": part.get("idle", ()),
        "files": [key for keys in part.get("files", {}).values() for key in keys],
        "rules": switches,
    }


def _merged(tables: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for table in tables:
        found |= table
    return found


def _rule(row: Mapping[str, Any]) -> RecipeRule:
    return RecipeRule(
        when=_patterns(row.get("when", {})),
        unless=_patterns(row.get("unless", {})),
        fields={name: None if value == "" else value for name, value in row.get("set", {}).items()},
        assume=row.get("assume", {}),
        note=row.get("note", ""),
    )


def _patterns(row: Mapping[str, str]) -> dict[str, re.Pattern[str]]:
    return {key: re.compile(pattern, re.IGNORECASE | re.DOTALL) for key, pattern in row.items()}
