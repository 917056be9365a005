"""What a baseline is: fitted on rows of a table, asked of jobs.

The table given to baselines holds every feature twice (`both`): as the precision of a run prices it, and
led by `fp32.` as if the run were in fp32. A predictor that must not know the precision reads the latter.
Where predictors of architectures are compared (`evaluation/comparison`), there are further columns: the
embedding of the architecture (`ghn.`), that of the graph with lowered types (`ghnp.`), what the cluster
offers (`cluster.`), and numbers that say which job, data set and architecture a row is of (`job.`). The last
are for looking up, never for learning from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ..learn.table import JobTable, MeasuredTable

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

FP32 = "fp32."
GHN, GHN_PRECISION, CLUSTER, JOB = "ghn.", "ghnp.", "cluster.", "job."
BESIDE = (FP32, GHN, GHN_PRECISION, CLUSTER, JOB)
"""What leads the columns that are not of a job as its own precision prices it."""
JOB_ID, DATASET, ARCHITECTURE = f"{JOB}id", f"{JOB}dataset", f"{JOB}architecture"
_SECONDS = ("analytical_s", "compute_s", "exposed_s")


class Fitted(Protocol):
    """A fitted predictor."""

    def predict(self, jobs: JobTable) -> Floats:
        """Step times of jobs [s], shape (n,); `jobs` has the columns of `both`."""
        ...


class Estimator(Protocol):
    """A way to predict step times."""

    @property
    def title(self) -> str:
        """Heading of its column."""
        ...

    def fit(self, table: MeasuredTable, rows: Ints) -> Fitted:
        """Fit on some rows of a table; `table.jobs` has the columns of `both`."""
        ...


def both(own: JobTable, fp32: JobTable) -> JobTable:
    """One table with the features of a job twice; its seconds are those of the job's own precision."""
    seconds = np.stack([getattr(fp32, name) for name in _SECONDS], axis=1)
    return JobTable(
        features=np.concatenate([own.features, fp32.features, seconds], axis=1),
        names=(*own.names, *(FP32 + name for name in (*fp32.names, *_SECONDS))),
        analytical_s=own.analytical_s,
        compute_s=own.compute_s,
        exposed_s=own.exposed_s,
    )


def beside(jobs: JobTable, columns: Mapping[str, Floats]) -> JobTable:
    """The table with more columns, shape (n,) each; their names begin with one of BESIDE."""
    more = np.stack([*columns.values()], axis=1)
    return replace(
        jobs, features=np.concatenate([jobs.features, more], axis=1), names=(*jobs.names, *columns)
    )


def own_part(jobs: JobTable) -> JobTable:
    """The jobs as their own precision prices them."""
    kept = [index for index, name in enumerate(jobs.names) if not name.startswith(BESIDE)]
    return JobTable(
        features=jobs.features[:, kept],
        names=tuple(jobs.names[index] for index in kept),
        analytical_s=jobs.analytical_s,
        compute_s=jobs.compute_s,
        exposed_s=jobs.exposed_s,
    )


def fp32_part(jobs: JobTable) -> JobTable:
    """The jobs as if all ran in fp32: no column tells their precision."""
    kept = [index for index, name in enumerate(jobs.names) if name.startswith(FP32)]
    features = kept[: len(kept) - len(_SECONDS)]
    analytical_s, compute_s, exposed_s = jobs.features[:, kept[-len(_SECONDS) :]].T
    return JobTable(
        features=jobs.features[:, features],
        names=tuple(jobs.names[index].removeprefix(FP32) for index in features),
        analytical_s=analytical_s,
        compute_s=compute_s,
        exposed_s=exposed_s,
    )


def column(jobs: JobTable, name: str) -> Floats:
    """One feature, shape (n,)."""
    values: Floats = jobs.features[:, jobs.names.index(name)]
    return values


def flops_per_device(jobs: JobTable) -> Floats:
    """FLOPs of one step on each device, shape (n,): recomputation is not counted."""
    flops: Floats = np.exp(column(jobs, "log_flops") + _log_share(jobs))
    return flops


def bytes_per_device(jobs: JobTable) -> Floats:
    """Bytes that the kernels of one step move on each device, shape (n,)."""
    moved: Floats = flops_per_device(jobs) / np.exp(column(jobs, "log_flops_per_byte"))
    return moved


def _log_share(jobs: JobTable) -> Floats:
    """Logarithm of (micro batches a device runs / devices that share each of them)."""
    ways = sum(column(jobs, name) for name in ("log_tp", "log_pp", "log_cp"))
    share: Floats = column(jobs, "log_num_micro_batches") - ways
    return share
