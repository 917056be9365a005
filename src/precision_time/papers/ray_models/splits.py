"""Which points are learned from and which are asked: K-fold, hold-out, interpolation, extrapolation.

Repeats of a configuration are never on both sides. Interpolation asks interior values only: the smallest and
the largest value of a column always stay in training, since asking them would be extrapolation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ...errors import ConfigError
from .points import Points

Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]

METHODS = ("kfold", "holdout", "interpolation", "extrapolation")
LEAST_INSIDE = 6
"""Rows that a training part must have."""
LEAST_INNER = 4
"""The same of the inner splits of a training part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """How points are split."""

    method: str
    folds: int = 5
    share: float = 0.2
    """Of the configurations that a hold-out asks."""
    column: str = ""
    """Interpolation: whose values are held out."""
    values: tuple[float, ...] = ()
    """Interpolation: which; empty takes every `step`-th interior one."""
    step: int = 3
    """Interpolation: interior values in turn, each of `step` splits holding out another third (half ...)."""
    turns: int = 1
    """Interpolation without values: how many of those splits are made."""
    bounds: Mapping[str, float] = field(default_factory=dict)
    """Extrapolation: column to the largest value that is learned from."""
    shares: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """Extrapolation: column to bounds as shares of its largest value, each a split of its own if at least two
    values lie below it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Row numbers to learn from and to ask."""

    inside: Ints
    outside: Ints


def splits_of(points: Points, rule: Rule, seed: int = 0, *, least: int = LEAST_INSIDE) -> tuple[Split, ...]:
    """The splits of a rule; each has `least` rows to learn from and something to ask.

    Raises:
        ConfigError: If the rule cannot be met by these points; says what to change.
    """
    made = _MAKERS[rule.method](points, rule, seed)
    usable = tuple(
        Split(inside=np.flatnonzero(~asked), outside=np.flatnonzero(asked))
        for asked in made
        if asked.any() and (~asked).sum() >= least
    )
    if not usable:
        raise ConfigError(
            f"The {rule.method} split{_of(rule)} leaves nothing to ask, or fewer than {least} of "
            f"{len(points)} points to learn from. To fix: {_WAYS_OUT[rule.method]}."
        )
    return usable


def inner_rule(rule: Rule, selection: Rule | None) -> Rule:
    """The rule by which models are chosen inside the training part, if none is asked for.

    The same question on what is known: interior values for interpolation, values beyond bounds of the
    training part for extrapolation, folds otherwise.
    """
    if selection is not None:
        return selection
    if rule.method == "interpolation":
        return Rule(method="interpolation", column=rule.column, step=3, turns=2)
    if rule.method == "extrapolation":
        columns = (*rule.bounds, *rule.shares)
        return Rule(method="extrapolation", shares={name: (0.6, 0.45) for name in columns})
    return Rule(method="kfold", folds=rule.folds)


def largest_held_out(points: Points, rule: Rule) -> Rule | None:
    """The extrapolation that holds out only the largest value of each column of `rule`.

    None for other methods, and where a column has one value.
    """
    bounds = {}
    for name in (*rule.bounds, *rule.shares):
        known = np.unique(_numeric(points, name))
        if len(known) > 1:
            bounds[name] = float(known[-2])
    return Rule(method="extrapolation", bounds=bounds) if bounds else None


def _kfold(points: Points, rule: Rule, seed: int) -> Sequence[Bools]:
    from sklearn.model_selection import GroupKFold

    groups = points.configurations
    count = min(rule.folds, len(np.unique(groups)))
    if count < 2:
        raise ConfigError(
            "All points are repeats of one configuration. To fix: measure points that differ in a column."
        )
    folds = GroupKFold(count, shuffle=True, random_state=seed)
    return [_asked(points, outside) for _, outside in folds.split(groups, groups=groups)]


def _holdout(points: Points, rule: Rule, seed: int) -> Sequence[Bools]:
    from sklearn.model_selection import GroupShuffleSplit

    groups = points.configurations
    if len(np.unique(groups)) < 2:
        raise ConfigError(
            "All points are repeats of one configuration. To fix: measure points that differ in a column."
        )
    parts = GroupShuffleSplit(1, test_size=rule.share, random_state=seed)
    return [_asked(points, outside) for _, outside in parts.split(groups, groups=groups)]


def _interpolation(points: Points, rule: Rule, seed: int) -> Sequence[Bools]:
    column = _numeric(points, rule.column)
    known = np.unique(column)
    interior = known[1:-1]
    if rule.values:
        wrong = [value for value in rule.values if value not in interior]
        if wrong:
            raise ConfigError(
                f"{rule.column} = {wrong[0]:g} is no interior value: {_listed(known)} are measured, and "
                "asking for the smallest or the largest would be extrapolation. "
                f"To fix: use some of {_listed(interior) or 'more measured values'}."
            )
        return [np.isin(column, rule.values)]
    # The second interior value first; with fewer interior values than that, the only one.
    starts = dict.fromkeys(
        (1 + turn) % rule.step if (1 + turn) % rule.step < len(interior) else 0
        for turn in range(min(rule.turns, rule.step))
    )
    return [np.isin(column, interior[start :: rule.step]) for start in starts]


def _extrapolation(points: Points, rule: Rule, seed: int) -> Sequence[Bools]:
    made = []
    if rule.bounds:
        beyond = [_numeric(points, name) > bound for name, bound in rule.bounds.items()]
        made.append(np.any(beyond, axis=0))
    for name, shares in rule.shares.items():
        column = _numeric(points, name)
        beyond = [column > share * column.max() for share in shares]
        # From one value no course can be learned: whoever wins such a split wins by chance.
        made += [asked for asked in beyond if len(np.unique(column[~asked])) > 1]
    return made


def _numeric(points: Points, name: str) -> NDArray[np.float64]:
    column = points.columns.get(name)
    if column is None or column.dtype == object:
        numeric = [key for key, values in points.columns.items() if values.dtype != object]
        raise ConfigError(
            f"{name!r} is no numeric column of the points. To fix: use one of {', '.join(numeric)}."
        )
    return column.astype(np.float64)


def _asked(points: Points, outside: Ints) -> Bools:
    asked = np.zeros(len(points), dtype=np.bool_)
    asked[outside] = True
    return asked


def _listed(values: NDArray[np.float64]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _of(rule: Rule) -> str:
    columns = [rule.column] if rule.column else [*rule.bounds, *rule.shares]
    return f" of {', '.join(columns)}" if columns else ""


_MAKERS = {
    "kfold": _kfold,
    "holdout": _holdout,
    "interpolation": _interpolation,
    "extrapolation": _extrapolation,
}
_WAYS_OUT = {
    "kfold": "measure more configurations",
    "holdout": "measure more configurations, or choose another share",
    "interpolation": "measure at least three values of the column",
    "extrapolation": "choose bounds inside the measured range",
}
