"""How far a job is from every measured run, and how much of the correction then holds.

A run is described by where its time goes, what it runs on and in which software. The trees' correction
was earned there; far from all measured runs it shrinks, and the cost model speaks for itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from .table import JobTable

Floats = NDArray[np.float64]
Positions = NDArray[np.float32]

_UNITS: Mapping[str, float] = {
    "log_mean_kernel_s": 1.0,
    "log_params": 1.0,
    "log_fp32_peak": 0.35,
    "log_bandwidth": 0.35,
    "log_devices": 2.0,
    "log_nodes": 2.0,
    "framework_year": 3.0,
}
"""Feature and the difference that counts as one step away."""
_UNITS_OF_KINDS: Mapping[str, float] = {
    "share.": 0.15,
    "class.": 0.2,
    "stack.": 1.0,
    "family.": 1.4,
    "matmul.": 1.4,
}
"""The same for all features that begin so; of two stacks, families or types the distance is 1.4, 1, 1."""
REACH = 1.0
"""Distance up to which a job counts as one of the measured runs, so that their details hold in full."""
_HOLDS = 1.5
"""Distance up to which the correction as a whole holds in full."""
_FADE = 1.5
"""Power with which both fade. Chosen on what was held out under six protocols together: see devdoc 003."""
NEAR = 2.5
"""Distance up to which a job counts as near measured runs."""
_CELL = 0.5
_QUERY_CELL = 0.25
_CHUNK = 2048


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredRuns:
    """Where the runs of the corpus lie, thinned out to one per cell of half a step."""

    positions: Positions
    """Shape (runs, dims)."""
    squares: Positions = field(init=False)
    """Squared length of each position, shape (runs,): makes looking for the nearest one product."""

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
            (self.squares - 2.0 * (chunk @ self.positions.T)).min(axis=1) + np.square(chunk).sum(axis=1)
            for chunk in np.array_split(points, max(len(points) // _CHUNK, 1))
        ]
        distance: Floats = np.sqrt(np.maximum(np.concatenate(nearest).astype(np.float64), 0.0))
        return distance


def measured_runs(jobs: JobTable, rows: NDArray[np.intp]) -> MeasuredRuns:
    """The runs among some rows of a table, the first of each cell."""
    points = positions_of(jobs)[rows]
    _, first = np.unique(_cells(points, _CELL), return_index=True)
    return MeasuredRuns(positions=points[np.sort(first)])


def hold(distance: Floats) -> Floats:
    """Share of the correction that holds at a distance: all of it within 1.5.

    >>> hold(np.array([0.0, 1.5, 6.0])).tolist()
    [1.0, 1.0, 0.125]
    """
    return _faded(distance, _HOLDS)


def detail(distance: Floats) -> Floats:
    """Share of the correction that is read off the runs nearby, the rest being what runs have in common.

    >>> detail(np.array([0.0, 1.0, 4.0])).tolist()
    [1.0, 1.0, 0.125]
    """
    return _faded(distance, REACH)


def _faded(distance: Floats, until: float) -> Floats:
    share: Floats = (np.maximum(distance, until) / until) ** -_FADE
    return share


def share_that_holds(distance: float) -> float:
    """`hold` of one job."""
    return float(hold(np.array([distance]))[0])


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
    units = [
        _UNITS.get(name) or next((u for kind, u in _UNITS_OF_KINDS.items() if name.startswith(kind)), 0.0)
        for name in names
    ]
    used = np.array([index for index, unit in enumerate(units) if unit], dtype=np.intp)
    return used, np.array([unit for unit in units if unit])
