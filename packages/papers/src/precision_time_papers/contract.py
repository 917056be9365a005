"""The contract of every published predictor: a title, a citation, and `fit(table, rows).predict(jobs)`.

Predictors that must run the queried job itself (Ernest, Optimus, CherryPick) fit a measurement budget in the
place of a table; their half of the contract is in `per_job.py`. `registry.py` lists all predictors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from precision_time.errors import ConfigError
from precision_time.learn.boosting import DEFAULT_SETTINGS, BoosterSettings
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.table import JobTable
from precision_time.workload.graph import OpGraph

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedColumns:
    """Columns of numbers and their names."""

    names: tuple[str, ...]
    values: Floats
    """Shape (n, len(names))."""

    def take(self, rows: Ints) -> NamedColumns:
        """Some of the rows."""
        return NamedColumns(names=self.names, values=self.values[rows])


_IDS = ("job", "dataset", "architecture", "setting")


@dataclass(frozen=True, kw_only=True, slots=True)
class JobViews:
    """n jobs as predictors see them; everything is in the order of the jobs."""

    native: JobTable
    """Priced at the precision of each job."""
    fp32: JobTable
    """The same jobs priced as if all ran in fp32: nothing in it depends on the precision."""
    embedding: NamedColumns
    """Vectors of the architectures (`ghn.*`), and of the graphs with lowered types (`ghnp.*`)."""
    cluster: NamedColumns
    """What PredictDDL reads of the cluster and the batch (`cluster.*`)."""
    job: Ints
    """Number of the measured job that a row is a configuration of, shape (n,)."""
    dataset: Ints
    """Number of the dataset type, shape (n,)."""
    architecture: Ints
    """Number of the operator graph, shape (n,)."""
    setting: Ints
    """Number of the source, precision, stack and dataset type, shape (n,); -1 if not data parallel."""

    @classmethod
    def of(
        cls,
        native: JobTable,
        fp32: JobTable,
        *,
        embedding: NamedColumns | None = None,
        cluster: NamedColumns | None = None,
        ids: Mapping[str, Ints] | None = None,
    ) -> Self:
        """The views of jobs; what is not given is empty, ids not given are 0."""
        count = len(native.analytical_s)
        empty = NamedColumns(names=(), values=np.zeros((count, 0)))
        unknown = {name: np.zeros(count, dtype=np.intp) for name in _IDS}
        return cls(
            native=native,
            fp32=fp32,
            embedding=embedding or empty,
            cluster=cluster or empty,
            **(unknown | dict(ids or {})),
        )

    def __len__(self) -> int:
        return len(self.native.analytical_s)

    def take(self, rows: Ints) -> JobViews:
        """Some of the jobs."""
        return JobViews(**{name: getattr(self, name).take(rows) for name in self.__slots__})


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureTable:
    """Measured runs with every view of their jobs."""

    measured: MeasuredTable
    jobs: JobViews
    graphs: tuple[OpGraph, ...] = ()
    """Operator graphs by `jobs.architecture`."""

    def __len__(self) -> int:
        return len(self.measured)

    @property
    def measured_s(self) -> Floats:
        """Measured step times [s], shape (n,)."""
        return self.measured.measured_s


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictorOptions:
    """What all predictors are made with."""

    trees: Mapping[str, BoosterSettings] = field(default_factory=lambda: DEFAULT_SETTINGS)
    """LightGBM settings per stage, for predictors with boosted stages."""
    seed: int = 0
    quick: bool = False
    """Few epochs for networks: to check that everything works."""


class PublishedPredictor(Protocol):
    """What is known of a predictor before it is fitted."""

    @property
    def title(self) -> str:
        """Its name in tables."""
        ...

    @property
    def citation(self) -> str:
        """Where it was published."""
        ...


class Fitted(Protocol):
    """A fitted predictor."""

    def predict(self, jobs: JobViews) -> Floats:
        """Step times of jobs [s], shape (n,)."""
        ...


class Estimator(PublishedPredictor, Protocol):
    """A predictor that is fitted to measured runs of any jobs."""

    def fit(self, table: FeatureTable, rows: Ints) -> Fitted:
        """Fit to some rows of a table."""
        ...


def require_rows(rows: Ints, title: str) -> None:
    """Refuse to fit a predictor to nothing.

    Raises:
        ConfigError: If there is no row.
    """
    if not len(rows):
        raise ConfigError(f"{title} was given no row to learn from. To fix: give measured runs.")


def column(jobs: JobTable, name: str) -> Floats:
    """One feature, shape (n,)."""
    values: Floats = jobs.features[:, jobs.names.index(name)]
    return values


def flops_per_device(jobs: JobTable) -> Floats:
    """FLOPs of one step on each device, shape (n,): recomputation is not counted."""
    # Micro batches that a device runs over the devices that share each of them.
    ways = sum(column(jobs, name) for name in ("log_tp", "log_pp", "log_cp"))
    flops: Floats = np.exp(column(jobs, "log_flops") + column(jobs, "log_num_micro_batches") - ways)
    return flops


def bytes_per_device(jobs: JobTable) -> Floats:
    """Bytes that the kernels of one step move on each device, shape (n,)."""
    moved: Floats = flops_per_device(jobs) / np.exp(column(jobs, "log_flops_per_byte"))
    return moved
