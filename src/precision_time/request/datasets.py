"""Dataset types, and the facts of datasets."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from ..cache import data
from ..errors import ConfigError
from ..io import packaged_toml
from ..records import dataclass
from ..workload.families.tables import dataset_table, normalize
from ..workload.workload import Workload

OTHER = "other"
"""Workloads of no type: no predictor is trained for them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetFacts:
    """What a distance between datasets is made of (papers.md 3.2)."""

    name: str
    samples: int
    """Per epoch."""
    classes: int
    """Classes of a sample; of text the size of its vocabulary."""
    elements: float
    """Of one sample: channels x height x width, or its length."""
    side: int | None = None
    """Longer side of an image [pixels]."""
    modality: str = ""
    """image, volume, text, audio, table, graph; empty if unspecified."""

    def __post_init__(self) -> None:
        for field in ("samples", "classes", "elements"):
            value = getattr(self, field)
            if not (math.isfinite(value) and value > 0):
                raise ConfigError(
                    f"The dataset {self.name!r} has {field}={value}: nothing can be trained on it. To fix: "
                    f"give {field} of 1 or more."
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetType:
    """A kind of data that one predictor is trained for."""

    name: str
    title: str
    modality: str
    example: DatasetFacts
    largest_side: int | None
    datasets: tuple[re.Pattern[str], ...]
    tasks: tuple[re.Pattern[str], ...]


def type_of(dataset: str, task: str, image_size: int | None = None) -> str:
    """The dataset type of a dataset, or else of a task; `OTHER` if no pattern matches.

    >>> type_of("imagenet-1k", "", 224), type_of("cifar10", "", 32), type_of("", "lm-pretrain")
    ('imagenet', 'cifar', 'language-model')
    """
    for words, which in ((normalize(dataset), "datasets"), (task.lower(), "tasks")):
        if not words:
            continue
        for kind in dataset_types().values():
            too_large = kind.largest_side is not None and (image_size or math.inf) > kind.largest_side
            if not too_large and any(pattern.search(words) for pattern in getattr(kind, which)):
                return kind.name
    return OTHER


def known_dataset(name: str) -> DatasetFacts | None:
    """The facts of a dataset that ships with its facts, None of any other."""
    table = dataset_table().get(normalize(name))
    for spelling in (normalize(name), *(() if table is None else (normalize(table.name),))):
        if spelling in known_datasets():
            return known_datasets()[spelling]
    return None


def modality_of_dataset(name: str) -> str:
    """What the samples of a known data set are: image, text, audio ...; empty where that is not known.

    >>> modality_of_dataset("cifar10"), modality_of_dataset("gsm8k"), modality_of_dataset("synthetic")
    ('image', 'text', '')
    """
    known = dataset_table().get(normalize(name))
    if known is not None and known.modality:
        return known.modality
    facts = known_dataset(name)
    if facts is not None and facts.modality:
        return facts.modality
    kind = None if known is None else dataset_types().get(type_of(known.name, ""))
    return "" if kind is None else kind.modality


def unreadable(name: str, workload: Workload) -> str:
    """Why a model cannot be trained on a data set, and on which it can; empty where nothing says so."""
    modality, reads = modality_of_dataset(name), _file()["reads"].get(workload.family)
    several = workload.graph.image_size is not None and workload.graph.seq_len is not None
    if not modality or reads is None or modality in reads or several:
        return ""
    fitting = (kind.example.name for kind in dataset_types().values() if kind.modality == reads[0])
    return (
        f"{workload.name} is trained on {' or '.join(reads)}, and the samples of {name} are {modality}. To "
        f"fix: a data set of {reads[0]}, such as {' or '.join(dict.fromkeys(fitting))}, or leave it out."
    )


def _file() -> Mapping[str, Any]:
    return packaged_toml(__package__, "data/dataset_types.toml")


@data
def known_datasets() -> Mapping[str, DatasetFacts]:
    """The facts that ship, by normalized name."""
    modalities = {row["example"]: row["modality"] for row in _file()["type"].values()}
    found = {}
    for name, row in _file()["dataset"].items():
        table = dataset_table().get(normalize(name))
        shape = row.get("shape", [])
        is_image = len(shape) == 3 and shape[0] <= 4
        found[normalize(name)] = DatasetFacts(
            name=name,
            samples=row.get("samples") or (table.samples if table is not None else None) or 0,
            classes=row["classes"],
            elements=float(math.prod(shape) if shape else row["length"]),
            side=max(shape[1:]) if is_image else None,
            modality=modalities.get(name, "image" if is_image else ""),
        )
    return found


@data
def dataset_types() -> Mapping[str, DatasetType]:
    """Every type by name, in the order in which they are tried."""
    return {
        name: DatasetType(
            name=name,
            title=row["title"],
            modality=row["modality"],
            example=known_datasets()[normalize(row["example"])],
            largest_side=row.get("largest_side"),
            datasets=tuple(re.compile(pattern) for pattern in row["datasets"]),
            tasks=tuple(re.compile(pattern) for pattern in row["tasks"]),
        )
        for name, row in _file()["type"].items()
    }
