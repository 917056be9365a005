"""What of a job is new: how far it is from every measured run, by kind, and which runs are most like it.

A job can be new in its model, its device, its number of devices, its software and its precision. The distance
widens intervals, warns of extrapolation and finds the runs to show; with that of the software, and of a model
that is far from all, the correction shrinks. Units and rates are `data/novelty.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats, Indices, Ints, Same
from ..cache import Deriving, data, derived, memo
from ..io import packaged_toml
from ..records import dataclass
from .features import INDICATORS

if TYPE_CHECKING:
    from .table import JobTable

Positions = NDArray[np.float32]

_TOML = packaged_toml(__package__, "data/novelty.toml")
_CONFIGURATION: Mapping[str, float] = _TOML["configuration"]
KINDS: tuple[str, ...] = tuple(name for name in _TOML if name != "configuration")
"""What of a job can be new, in the order of the columns of a novelty."""
_MODEL, _SOFTWARE = KINDS.index("model"), KINDS.index("software")
FADE: float = _TOML["software"]["fade"]
"""Rate at which a correction shrinks with the distance to known software."""
_FAR: float = _TOML["model"]["far"]
_FAR_FADE: float = _TOML["model"]["far_fade"]
_WEIGHT = np.array([_TOML[kind]["weight"] for kind in KINDS])
_DIGITS = 3
"""Positions that agree to so many digits are one."""
_EQUAL = 1e-5
"""Squared distances that are no further apart are equal: of the positions at them, the first is taken."""
_CANDIDATES = 24
"""Positions whose runs are compared in full when the most similar ones are looked for."""
_TIE = 1e-3
"""Squared distances of weighted positions that are no further apart are taken for equal."""
_ALIKE = np.ones(len(KINDS))


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionIndex:
    """Positions by what they are made of, to find the nearest ones of a point without looking at all.

    Few models, devices, scales, stacks and precisions make up many positions: squared distances are added up
    from those of the parts, for the positions of those models alone that are near enough by themselves.
    """

    parts: tuple[Floats, ...]
    """Of each kind: its distinct parts, shape (parts, columns)."""
    which: tuple[Indices, ...]
    """Of each kind: the part of each position, shape (positions,)."""
    by_model: Indices
    """Positions in the order of their first part."""
    starts: Indices
    """Where those of each first part begin, shape (parts + 1,)."""

    def near(self, point: Floats, weights: Floats, reach: int) -> tuple[Indices, Floats]:
        """Positions that hold the `reach` nearest ones to a point and all that are equally near, in order.

        Args:
            point: Shape (dims,).
            weights: Of the kinds: factors on their distances.
            reach: How many are wanted, at most all.

        Returns:
            The positions, and their squared distances by kind, without weights, shape (kinds, found).
        """
        ends = np.cumsum([part.shape[1] for part in self.parts])[:-1]
        own = zip(self.parts, np.split(point, ends), strict=True)
        squares = [np.square(part - its).sum(axis=1) for part, its in own]
        models = squares[0] * weights[0] ** 2
        order = np.argsort(models, kind="stable")
        sizes = np.cumsum(np.diff(self.starts)[order])
        first = int(np.searchsorted(sizes, reach)) + 1
        ranges = [slice(*self.starts[one : one + 2]) for one in order[:first].tolist()]
        found = np.concatenate([self.by_model[its] for its in ranges])
        by_kind, total = self._distances(found, squares, weights)
        limit = np.partition(total, reach - 1)[reach - 1] + _TIE
        if np.count_nonzero(models <= limit) > first:
            found = np.flatnonzero((models <= limit)[self.which[0]])
            by_kind, total = self._distances(found, squares, weights)
            limit = np.partition(total, reach - 1)[reach - 1] + _TIE
        kept = np.flatnonzero(total <= limit)
        kept = kept[np.argsort(found[kept])]
        return found[kept], by_kind[:, kept]

    def _distances(self, found: Indices, squares: Sequence[Floats], weights: Floats) -> tuple[Floats, Floats]:
        """Squared distances of some positions by kind, and the weighted sum of those."""
        by_kind = np.stack([own[which[found]] for own, which in zip(squares, self.which, strict=True)])
        return by_kind, np.square(weights) @ by_kind


@memo(16)
def _index_of(positions: Same, names: tuple[str, ...]) -> PositionIndex:
    """The index of positions (P, dims) whose columns are those of `names`; a predictor's sets share one."""
    points: Positions = positions.value
    starts = _columns(names)[2]
    parts, which = [], []
    for start, end in zip(starts[:-1], starts[1:], strict=True):
        part, whose = _distinct(np.ascontiguousarray(points[:, start:end]))
        parts.append(part.astype(np.float64))
        which.append(whose)
    return PositionIndex(
        parts=tuple(parts),
        which=tuple(which),
        by_model=np.argsort(which[0], kind="stable"),
        starts=np.concatenate([[0], np.cumsum(np.bincount(which[0], minlength=len(parts[0])))]),
    )


@derived
def _always_indicated(
    training: TrainingSet, names: tuple[str, ...]
) -> tuple[tuple[int, Indices, float], ...]:
    """The indicators of which every position (P, dims) has one: their kind, columns and squared step."""
    points = training.positions
    used, units, starts = _columns(names)
    found = []
    for prefix in INDICATORS:
        columns = np.flatnonzero([names[column].startswith(prefix) for column in used])
        if len(columns) and points[:, columns].any(axis=1).all():
            kind = int(np.searchsorted(starts, columns[0], side="right")) - 1
            found.append((kind, columns, float(units[columns[0]] ** -2)))
    return tuple(found)


@derived
def _indicated(training: TrainingSet, names: tuple[str, ...]) -> frozenset[str]:
    """The columns that are not 0 in all positions (P, dims)."""
    points = training.positions
    used = _columns(names)[0]
    return frozenset(names[column] for column in used[points.any(axis=0)])


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSet(Deriving):
    """The distinct positions of the runs that a predictor was trained on."""

    positions: Positions
    """Shape (positions, dims)."""

    def novelty(self, jobs: JobTable) -> Floats:
        """Distance of each job to its nearest measured run, by kind, shape (n, len(KINDS)).

        The nearest run is the one with the least distance over all kinds together.
        """
        if not len(jobs.features):
            return np.zeros((0, len(KINDS)))
        points, which = _distinct(positions_of(jobs))
        own = Same(self)
        return np.array([_novelty(own, jobs.names, point.tobytes()) for point in points])[which]

    def has(self, column: str, names: tuple[str, ...]) -> bool:
        """Whether a measured run has an indicator, a stack or a family, among the columns `names`."""
        return column in _indicated(self, names)


@memo(2048)
def _novelty(training: Same, names: tuple[str, ...], point: bytes) -> Floats:
    """Distance of a position to the nearest one of a training set, by kind."""
    known: TrainingSet = training.value
    at = np.frombuffer(point, dtype=np.float32)
    _, squares = _index_of(Same(known.positions), names).near(at.astype(np.float64), _ALIKE, 1)
    total = squares.sum(axis=0)
    nearest = squares[:, np.flatnonzero(total <= total.min() + _EQUAL)[0]]
    # An indicator without a column is as far away as one with a column that no run has.
    for kind, columns, square in _always_indicated(known, names):
        if not at[columns].any():
            nearest[kind] += square
    distances: Floats = np.sqrt(nearest)
    return distances


def training_set(jobs: JobTable, rows: Indices) -> TrainingSet:
    """The distinct positions among some rows of a table."""
    return TrainingSet(positions=_distinct(positions_of(jobs)[rows])[0])


def shrinkage(novelty: Floats, fade: float = FADE) -> Floats:
    """Share of the correction that is used, shape (n,): all of it where software and kind of model are known.

    Args:
        novelty: Distance to the nearest measured run by kind, shape (n, len(KINDS)).
        fade: Rate of the software.

    >>> shrinkage(np.zeros((1, len(KINDS)))).tolist()
    [1.0]
    """
    beyond = np.maximum(novelty[:, _MODEL] - _FAR, 0.0)
    share: Floats = (1.0 + novelty[:, _SOFTWARE]) ** -fade * (1.0 + beyond) ** -_FAR_FADE
    return share


def new_kinds(novelty: Floats, *, steps: float = 1.0) -> tuple[str, ...]:
    """The kinds in which one job, shape (len(KINDS),), is more than some steps from every measured run."""
    return tuple(kind for kind, distance in zip(KINDS, novelty, strict=True) if distance > steps)


def positions_of(jobs: JobTable) -> Positions:
    """Position of each job, shape (n, dims), columns of one kind side by side."""
    # Adding 0.0 makes zeros out of negative ones, so that equal positions have equal bits.
    used, units, _ = _columns(jobs.names)
    scaled = jobs.features.take(used, axis=1) / units
    return (scaled.round(_DIGITS, out=scaled) + 0.0).astype(np.float32)


def _distinct(points: Positions) -> tuple[Positions, Indices]:
    """The points without repeats, and which of them each one is."""
    if len(points) == 1:
        return points, np.zeros(1, dtype=np.intp)
    # One number per row instead of a sort of whole rows: two rows share one with a chance of 2^-64.
    numbers = points.view(np.int32).astype(np.int64) @ _mixing(points.shape[1])
    _, first, which = np.unique(numbers, return_index=True, return_inverse=True)
    return points[first], which.reshape(-1).astype(np.intp)


def _mixing(dims: int) -> NDArray[np.int64]:
    """Numbers without a pattern, of splitmix64: `numpy.random` takes 10 ms to import."""
    mixed = np.arange(1, dims + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return mixed.view(np.int64)


@data
def _columns(names: tuple[str, ...]) -> tuple[Indices, Floats, Ints]:
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

    def nearest(self, jobs: JobTable, count: int) -> tuple[Indices, Floats]:
        """The runs most like each job, best first, and their similarity exp(-distance / 2).

        Returns:
            Rows and similarity, shape (jobs, min(count, runs)) each.
        """
        count = min(count, len(self.order))
        points, shapes = positions_of(jobs), configurations_of(jobs)
        rows = np.zeros((len(points), count), dtype=np.intp)
        alike = np.zeros((len(points), count))
        own = Same(self)
        for index, (point, shape) in enumerate(zip(points, shapes, strict=True)):
            found, away = _candidates(own, point.tobytes(), jobs.names, count)
            total = away + np.square(self.configurations[found] - shape).sum(axis=1)
            chosen = np.argsort(total, kind="stable")[:count]
            rows[index], alike[index] = found[chosen], np.exp(-np.sqrt(total[chosen]) / 2.0)
        return rows, alike

    def at(self, job: JobTable, *, within: float) -> Indices:
        """The runs that differ from one job by no more than a distance in all kinds together."""
        point = positions_of(job)[0].astype(np.float64)
        cells, squares = _index_of(Same(self.positions), job.names).near(point, _ALIKE, 1)
        near = cells[squares.sum(axis=0) <= within**2]
        runs = [self.order[self.starts[cell] : self.starts[cell + 1]] for cell in near]
        return np.concatenate([np.zeros(0, dtype=np.int32), *runs]).astype(np.intp)


@memo(256)
def _candidates(runs: Same, point: bytes, names: tuple[str, ...], count: int) -> tuple[Indices, Floats]:
    """The runs at the positions nearest to one, and their squared distances."""
    known: RunIndex = runs.value
    # Every position has a run: the best so many hold enough of them.
    reach = min(count + _CANDIDATES, len(known.positions))
    at = np.frombuffer(point, dtype=np.float32).astype(np.float64)
    cells, squares = _index_of(Same(known.positions), names).near(at, _WEIGHT, reach)
    found = np.concatenate([known.order[known.starts[cell] : known.starts[cell + 1]] for cell in cells])
    away = (np.square(_WEIGHT) @ squares).repeat(np.diff(known.starts)[cells])
    return found.astype(np.intp), away


def run_index(jobs: JobTable, rows: Indices) -> RunIndex:
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
