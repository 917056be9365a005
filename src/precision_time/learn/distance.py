"""Distances between jobs: to the training set, and to the measured runs that are most like a job.

A run is described by where its time goes, what it runs on and in which software. Far from all measured runs
the correction shrinks toward none, and the cost model decides. The runs that are shown next to an answer are
found over other features (`similarity`). The units of both are `data/distances.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..io import packaged_toml

if TYPE_CHECKING:
    from .table import JobTable

Floats = NDArray[np.float64]
Positions = NDArray[np.float32]

_TOML = packaged_toml(__package__, "data/distances.toml")
_DISTANCES = _TOML["training_set"]
_SIMILARITY_UNITS: Mapping[str, float] = _TOML["similarity"]["features"]
LOCAL_RADIUS: float = _DISTANCES["radii"]["local_radius"]
"""Distance up to which a job counts as one of the measured runs, so that the local stage decides."""
MODERATE_RADIUS: float = _DISTANCES["radii"]["moderate_radius"]
"""Distance up to which a job is a moderate extrapolation; beyond, a strong one."""
_CELL = 0.5
"""Side of the cells of which the training set keeps one run each."""
_QUERY_CELL = 0.25
"""Jobs of one cell share a distance."""
_CHUNK = 2048


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSet:
    """Positions of the runs that a predictor was trained on, one per cell of half a step."""

    positions: Positions
    """Shape (runs, dims)."""
    squares: Positions = field(init=False)
    """Squared length of each position, shape (runs,): the search for the nearest is one product."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "squares", np.square(self.positions).sum(axis=1))

    def distance(self, jobs: JobTable) -> Floats:
        """Distance of each job to the nearest measured run, shape (n,)."""
        points = positions_of(jobs)
        if len(points) == 1:
            return self._nearest(points)
        _, first, which = np.unique(_cells(points, _QUERY_CELL), return_index=True, return_inverse=True)
        found: Floats = self._nearest(points[first])[which.reshape(-1)]
        return found

    def _nearest(self, points: Positions) -> Floats:
        nearest = [
            (self.squares - 2.0 * (chunk @ self.positions.T)).min(axis=1, initial=np.inf)
            + np.square(chunk).sum(axis=1)
            for chunk in np.array_split(points, max(len(points) // _CHUNK, 1))
        ]
        distance: Floats = np.sqrt(np.maximum(np.concatenate(nearest).astype(np.float64), 0.0))
        return distance


def training_set(jobs: JobTable, rows: NDArray[np.intp]) -> TrainingSet:
    """The runs among some rows of a table, the first of each cell."""
    points = positions_of(jobs)[rows]
    _, first = np.unique(_cells(points, _CELL), return_index=True)
    return TrainingSet(positions=points[np.sort(first)])


def shrinkage(distance: Floats) -> Floats:
    """Share of the correction that is used at a distance to the training set: all of it within 1.5.

    >>> shrinkage(np.array([0.0, 1.5, 6.0])).tolist()
    [1.0, 1.0, 0.125]
    """
    return _decayed(distance, _DISTANCES["radii"]["shrinkage_radius"])


def local_weight(distance: Floats) -> Floats:
    """Weight of the local stage at a distance, the rest being that of the three smooth stages.

    >>> local_weight(np.array([0.0, 1.0, 4.0])).tolist()
    [1.0, 1.0, 0.125]
    """
    return _decayed(distance, LOCAL_RADIUS)


def _decayed(distance: Floats, radius: float) -> Floats:
    share: Floats = (np.maximum(distance, radius) / radius) ** -_DISTANCES["radii"]["decay"]
    return share


def positions_of(jobs: JobTable) -> Positions:
    """Position of each job, shape (n, dims)."""
    used, units = _columns(jobs.names)
    scaled: Positions = np.asarray(jobs.features[:, used] / units, dtype=np.float32)
    return scaled


def _cells(points: Positions, side: float) -> NDArray[np.int64]:
    """A number for the cell of each point, shape (n,); two cells share one with a chance of 2^-64."""
    corners = np.round(points / side).astype(np.int64)
    numbers: NDArray[np.int64] = corners @ _mixing(points.shape[1])
    return numbers


@lru_cache(maxsize=8)
def _mixing(dims: int) -> NDArray[np.int64]:
    return np.random.default_rng(0).integers(-(1 << 62), 1 << 62, size=dims)


@lru_cache(maxsize=8)
def _columns(names: tuple[str, ...]) -> tuple[NDArray[np.intp], Floats]:
    """Features that the space is made of, and their units."""
    exact, prefixes = _DISTANCES["features"], _DISTANCES["prefixes"]
    units = [
        exact.get(name) or next((unit for kind, unit in prefixes.items() if name.startswith(kind)), 0.0)
        for name in names
    ]
    used = np.array([index for index, unit in enumerate(units) if unit], dtype=np.intp)
    return used, np.array([unit for unit in units if unit])


def similarity_keys(jobs: JobTable) -> Positions:
    """Positions of jobs, shape (n, dims), for `nearest`; Euclidean distance 1 is one step away."""
    columns = [jobs.features[:, jobs.names.index(name)] / unit for name, unit in _SIMILARITY_UNITS.items()]
    return np.stack(columns, axis=1).astype(np.float32)


def nearest(
    keys: Positions, squares: Positions, points: Positions, count: int
) -> tuple[NDArray[np.intp], Floats]:
    """The `count` rows of `keys` nearest to each point, best first, and their similarity exp(-distance / 2).

    Args:
        keys: Shape (n, dims).
        squares: Squared length of each key, shape (n,).
        points: Shape (q, dims).
        count: How many rows to return at most.

    Returns:
        Rows and similarity, shape (q, min(count, n)) each.
    """
    count = min(count, len(keys))
    if count == 0:
        return np.zeros((len(points), 0), dtype=np.intp), np.zeros((len(points), 0))
    # |k - p|^2 up to the constant |p|^2, by one product; exact distances for the few that matter.
    rows = np.argpartition(squares + (np.float32(-2.0) * points) @ keys.T, count - 1, axis=1)[:, :count]
    apart = keys[rows].astype(np.float64) - points[:, None, :]
    distance = np.sqrt(np.square(apart).sum(axis=2))
    order = np.argsort(distance, axis=1, kind="stable")
    return np.take_along_axis(rows, order, axis=1), np.exp(-np.take_along_axis(distance, order, axis=1) / 2.0)
