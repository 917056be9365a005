"""The dataset of a request, and how far apart two datasets are (papers.md 3.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.errors import UnknownNameError
from precision_time.request.datasets import DatasetFacts, known_dataset, known_datasets, type_of
from precision_time.workload.workload import Workload


def type_of_workload(workload: Workload) -> str:
    """The dataset type of a workload, `OTHER` if it is of none: by its dataset, else by its task."""
    return type_of(workload.dataset, workload.task, workload.graph.image_size)


def dataset_facts(name: str, **stated: Any) -> DatasetFacts:
    """The facts of a dataset: those stated, over those known.

    Args:
        name: Any usual spelling.
        **stated: samples, classes, elements, side, modality; None if unspecified.

    Raises:
        UnknownNameError: If it is not known and its facts are not all stated.
        ConfigError: If a count is not above 0.
    """
    given = {key: value for key, value in stated.items() if value is not None}
    known = known_dataset(name)
    if known is not None:
        given = {field: getattr(known, field) for field in DatasetFacts.__slots__} | given
    missing = {"samples", "classes", "elements"} - given.keys()
    if missing:
        raise UnknownNameError(
            kind="dataset",
            name=name,
            known=known_datasets(),
            hint=f"To fix: state its {', '.join(sorted(missing))} (elements: channels x height x width of an "
            "image, or the length of a sequence), or use a known dataset.",
        )
    return DatasetFacts(**{**given, "name": name})


def dataset_distance(first: DatasetFacts, second: DatasetFacts) -> float:
    """Euclidean distance of two datasets in standard deviations of the known ones; 0 for equal facts.

    Over the logarithms of samples, classes and elements of a sample (papers.md 3.2, with logarithms
    because the three span decades).
    """
    deviations = np.std([_position(facts) for facts in known_datasets().values()], axis=0)
    return float(np.linalg.norm((_position(first) - _position(second)) / deviations))


def _position(facts: DatasetFacts) -> NDArray[np.float64]:
    """Logarithms of samples, classes and elements, shape (3,)."""
    return np.log(np.array([facts.samples, facts.classes, facts.elements], dtype=np.float64))
