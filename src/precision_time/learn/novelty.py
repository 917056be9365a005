"""What of a job is new: how far it is from every measured run, by kind, and which runs are most like it.

A job can be new in its model, its device, its number of devices, its software and its precision. Trees
repeat their outermost leaf beyond what they have seen, so the correction fades with the distance, and with
some kinds faster than with others: what was learned of a stack holds for another model, hardly for another
stack.
Units and fading are `data/novelty.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats, Ints
from ..io import packaged_toml

if TYPE_CHECKING:
    from .table import JobTable

Positions = NDArray[np.float32]

_TOML = packaged_toml(__package__, "data/novelty.toml")
_CONFIGURATION: Mapping[str, float] = _TOML["configuration"]
KINDS: tuple[str, ...] = tuple(name for name in _TOML if name != "configuration")
"""What of a job can be new, in the order of the columns of a novelty."""
_FADE = np.array([_TOML[kind]["fade"] for kind in KINDS])
_LOCAL_FADE = np.array([_TOML[kind]["local_fade"] for kind in KINDS])
_WEIGHT = np.array([_TOML[kind]["weight"] for kind in KINDS])
_DIGITS = 3
"""Positions that agree to so many digits are one."""
_TIE_DIGITS = 5
"""Squared distances that agree to so many digits are equal."""
_CHUNK = 2048
_CANDIDATES = 24
"""Positions whose runs are compared in full when the most similar ones are looked for."""
_TIE = 1e-3
"""Squared distances of positions that are no further apart are taken for equal: sums over many jobs at once
differ in their last digits from those over one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSet:
    """The distinct positions of the runs that a predictor was trained on."""

    positions: Positions
    """Shape (positions, dims)."""
    exact: Floats = field(init=False, repr=False)
    """The positions in double precision: of two that are equally near, the first must be found every time."""
    squares: Floats = field(init=False, repr=False)
    """Squared length of each position: the search for the nearest is one product."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "exact", self.positions.astype(np.float64))
        object.__setattr__(self, "squares", np.square(self.exact).sum(axis=1))

    def novelty(self, jobs: JobTable) -> Floats:
        """Distance of each job to its nearest measured run, by kind, shape (n, len(KINDS)).

        The nearest run is the one with the least distance over all kinds together.
        """
        if not len(jobs.features):
            return np.zeros((0, len(KINDS)))
        points, which = _distinct(positions_of(jobs))
        starts = _columns(jobs.names)[2]
        found = np.empty((len(points), len(KINDS)))
        for rows in np.array_split(np.arange(len(points)), max(len(points) // _CHUNK, 1)):
            asked = points[rows].astype(np.float64)
            nearest = (self.squares - 2.0 * (asked @ self.exact.T)).round(_TIE_DIGITS).argmin(axis=1)
            apart = asked - self.exact[nearest]
            found[rows] = _by_kind(np.square(apart), starts)
        distances: Floats = np.sqrt(found)[which]
        return distances


def training_set(jobs: JobTable, rows: NDArray[np.intp]) -> TrainingSet:
    """The distinct positions among some rows of a table."""
    return TrainingSet(positions=_distinct(positions_of(jobs)[rows])[0])


def shrinkage(novelty: Floats) -> Floats:
    """Share of the correction that is used, shape (n,): all of it where nothing is new.

    >>> shrinkage(np.zeros((1, len(KINDS)))).tolist()
    [1.0]
    """
    return faded(novelty, _FADE)


def local_weight(novelty: Floats) -> Floats:
    """Weight of the local stage, the rest being that of the three smooth stages, shape (n,)."""
    return faded(novelty, _LOCAL_FADE)


def faded(novelty: Floats, rates: Floats) -> Floats:
    """Product over the kinds of (1 + distance)^-rate, shape (n,)."""
    share: Floats = np.exp(-np.log1p(novelty) @ rates)
    return share


def new_kinds(novelty: Floats, *, steps: float = 1.0) -> tuple[str, ...]:
    """The kinds in which one job, shape (len(KINDS),), is more than some steps from every measured run."""
    return tuple(kind for kind, distance in zip(KINDS, novelty, strict=True) if distance > steps)


def positions_of(jobs: JobTable) -> Positions:
    """Position of each job, shape (n, dims), columns of one kind side by side."""
    # Adding 0.0 makes zeros out of negative ones, so that equal positions have equal bits.
    used, units, _ = _columns(jobs.names)
    scaled: Positions = ((jobs.features[:, used] / units).round(_DIGITS) + 0.0).astype(np.float32)
    return scaled


def _distinct(points: Positions) -> tuple[Positions, NDArray[np.intp]]:
    """The points without repeats, and which of them each one is."""
    if len(points) == 1:
        return points, np.zeros(1, dtype=np.intp)
    # One number per row instead of a sort of whole rows: two rows share one with a chance of 2^-64.
    numbers = points.view(np.int32).astype(np.int64) @ _mixing(points.shape[1])
    _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    return points[first], which.reshape(-1).astype(np.intp)


@lru_cache(maxsize=8)
def _mixing(dims: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(-(1 << 62), 1 << 62, size=dims)


def _by_kind(squares: Floats, starts: Ints) -> Floats:
    """Sums over the columns of each kind; a kind without columns has none."""
    sums = np.zeros((len(squares), len(KINDS)))
    for index, (start, end) in enumerate(zip(starts[:-1], starts[1:], strict=True)):
        sums[:, index] = squares[:, start:end].sum(axis=1)
    return sums


@lru_cache(maxsize=8)
def _columns(names: tuple[str, ...]) -> tuple[NDArray[np.intp], Floats, Ints]:
    """Features that positions are made of, their units, and where each kind begins among them."""
    used: list[int] = []
    scale: list[float] = []
    starts = [0]
    for kind in KINDS:
        stated: Mapping[str, float] = _TOML[kind]["units"]
        for index, name in enumerate(names):
            unit = stated.get(name) or stated.get(name.split(".", maxsplit=1)[0] + ".")
            if unit:
                used.append(index)
                scale.append(unit)
        starts.append(len(used))
    return np.array(used, dtype=np.intp), np.array(scale), np.array(starts, dtype=np.int64)


@dataclass(frozen=True, kw_only=True, slots=True)
class RunIndex:
    """Measured runs, to find those that are most like a job: positions first, then the runs at the best."""

    positions: Positions
    """Distinct positions, shape (positions, dims)."""
    order: NDArray[np.int32]
    """Rows of the runs, those of one position side by side, shape (n,)."""
    starts: NDArray[np.int32]
    """Where each position's rows begin in `order`, shape (positions + 1,)."""
    configurations: Positions
    """What tells apart the runs of one position, in the order of the rows, shape (n, features)."""
    _weighted: dict[tuple[str, ...], tuple[Positions, Positions, Positions]] = field(
        init=False, repr=False, compare=False, default_factory=dict
    )
    """By columns: their weights, the positions times them, and the squared length of each."""

    def nearest(self, jobs: JobTable, count: int) -> tuple[NDArray[np.intp], Floats]:
        """The runs most like each job, best first, and their similarity exp(-distance / 2).

        Returns:
            Rows and similarity, shape (jobs, min(count, runs)) each.
        """
        count = min(count, len(self.order))
        points, shapes = positions_of(jobs), configurations_of(jobs)
        distinct, which = _distinct(points)
        weight, placed, squares = self._placed(jobs.names)
        asked = distinct * weight
        apart = squares - 2.0 * (asked @ placed.T)
        rows = np.zeros((len(points), count), dtype=np.intp)
        alike = np.zeros((len(points), count))
        sizes = np.diff(self.starts)
        # Every position has a run: the best so many hold enough of them.
        reach = min(count + _CANDIDATES, len(sizes))
        for index, point in enumerate(asked):
            furthest = np.partition(apart[index], reach - 1)[reach - 1]
            cells = np.flatnonzero(apart[index] <= furthest + _TIE)
            found = np.concatenate([self.order[self.starts[cell] : self.starts[cell + 1]] for cell in cells])
            away = np.repeat(np.square(placed[cells] - point).sum(axis=1), sizes[cells])
            configurations = self.configurations[found]
            for row in np.flatnonzero(which == index):
                total = away + np.square(configurations - shapes[row]).sum(axis=1)
                chosen = np.argsort(total, kind="stable")[:count]
                rows[row], alike[row] = found[chosen], np.exp(-np.sqrt(total[chosen]) / 2.0)
        return rows, alike

    def _placed(self, names: tuple[str, ...]) -> tuple[Positions, Positions, Positions]:
        """Weights of the columns, the positions times them, and the squared length of each."""
        if names not in self._weighted:
            weight = np.repeat(_WEIGHT, np.diff(_columns(names)[2])).astype(np.float32)
            placed = self.positions * weight
            self._weighted[names] = (weight, placed, np.square(placed).sum(axis=1))
        return self._weighted[names]


def run_index(jobs: JobTable, rows: NDArray[np.intp]) -> RunIndex:
    """An index of some rows of a table; the rows that it finds are those of the table."""
    positions, which = _distinct(positions_of(jobs)[rows])
    order = np.argsort(which, kind="stable")
    configurations = np.zeros((len(jobs.features), len(_CONFIGURATION)), dtype=np.float32)
    configurations[rows] = configurations_of(jobs)[rows]
    return RunIndex(
        positions=positions,
        order=rows[order].astype(np.int32),
        starts=np.concatenate([[0], np.cumsum(np.bincount(which, minlength=len(positions)))]).astype(
            np.int32
        ),
        configurations=configurations,
    )


def configurations_of(jobs: JobTable) -> Positions:
    """What tells apart runs of one position, shape (n, features), in steps."""
    columns = [jobs.features[:, jobs.names.index(name)] / unit for name, unit in _CONFIGURATION.items()]
    return np.stack(columns, axis=1).astype(np.float32)
