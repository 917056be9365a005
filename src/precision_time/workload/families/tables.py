"""The model tables of `workload/data`: shapes with a source each, presets, aliases, datasets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ...cache import data
from ...io import packaged_toml
from ...lazy import LazyTable
from ...records import dataclass

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
    modality: str = ""
    """image, text, audio ... where its type does not say it (request/data/dataset_types.toml)."""


_FACTS = frozenset(
    {"builder", "arch", "source", "family", "task", "dataset", "optimizer", "sample_unit"}
    | {"units", "throughput_unit", "target_params"}
)


_TRAILING_NUMBER = re.compile(r"/(?=\d+$)")
_SEPARATORS = re.compile(r"[\s_-]+")


def read_toml(file: str) -> Mapping[str, Any]:
    """One data file of the workload package."""
    return packaged_toml("precision_time.workload", f"data/{file}")


def normalize(name: str) -> str:
    """A name without case, organisation, and the difference between `_`, blank and `-`.

    >>> normalize("meta-llama/Llama-3.1_8B")
    'llama-3.1-8b'
    >>> normalize("ViT-B/32")
    'vit-b-32'
    """
    whole = _TRAILING_NUMBER.sub("-", name.strip().rstrip("/"))
    return _SEPARATORS.sub("-", whole.rsplit("/", 1)[-1].lower())


def _rows() -> Mapping[str, tuple[str, Mapping[str, Any], str]]:
    """Name as it is written, row, and file of every model by its normalized name."""
    return {
        normalize(name): (name, row, file)
        for file in TABLE_FILES
        for name, row in read_toml(file)["models"].items()
    }


def preset(name: str) -> ModelEntry | None:
    """A preset (`arch`) of the model tables, for models that no table names."""
    for file in TABLE_FILES:
        if (row := read_toml(file)["arch"].get(name)) is not None:
            return _entry(name, {"source": "preset", **row})
    return None


def find_entry(name: str) -> ModelEntry | None:
    """The row of a normalized model name, with what its preset says."""
    table = model_table()
    if name not in table:
        return None
    return table[name]


def model_table_names() -> tuple[str, ...]:
    """Normalized names of every parametric model."""
    return tuple(model_table())


@data
def model_table() -> Mapping[str, ModelEntry]:
    """Every parametric model by its normalized name."""

    def made(_: str, raw: tuple[str, Mapping[str, Any], str]) -> ModelEntry:
        written, row, file = raw
        return _entry(written, {**read_toml(file)["arch"][row["arch"]], **row})

    return LazyTable(_rows(), made)


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


@data
def alias_table() -> Mapping[str, str]:
    """Normalized other spelling -> canonical name (of a model table or of the zoo)."""
    return {normalize(name): meant for name, meant in read_toml("aliases.toml")["aliases"].items()}


def preset_of(name: str) -> str | None:
    """The preset that the start of a normalized name stands for, longest start first."""
    prefixes: dict[str, str] = read_toml("aliases.toml")["prefixes"]
    fitting = [prefix for prefix in prefixes if name.startswith(prefix)]
    return prefixes[max(fitting, key=len)] if fitting else None


@data
def dataset_table() -> Mapping[str, Dataset]:
    """Datasets by normalized name, other spellings included."""
    table: dict[str, Dataset] = {}
    for name, row in read_toml("datasets.toml")["datasets"].items():
        entry = Dataset(
            name=name,
            samples=row.get("samples"),
            tokens=row.get("tokens"),
            source=row["source"],
            modality=row.get("modality", ""),
        )
        for spelling in (name, *row.get("aliases", ())):
            table[normalize(spelling)] = entry
    return table


def task_rules(kind: str) -> tuple[Mapping[str, Any], ...]:
    """Rules of `tasks.toml` of one kind (a builder, or "adapters"), first match first."""
    return tuple(read_toml("tasks.toml").get(kind, ()))


def task_rule(kind: str, *words: str | None) -> Mapping[str, Any]:
    """The first rule whose word occurs in one of `words`; empty if none does."""
    text = " ".join(word.lower() for word in words if word)
    return next((rule for rule in task_rules(kind) if rule["word"] in text), {})


@data
def unsupported_table() -> Mapping[str, str]:
    """Normalised names that were measured but cannot be built, with the reason."""
    return {normalize(name): why for name, why in read_toml("unsupported.toml")["reasons"].items()}


@data
def _unsupported_kinds() -> tuple[tuple[re.Pattern[str], Mapping[str, Any]], ...]:
    return tuple((re.compile(kind["pattern"]), kind) for kind in read_toml("unsupported.toml")["kind"])


def unsupported(name: str) -> Mapping[str, Any]:
    """Why a normalised name that no table holds cannot be built (`why`), where that is known; else empty.

    `captured` is the package that has a module of it, which can be captured.
    """
    if (why := unsupported_table().get(name)) is not None:
        return {"why": why}
    return next((kind for pattern, kind in _unsupported_kinds() if pattern.fullmatch(name)), {})


def variant_sizes(name: str) -> tuple[str, ...]:
    """Sizes that choose between the graphs of a normalized model name."""
    rules = read_toml("variants.toml").get(name, ())
    words = (word for rule in rules for word in rule["when"] if word not in ("dataset", "task"))
    return tuple(dict.fromkeys(words))


def variant_of(name: str, stated: Mapping[str, Any]) -> str | None:
    """The variant of a normalized model name that `stated` asks for; None for the usual graph."""
    for rule in read_toml("variants.toml").get(name, ()):
        when: dict[str, str] = rule["when"]
        if all(key in stated and re.search(when[key], str(stated[key]), re.IGNORECASE) for key in when):
            return str(rule["use"]).format_map(stated)
    return None
