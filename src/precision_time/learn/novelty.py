"""How far a model is from every model that was measured, and how much of the correction then holds.

A model is described by its size, its work per sample, its kernels and where its time goes. Near a
measured model the full correction holds; far from all of them it shrinks toward the one that
software, device and precision have in common, whatever the model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .table import JobTable

Floats = NDArray[np.float64]

_UNITS: Mapping[str, float] = {
    "log_params": 1.0,
    "log_flops_per_sample": 1.0,
    "log_launches": 0.7,
    "mean_inner": 0.7,
    "mean_outer": 0.7,
    "mean_kernel_area": 0.5,
    "weight_gradient_share": 0.1,
}
"""Feature and the difference that counts as one step away."""
_SHARE_UNIT = 0.15
_FAMILY_UNIT = 0.7
_REACH = 4.0
"""Distance at which a correction learned from other models has lost most of its hold."""
NEAR = 1.0
"""Distance up to which an unseen model counts as near: sisters of one family."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredModels:
    """The architectures of the corpus and where they lie."""

    architectures: tuple[str, ...]
    positions: Floats
    """Shape (architectures, dims)."""

    def distance(self, jobs: JobTable) -> Floats:
        """Distance of each job's model to the nearest measured one, 0 for those measured, shape (n,)."""
        known = frozenset(self.architectures)
        unknown = sorted({key for key in jobs.architectures if key not in known})
        if not unknown:
            return np.zeros(len(jobs.architectures))
        rows = {key: jobs.architectures.index(key) for key in unknown}
        points = positions_of(jobs)
        nearest = {
            key: float(np.sqrt(np.square(self.positions - points[row]).sum(axis=1)).min())
            for key, row in rows.items()
        }
        return np.array([nearest.get(key, 0.0) for key in jobs.architectures])


def measured_models(jobs: JobTable, rows: NDArray[np.intp]) -> MeasuredModels:
    """The distinct architectures among some rows of a table, each at its median position."""
    points = positions_of(jobs)
    members: dict[str, list[int]] = {}
    for row in rows:
        members.setdefault(jobs.architectures[row], []).append(int(row))
    return MeasuredModels(
        architectures=tuple(members),
        positions=np.stack([np.median(points[indices], axis=0) for indices in members.values()]),
    )


def hold(distance: Floats) -> Floats:
    """Share of the full correction that holds at a distance, 1 for measured models."""
    share: Floats = np.exp(-np.square(distance / _REACH))
    return share


def positions_of(jobs: JobTable) -> Floats:
    """Position of each job's model, shape (n, dims)."""
    columns = {name: jobs.features[:, index] for index, name in enumerate(jobs.names)}
    columns["log_flops_per_sample"] = columns["log_flops"] - columns["log_micro_batch_size"]
    scaled = [columns[name] / unit for name, unit in _UNITS.items()]
    scaled += [columns[name] / _SHARE_UNIT for name in _starting(jobs.names, "class.")]
    scaled += [columns[name] / _FAMILY_UNIT for name in _starting(jobs.names, "family.")]
    return np.stack(scaled, axis=1)


def _starting(names: Sequence[str], prefix: str) -> list[str]:
    return [name for name in names if name.startswith(prefix)]
