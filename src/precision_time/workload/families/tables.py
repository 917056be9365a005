"""The model tables of `workload/data`: shapes with a source each, presets, aliases, data sets."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

TABLE_FILES = ("decoders.toml", "transformers.toml")


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelEntry:
    """One row of a model table."""

    name: str
    builder: str
    """Key of `registry.BUILDERS`."""
    sizes: Mapping[str, Any]
    """Configuration fields, presets merged in."""
    source: str
    facts: Mapping[str, Any]
    """Everything else: task, dataset, optimizer, units, target_params."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Dataset:
    """A training set: samples per epoch, or tokens where samples are cut out of running text."""

    name: str
    samples: int | None
    tokens: int | None
    source: str


_FACTS = frozenset(
    {"builder", "arch", "source", "family", "task", "dataset", "optimizer", "sample_unit"}
    | {"units", "throughput_unit", "target_params"}
)


@cache
def read_toml(file: str) -> dict[str, Any]:
    """One data file of the workload package."""
    text = files("precision_time.workload").joinpath("data").joinpath(file).read_text(encoding="utf-8")
    return tomllib.loads(text)


def normalise(name: str) -> str:
    """A name without case, organisation, and the difference between `_`, blank and `-`.

    >>> normalise("meta-llama/Llama-3.1_8B")
    'llama-3.1-8b'
    """
    last = name.strip().rstrip("/").rsplit("/", 1)[-1]
    return re.sub(r"[\s_-]+", "-", last.lower())


@cache
def model_table() -> Mapping[str, ModelEntry]:
    """Every parametric model by its normalised name."""
    table: dict[str, ModelEntry] = {}
    for file in TABLE_FILES:
        data = read_toml(file)
        for name, row in data["models"].items():
            table[normalise(name)] = _entry(name, {**data["arch"][row["arch"]], **row})
    return table


@cache
def preset_table() -> Mapping[str, ModelEntry]:
    """The presets (`arch`) of the model tables, for models that no table names."""
    return {
        name: _entry(name, {"source": "preset", **row})
        for file in TABLE_FILES
        for name, row in read_toml(file)["arch"].items()
    }


def _entry(name: str, row: Mapping[str, Any]) -> ModelEntry:
    return ModelEntry(
        name=name,
        builder=row["builder"],
        sizes={
            key: tuple(value) if isinstance(value, list) else value
            for key, value in row.items()
            if key not in _FACTS
        },
        source=row["source"],
        facts={key: value for key, value in row.items() if key in _FACTS},
    )


@cache
def alias_table() -> Mapping[str, str]:
    """Normalised other spelling -> canonical name (of a model table or of the zoo)."""
    return {normalise(key): value for key, value in read_toml("aliases.toml")["aliases"].items()}


@cache
def dataset_table() -> Mapping[str, Dataset]:
    """Data sets by normalised name, other spellings included."""
    table: dict[str, Dataset] = {}
    for name, row in read_toml("datasets.toml")["datasets"].items():
        entry = Dataset(name=name, samples=row.get("samples"), tokens=row.get("tokens"), source=row["source"])
        for spelling in (name, *row.get("aliases", ())):
            table[normalise(spelling)] = entry
    return table


@cache
def task_rules(kind: str) -> tuple[Mapping[str, Any], ...]:
    """Rules of `tasks.toml` of one kind (a builder, or "adapters"), first match first."""
    return tuple(read_toml("tasks.toml").get(kind, ()))


def task_rule(kind: str, *words: str | None) -> Mapping[str, Any]:
    """The first rule whose word occurs in one of `words`; empty if none does."""
    text = " ".join(word.lower() for word in words if word)
    return next((rule for rule in task_rules(kind) if rule["word"] in text), {})
