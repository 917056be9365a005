"""Which points are learned from and which are predicted: K-fold, hold-out, interpolation, extrapolation.

Repeats of a configuration are never on both sides. Interpolation predicts interior values only: the smallest
and the largest value of a column always stay in training, since predicting them would be extrapolation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from precision_time.errors import ConfigError

from .points import Points

Ints = NDArray[np.intp]
Split = tuple[Ints, Ints]
"""Row numbers to fit on, and to predict: what scikit-learn's `cv` takes."""

LEAST_TRAIN = 6
"""Rows that a training part must have."""
LEAST_INNER_TRAIN = 4
"""The same of the inner splits of a training part."""
INNER_SHARES = (0.6, 0.45)
"""Extrapolation inside a training part: bounds as shares of the largest value."""


class SplitRule(BaseModel):
    """How points are split."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    method: Literal["kfold", "holdout", "interpolation", "extrapolation"]
    folds: Annotated[int, Field(ge=2, le=50)] = 5
    share: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.2
    """Hold-out: of the configurations that are predicted."""
    column: str = ""
    """Interpolation: whose values are held out."""
    values: tuple[float, ...] = ()
    """Interpolation: which; empty takes every `step`-th interior one."""
    step: Annotated[int, Field(ge=2)] = 3
    """Interpolation: interior values in turn, each of `step` splits holding out another third (half ...)."""
    turns: Annotated[int, Field(ge=1)] | None = None
    """Interpolation without values: how many of those splits are made; None makes all."""
    bounds: dict[str, float] = {}
    """Extrapolation: column to the largest value that is learned from."""
    shares: dict[str, tuple[float, ...]] = {}
    """Extrapolation: column to bounds as shares of its largest value, each a split of its own if at least two
    values lie below it."""

    @model_validator(mode="after")
    def _names_what_it_needs(self) -> SplitRule:
        if self.method == "interpolation" and not self.column:
            raise ValueError("interpolation needs `column`: whose values are held out")
        if self.method == "extrapolation" and not (self.bounds or self.shares):
            raise ValueError("extrapolation needs `bounds`: column to the largest value learned from")
        return self

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads."""
        return (self.column,) if self.column else (*self.bounds, *self.shares)


def splits_of(
    points: Points, rule: SplitRule, seed: int = 0, *, least: int = LEAST_TRAIN
) -> tuple[Split, ...]:
    """The splits of a rule; each has `least` rows to learn from and something to predict.

    Raises:
        ConfigError: If the rule cannot be met by these points; says what to change.
    """
    if rule.method == "interpolation":
        masks = _interpolation(points, rule)
    elif rule.method == "extrapolation":
        masks = _extrapolation(points, rule)
    else:
        masks = _random(points, rule, seed)
    made = ((np.flatnonzero(~mask), np.flatnonzero(mask)) for mask in masks)
    usable = tuple((train, test) for train, test in made if len(test) and len(train) >= least)
    if not usable:
        of = f" of {', '.join(rule.columns)}" if rule.columns else ""
        raise ConfigError(
            f"The {rule.method} split{of} leaves no point to predict, or fewer than {least} of "
            f"{len(points)} points to learn from. To fix: {_REMEDIES[rule.method]}."
        )
    return usable


def inner_rule(rule: SplitRule, selection: SplitRule | None) -> SplitRule:
    """The rule by which models are chosen inside the training part, unless `selection` states it.

    The same question on what is known: interior values for interpolation, values beyond bounds of the
    training part for extrapolation, folds otherwise.
    """
    if selection is not None:
        return selection
    if rule.method == "interpolation":
        return SplitRule(method="interpolation", column=rule.column, turns=2)
    if rule.method == "extrapolation":
        columns = (*rule.bounds, *rule.shares)
        return SplitRule(method="extrapolation", shares={name: INNER_SHARES for name in columns})
    return SplitRule(method="kfold", folds=rule.folds)


def largest_held_out(points: Points, rule: SplitRule) -> SplitRule | None:
    """The extrapolation that holds out only the largest value of each column of `rule`.

    None for other methods, and where a column has one value.
    """
    values = {name: np.unique(_numeric(points, name)) for name in (*rule.bounds, *rule.shares)}
    bounds = {name: float(known[-2]) for name, known in values.items() if len(known) > 1}
    return SplitRule(method="extrapolation", bounds=bounds) if bounds else None


def _random(points: Points, rule: SplitRule, seed: int) -> Iterator[NDArray[np.bool_]]:
    from sklearn.model_selection import GroupKFold, GroupShuffleSplit

    groups = points.configurations
    count = len(np.unique(groups))
    if count < 2:
        raise ConfigError(
            "All points are repeats of one configuration. To fix: measure points that differ in a column."
        )
    if rule.method == "kfold":
        splitter = GroupKFold(min(rule.folds, count), shuffle=True, random_state=seed)
    else:
        splitter = GroupShuffleSplit(1, test_size=rule.share, random_state=seed)
    for _, test in splitter.split(groups, groups=groups):
        yield np.isin(np.arange(len(points)), test)


def _interpolation(points: Points, rule: SplitRule) -> Iterator[NDArray[np.bool_]]:
    column = _numeric(points, rule.column)
    known = np.unique(column)
    interior = known[1:-1]
    wrong = [value for value in rule.values if value not in interior]
    if wrong:
        raise ConfigError(
            f"{rule.column} = {wrong[0]:g} is not an interior value: {_listed(known)} are measured, and "
            "predicting the smallest or the largest would be extrapolation. "
            f"To fix: use some of {_listed(interior) or 'more measured values'}."
        )
    if rule.values:
        yield np.isin(column, rule.values)
        return
    # The second interior value first; with fewer interior values than that, the only one.
    turns = min(rule.turns or rule.step, rule.step)
    starts = ((1 + turn) % rule.step for turn in range(turns))
    for start in dict.fromkeys(start if start < len(interior) else 0 for start in starts):
        yield np.isin(column, interior[start :: rule.step])


def _extrapolation(points: Points, rule: SplitRule) -> Iterator[NDArray[np.bool_]]:
    if rule.bounds:
        beyond = [_numeric(points, name) > bound for name, bound in rule.bounds.items()]
        yield np.any(beyond, axis=0)
    for name, shares in rule.shares.items():
        column = _numeric(points, name)
        for share in shares:
            mask = column > share * column.max()
            # From one value no trend can be learned: the winner of such a split wins by chance.
            if len(np.unique(column[~mask])) > 1:
                yield mask


def _numeric(points: Points, name: str) -> NDArray[np.float64]:
    column = points.columns.get(name)
    if column is None or column.dtype == object:
        numeric = [key for key, values in points.columns.items() if values.dtype != object]
        raise ConfigError(
            f"{name!r} is not a numeric column of the points. To fix: use one of {', '.join(numeric)}."
        )
    return column.astype(np.float64)


def _listed(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{value:g}" for value in values)


_REMEDIES = {
    "kfold": "measure more configurations",
    "holdout": "measure more configurations, or choose another share",
    "interpolation": "measure at least three values of the column",
    "extrapolation": "choose bounds inside the measured range",
}
