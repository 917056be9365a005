"""The file of a study, in YAML: pydantic models, and the plan and points that they describe.

The fields follow aMLLibrary's configuration files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from precision_time.errors import ConfigError, validation_problems
from precision_time.io import read_input, read_yaml

from .features import Feature, engineered, term_features, without_duplicates
from .grey import GreyBox
from .points import Points, points_of, read_csv
from .splits import SplitRule
from .study import StudyPlan
from .techniques import TECHNIQUES, technique_named
from .tuning import FeatureSelection, Search

Words = str | int | float | list[str | int | float]
Role = Literal["workers", "cpus", "nodes", "per_node", "batch", "size"]
"""workers and nodes: their numbers; cpus: cores of a worker; per_node: most workers on one node, workers over
nodes if not given; batch: samples per worker and step; size: samples, or the fraction, of the dataset."""


class FeatureOptions(BaseModel):
    """What is made of the columns."""

    model_config = ConfigDict(extra="forbid")

    inverse: list[str] | Literal["all"] = []
    log: list[str] | Literal["all"] = []
    degree: Annotated[int, Field(ge=1, le=4)] = 1
    """Of products."""
    interactions_only: bool = True
    terms: list[Literal["ernest", "optimus", "ddp", "work"]] = []


class StudyFile(BaseModel):
    """A whole file."""

    model_config = ConfigDict(extra="forbid")

    data: str | None = None
    """CSV, relative to this file; `--measurements` wins."""
    target: str
    columns: Annotated[list[str], Field(min_length=1)]
    categories: list[str] = []
    where: dict[str, Words] = {}
    """Column to the words that kept rows have there."""
    roles: dict[Role, str | None] = {}
    features: FeatureOptions = FeatureOptions()
    techniques: Annotated[list[str], Field(min_length=1)] | None = None
    """Names; all that can be used where none are given."""
    search: Search = Search()
    feature_selection: FeatureSelection = FeatureSelection()
    selection: SplitRule | None = None
    """Inside the training part; the same question as the validation's where it is not given."""
    validation: SplitRule = SplitRule(method="kfold")
    grey_box: GreyBox | None = None
    blend: Annotated[int, Field(ge=1, le=10)] = 1
    """Models whose geometric mean is kept."""
    seed: int = 0


def read_study(path: Path) -> StudyFile:
    """The content of a YAML file.

    Raises:
        ConfigError: If it cannot be read, or a field breaks its rule; each is named.
    """
    try:
        content = read_yaml(read_input(path), once=True)
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}. To fix: check path and YAML.") from error
    if not isinstance(content, Mapping):
        raise ConfigError(
            f"{path} is not a study: it needs a mapping with `target` and `columns`. To fix: see "
            "docs/reference/ray.md."
        )
    return study_of(content, str(path))


def study_of(content: Mapping[str, Any], origin: str = "The study") -> StudyFile:
    """The checked study of a mapping; see `read_study`."""
    try:
        return StudyFile.model_validate(dict(content))
    except ValidationError as error:
        raise ConfigError(
            f"{origin} breaks its rules: {validation_problems(error)}. "
            "To fix: correct these fields; docs/reference/ray.md has them all."
        ) from error


def prepared(study: StudyFile, path: str | Path) -> tuple[Points, StudyPlan]:
    """Points and plan of a study over a CSV.

    Raises:
        UnknownNameError: If a column or technique is not known.
        ConfigError: If columns, roles or rules do not fit together.
        CorpusError: If a cell cannot be used; names line and column.
    """
    return prepared_rows(study, *read_csv(path))


def prepared_rows(
    study: StudyFile, rows: Sequence[Mapping[str, str]], lines: Sequence[int]
) -> tuple[Points, StudyPlan]:
    """The same over rows that are already read."""
    roles = {str(role): column for role, column in study.roles.items() if column is not None}
    columns = tuple(dict.fromkeys((*study.columns, *roles.values())))
    _check_columns(study)
    points = points_of(
        rows,
        lines,
        target=study.target,
        columns=columns,
        categories=study.categories,
        further=() if study.grey_box is None else study.grey_box.columns,
        where={name: _words(value) for name, value in study.where.items()},
    )
    plan = StudyPlan(
        features=_features(study, points, roles),
        techniques=tuple(technique_named(name) for name in study.techniques or TECHNIQUES),
        columns=columns,
        categories=tuple(study.categories),
        roles=roles,
        validation=study.validation,
        selection=study.selection,
        search=study.search,
        feature_selection=study.feature_selection,
        grey=study.grey_box,
        blend=study.blend,
        seed=study.seed,
    )
    return points, plan


def _features(study: StudyFile, points: Points, roles: Mapping[str, str]) -> tuple[Feature, ...]:
    options = study.features
    made = engineered(
        study.columns,
        {name: sorted(set(points.columns[name].tolist())) for name in study.categories},
        inverse=study.columns if options.inverse == "all" else options.inverse,
        log=study.columns if options.log == "all" else options.log,
        degree=options.degree,
        interactions_only=options.interactions_only,
    )
    terms = [item for name in options.terms for item in term_features(name, roles)]
    return without_duplicates([*made, *terms])


def _check_columns(study: StudyFile) -> None:
    """Refuse names of features that are not columns of the study, and a target among them."""
    options = study.features
    for where, names in (("features.inverse", options.inverse), ("features.log", options.log)):
        wrong = [name for name in names if name not in study.columns] if names != "all" else []
        if wrong:
            raise ConfigError(
                f"{where}: {wrong[0]!r} is none of `columns` ({', '.join(study.columns)}). "
                "To fix: add it there."
            )
    if study.target in study.columns:
        raise ConfigError(f"The target {study.target!r} is among `columns`. To fix: remove it there.")


def _words(value: Words) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else (str(value),)
