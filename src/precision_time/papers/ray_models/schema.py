"""The file of a study, in YAML: pydantic models, and the plan and points they stand for.

Shape of aMLLibrary's campaign files (papers.md 4.3), in typed fields.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ...errors import ConfigError
from ...io import read_yaml
from .features import engineered, without_copies
from .grey import GreyBox
from .points import Points, points_of, read_csv
from .search import SearchSettings
from .splits import Rule
from .study import Plan
from .techniques import TECHNIQUES, technique_named
from .terms import term_features

Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Count = Annotated[int, Field(ge=1)]
Words = str | int | float | list[str | int | float]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Roles(_Section):
    """Which column plays which part in the terms of published models."""

    workers: str | None = None
    nodes: str | None = None
    per_node: str | None = None
    """Most workers on one node; workers over nodes where no column says so."""
    batch: str | None = None
    """Samples per worker and step."""
    size: str | None = None
    """Samples, or the fraction, of the data set."""


class Features(_Section):
    """What is made of the columns."""

    inverse: list[str] | Literal["all"] = []
    log: list[str] | Literal["all"] = []
    degree: Annotated[int, Field(ge=1, le=4)] = 1
    """Of products."""
    interactions_only: bool = True
    terms: list[Literal["ernest", "optimus", "ddp"]] = []


class Search(_Section):
    """Hyper-parameters."""

    method: Literal["grid", "bayesian", "none"] = "grid"
    trials: Count = 20


class Selection(_Section):
    """Features added forward while the selection error falls; linear techniques only."""

    method: Literal["none", "forward"] = "none"
    least: Count = 1
    most: Count = 8


class SplitRule(_Section):
    """How points are held out."""

    method: Literal["kfold", "holdout", "interpolation", "extrapolation"]
    folds: Annotated[int, Field(ge=2, le=50)] = 5
    share: Share = 0.2
    column: str = ""
    values: list[float] = []
    step: Annotated[int, Field(ge=2)] = 3
    bounds: dict[str, float] = {}

    @model_validator(mode="after")
    def _names_what_it_needs(self) -> SplitRule:
        if self.method == "interpolation" and not self.column:
            raise ValueError("interpolation needs `column`: whose values are held out")
        if self.method == "extrapolation" and not self.bounds:
            raise ValueError("extrapolation needs `bounds`: column to the largest value learned from")
        return self

    def rule(self) -> Rule:
        """The rule of these fields."""
        return Rule(
            method=self.method,
            folds=self.folds,
            share=self.share,
            column=self.column,
            values=tuple(self.values),
            step=self.step,
            turns=self.step,
            bounds=self.bounds,
        )


class Grey(_Section):
    """Which job a row is, for our own predictor."""

    fields: dict[str, str] = {}
    constants: dict[str, Any] = {}
    times: str = ""
    given: bool = False

    def box(self) -> GreyBox:
        """The grey box of these fields, checked."""
        box = GreyBox(fields=self.fields, constants=self.constants, times=self.times, given=self.given)
        box.check()
        return box


class StudyFile(_Section):
    """A whole file."""

    data: str | None = None
    """CSV, relative to this file; `--csv` wins."""
    target: str
    columns: Annotated[list[str], Field(min_length=1)]
    categories: list[str] = []
    where: dict[str, Words] = {}
    """Column to the words that kept rows have there."""
    roles: Roles = Roles()
    features: Features = Features()
    techniques: Annotated[list[str], Field(min_length=1)] | None = None
    """Names; all that can be used where none are given."""
    search: Search = Search()
    feature_selection: Selection = Selection()
    selection: SplitRule | None = None
    """Inside the training part; the same question as the validation's where it is not given."""
    validation: SplitRule = SplitRule(method="kfold")
    grey_box: Grey | None = None
    blend: Annotated[int, Field(ge=1, le=10)] = 1
    """Models whose geometric mean is kept."""
    seed: int = 0


def read_study(path: Path) -> StudyFile:
    """The content of a YAML file.

    Raises:
        ConfigError: If it cannot be read, or a field breaks its rule; each is named.
    """
    try:
        content = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read: {error}. To fix: check path and YAML.") from error
    if not isinstance(content, Mapping):
        raise ConfigError(
            f"{path} is no study: it must be a mapping with `target` and `columns`. "
            "To fix: see docs/reference/ray.md."
        )
    return study_of(content, str(path))


def study_of(content: Mapping[str, Any], origin: str = "The study") -> StudyFile:
    """The checked study of a mapping; see `read_study`."""
    try:
        return StudyFile.model_validate(dict(content))
    except ValidationError as error:
        lines = [
            f"  {'.'.join(str(part) for part in item['loc']) or 'file'}: {item['msg']}"
            for item in error.errors()
        ]
        raise ConfigError(
            f"{origin} breaks {len(lines)} rule{'s' if len(lines) > 1 else ''}:\n"
            + "\n".join(lines)
            + "\nTo fix: correct the fields named; docs/reference/ray.md has them all."
        ) from error


def prepared(study: StudyFile, path: str | Path) -> tuple[Points, Plan]:
    """Points and plan of a study over a CSV.

    Raises:
        UnknownNameError: If a column or technique is not known.
        ConfigError: If columns, roles or rules do not fit together.
        CorpusError: If a cell cannot be used; names line and column.
    """
    rows, lines = read_csv(path)
    return prepared_rows(study, rows, lines)


def prepared_rows(
    study: StudyFile, rows: Sequence[Mapping[str, str]], lines: Sequence[int]
) -> tuple[Points, Plan]:
    """The same over rows read already."""
    roles = {name: column for name, column in study.roles.model_dump().items() if column is not None}
    learned = [*study.columns, *(column for column in roles.values() if column not in study.columns)]
    _check_columns(study)
    grey = None if study.grey_box is None else study.grey_box.box()
    points = points_of(
        rows,
        lines,
        target=study.target,
        columns=learned,
        categories=study.categories,
        further=() if grey is None else grey.columns,
        where={name: _words(value) for name, value in study.where.items()},
    )
    plan = Plan(
        features=_features(study, points, roles),
        techniques=tuple(technique_named(name) for name in study.techniques or TECHNIQUES),
        columns=tuple(learned),
        categories=tuple(study.categories),
        roles=roles,
        validation=study.validation.rule(),
        selection=None if study.selection is None else study.selection.rule(),
        search=SearchSettings(
            method=study.search.method,
            trials=study.search.trials,
            forward=study.feature_selection.method == "forward",
            least_features=study.feature_selection.least,
            most_features=study.feature_selection.most,
            seed=study.seed,
        ),
        grey=grey,
        blend=study.blend,
        seed=study.seed,
    )
    return points, plan


def _features(study: StudyFile, points: Points, roles: Mapping[str, str]) -> tuple[Any, ...]:
    asked = study.features
    made = engineered(
        study.columns,
        {name: sorted(set(points.columns[name].tolist())) for name in study.categories},
        inverse=study.columns if asked.inverse == "all" else asked.inverse,
        log=study.columns if asked.log == "all" else asked.log,
        degree=asked.degree,
        interactions_only=asked.interactions_only,
    )
    terms = [item for name in asked.terms for item in term_features(name, roles)]
    return without_copies([*made, *terms])


def _check_columns(study: StudyFile) -> None:
    """Refuse names of features and splits that are no columns of the study."""
    asked = study.features
    named = {
        "features.inverse": () if asked.inverse == "all" else asked.inverse,
        "features.log": () if asked.log == "all" else asked.log,
    }
    for where, names in named.items():
        for name in names:
            if name not in study.columns:
                raise ConfigError(
                    f"{where}: {name!r} is none of `columns` ({', '.join(study.columns)}). "
                    "To fix: add it there."
                )
    if study.target in study.columns:
        raise ConfigError(f"The target {study.target!r} is among `columns`. To fix: take it out.")


def _words(value: Words) -> tuple[str, ...]:
    return tuple(str(item) for item in value) if isinstance(value, list) else (str(value),)
