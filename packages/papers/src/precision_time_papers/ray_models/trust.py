"""How far a fitted model may be believed: an interval, and flags on answers that it cannot have learned.

Everything is read off the points that the model was fitted on. They are held out in turn, the model fitted on
the rest with the parameters that it has: in folds, between the measured values of each column, and beyond
them. A question is held against the ways of holding out that it resembles: folds always; a value between
measured ones, those between; a value beyond all measured ones, those between and those beyond.

Interval: split conformal prediction on |log(measured / predicted)|, whose quantile of rank ceil((n + 1) c)
covers a share c of exchangeable points (Vovk, Gammerman, Shafer, Algorithmic Learning in a Random World,
2005; Lei et al., JASA 2018). Of several ways the widest counts. Points beyond the range are not exchangeable
with those within: from the distance on that was tried, the width grows in proportion to its logarithm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from .features import Column

Floats = NDArray[np.float64]

COVERAGE = 0.9
LARGEST_ERROR = 0.15
"""Mean error of held-out points above which answers are flagged: the end of Filippini et al.'s range."""
LEAST_SPARE = 3
"""Configurations that a fit needs beyond its coefficients, or nothing tells how far off it is."""
STEP_FACTOR = 1.5
"""A held-out time this many times the predicted one or more, or as many times less ..."""
STEP_SPREAD = 5.0
"""... and so many times as far off as the median point is a step that no column explains, ..."""
STEP_SHARE = 0.05
"""... if as large a share of the points is: one odd point of many is no step."""
REPEAT_FACTOR = 1.5
"""So many times do repeats of one configuration differ before a column must be missing."""
LEAST_HELD_OUT = 2
"""Errors without which there is no interval."""
REACH_SLACK = 1.0 + 1e-9


class Flag(BaseModel):
    """One reason not to believe an answer."""

    model_config = ConfigDict(frozen=True)

    kind: str
    """few-points, step, untried, beyond or error."""
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.reason} To fix: {self.remedy}"


class Trust(BaseModel):
    """What was held out of a model's own points, and how far off the model was."""

    model_config = ConfigDict(frozen=True)

    folds: tuple[float, ...] = ()
    """log(measured / predicted) of points held out in folds."""
    between: dict[str, tuple[float, ...]] = {}
    """Of points between the other values of a column."""
    beyond: dict[str, tuple[float, ...]] = {}
    """Of points above the other values of a column."""
    reach: dict[str, float] = {}
    """Largest value held out over the largest learned from, in `beyond`."""
    known: dict[str, tuple[float, ...]] = {}
    """Measured values of each numeric column, in order."""
    model_flags: tuple[Flag, ...] = ()
    """True of every answer: too few points, steps."""

    def widths(self, columns: Mapping[str, Column]) -> Floats:
        """Half widths of the rows' intervals as logarithms, shape (n,); nan where too few were held out."""
        asked = self._questions(columns)
        found = {question: self._width(question) for question in set(asked)}
        return np.array([found[question] for question in asked])

    def flags(self, columns: Mapping[str, Column]) -> tuple[tuple[Flag, ...], ...]:
        """The flags of each row."""
        asked = self._questions(columns)
        found = {question: (*self.model_flags, *self._flags(question)) for question in set(asked)}
        return tuple(found[question] for question in asked)

    def _questions(self, columns: Mapping[str, Column]) -> list[Question]:
        """Of each row: the columns whose value was not measured, and how far beyond the range it lies."""
        placed = [
            (name, [_away(float(value), known) for value in columns[name]])
            for name, known in self.known.items()
        ]
        rows = len(next(iter(columns.values()))) if columns else 0
        return [
            tuple((name, times) for name, away in placed if (times := away[row]) is not None)
            for row in range(rows)
        ]

    def _ways(self, question: Question) -> Iterable[tuple[str, tuple[float, ...], float]]:
        """Words, errors of points held out, and by what their width is multiplied."""
        yield "points held out at random", self.folds, 1.0
        for name, away in question:
            yield f"points between the other values of {name}", self.between.get(name, ()), 1.0
            if away > 1.0:
                tried = self.reach.get(name, 1.0)
                further = math.log(away) / math.log(tried) if tried > 1.0 else 1.0
                yield (
                    f"points beyond the other values of {name}",
                    self.beyond.get(name, ()),
                    max(further, 1.0),
                )

    def _width(self, question: Question) -> float:
        widths = [factor * interval_width(errors) for _, errors, factor in self._ways(question)]
        return math.nan if any(map(math.isnan, widths)) else max(widths)

    def _flags(self, question: Question) -> Iterable[Flag]:
        for words, errors, _ in self._ways(question):
            mean = float(np.mean(np.expm1(np.abs(errors)))) if errors else 0.0
            if mean > LARGEST_ERROR:
                yield Flag(
                    kind="error",
                    reason=f"On {words} the model errs by {mean:.0%} in the mean, above {LARGEST_ERROR:.0%}.",
                    remedy="measure more points there, or add a column that tells them apart.",
                )
        for name, away in question:
            if away <= 1.0:
                if name not in self.between:
                    yield Flag(
                        kind="untried",
                        reason=f"{name} was measured at {len(self.known[name])} values: how the time goes "
                        "between them could not be tried.",
                        remedy=f"measure at least three values of {name}.",
                    )
                continue
            known, tried = self.known[name], self.reach.get(name)
            if tried is None:
                yield Flag(
                    kind="untried",
                    reason=f"{name} was measured at {len(known)} values: how the time goes on beyond them "
                    "could not be tried.",
                    remedy=f"measure at least three values of {name}, the largest near those asked.",
                )
            elif away > tried * REACH_SLACK:
                yield Flag(
                    kind="beyond",
                    reason=f"{name} lies {away:.3g} times beyond the measured {known[0]:g} to {known[-1]:g}; "
                    f"up to {tried:.3g} times was tried.",
                    remedy=f"measure {name} nearer to what is asked.",
                )


Question = tuple[tuple[str, float], ...]
"""Columns whose value was not measured; with how many times beyond the range, 1 within it."""


def _away(value: float, known: Sequence[float]) -> float | None:
    """None for a measured value, 1 between two, else how many times beyond the nearer end."""
    if not known or value in known:
        return None
    low, high = known[0], known[-1]
    if low < value < high:
        return 1.0
    nearer = high if value > high else low
    if nearer <= 0.0 or value <= 0.0:
        return math.inf
    return max(value / nearer, nearer / value)


def interval_width(errors: Sequence[float]) -> float:
    """Half width that covers a share COVERAGE of errors of the logarithm like these; nan of fewer than two.

    The conformal quantile; of too few for its rank (fewer than nine), that of Student's t with their root
    mean square, as for normal errors around 0.

    >>> interval_width([0.01 * n for n in range(1, 10)])
    0.09
    """
    count = len(errors)
    rank = math.ceil((count + 1) * COVERAGE)
    if rank <= count:
        return float(np.sort(np.abs(errors))[rank - 1])
    if count < LEAST_HELD_OUT:
        return math.nan
    from scipy.special import stdtrit

    spread = math.sqrt(float(np.mean(np.square(errors))))
    return spread * float(stdtrit(count, 0.5 + COVERAGE / 2.0))


def model_flags(
    *, configurations: int, terms: int, repeats: Floats, held_out: Floats, lines: Sequence[int]
) -> tuple[Flag, ...]:
    """What is true of every answer of a fit.

    Args:
        configurations: Distinct ones that were fitted on.
        terms: Coefficients of the fit; 0 where they are not counted (trees, kernels, penalties).
        repeats: Longest over shortest time of each repeated configuration.
        held_out: log(measured / predicted) of the points held out in folds.
        lines: Where these points stand in their file.
    """
    found = []
    if configurations < terms + LEAST_SPARE:
        found.append(
            Flag(
                kind="few-points",
                reason=f"{configurations} configurations for {terms} coefficients.",
                remedy=f"measure at least {terms + LEAST_SPARE}, or name techniques with fewer.",
            )
        )
    if len(repeats) and repeats.max() > REPEAT_FACTOR:
        found.append(
            Flag(
                kind="step",
                reason=f"Points equal in every column differ {repeats.max():.2g} times.",
                remedy="add the column in which they differ, or measure again on a quiet machine.",
            )
        )
    off = np.abs(held_out)
    far = off > max(math.log(STEP_FACTOR), STEP_SPREAD * float(np.median(off))) if len(off) else off > 0.0
    if far.sum() > 0 and far.mean() >= STEP_SHARE:
        worst = int(off.argmax())
        found.append(
            Flag(
                kind="step",
                reason=f"The point of line {lines[worst]} took {math.exp(held_out[worst]):.2g} times what "
                "the other points say: a step that no column explains.",
                remedy="add a column that explains it, or measure the point again.",
            )
        )
    return tuple(found)
