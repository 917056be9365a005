"""Measured runs that are most like a job: distances over a few features (`data/distances.toml`)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..io import packaged_toml
from .table import JobTable

_UNITS: Mapping[str, float] = packaged_toml(__package__, "data/distances.toml")["similarity"]["features"]


def similarity_keys(jobs: JobTable) -> NDArray[np.float32]:
    """Positions of jobs, shape (n, dims); Euclidean distance 1 is one step away."""
    columns = [jobs.features[:, jobs.names.index(name)] / unit for name, unit in _UNITS.items()]
    return np.stack(columns, axis=1).astype(np.float32)


def nearest(
    keys: NDArray[np.float32], squares: NDArray[np.float32], points: NDArray[np.float32], count: int
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
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
