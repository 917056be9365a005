r"""Ernest: four terms fitted to a few small runs of the very job that is queried.

Formula: $t = a + b\,s/m + c \log m + d\,m$ with a, b, c, d >= 0 (non-negative least squares); s is the share
of the input, m the number of machines.
Source: Venkataraman et al., Ernest, NSDI 2016, and its code (amplab/ernest 4a7359c). It knows nothing of the
program: it is refitted for every job and type of machine.

For a training step, m is the number of devices and s the global batch over the largest of the job, so that
s/m is the work of one device. `Ernest` is that, with sample runs chosen by its experiment design: as
published, from small shares only (its examples stay at an eighth and below), or from all there are.
`ErnestPooled` is the same formula without sample runs: one fit over all measured jobs of a dataset,
whatever their architecture. There each row is divided by its time, or the longest steps alone would decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .contract import FeatureTable, Floats, Ints, JobViews, column, require_rows
from .ernest_design import chosen_points, ernest_features
from .per_job import Configurations, MeasurementBudget

SMALL_SHARE = 1.0 / 8.0
LEAST_SMALL = 8
"""Where fewer configurations are that small, so many of the smallest are offered instead."""
_LEAST_S = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedErnest:
    """Coefficients a, b, c, d [s]."""

    coefficients: Floats

    def predict(self, configurations: Configurations) -> Floats:
        """Step times [s], shape (k,)."""
        return self.seconds(configurations.share, configurations.devices)

    def seconds(self, share: Floats, machines: Floats) -> Floats:
        """The formula; arrays of one shape."""
        seconds: Floats = ernest_features(share, machines) @ self.coefficients
        return np.maximum(seconds, _LEAST_S)


@dataclass(frozen=True, kw_only=True, slots=True)
class Ernest:
    """See the module: per job, on runs of its own choice."""

    citation: ClassVar[str] = "Venkataraman et al., NSDI 2016"
    small: bool = True
    """Only small shares may be run, as published; otherwise any."""

    @property
    def title(self) -> str:
        """Its name in tables."""
        return f"Ernest, own {'small runs' if self.small else 'runs of any size'}"

    def fit(self, budget: MeasurementBudget, *, seed: int) -> FittedErnest:
        """Run what the experiment design picks, and fit; nothing is drawn at random."""
        del seed
        offered = budget.offered
        among = small_shares(offered.share) if self.small else np.arange(len(offered))
        rows = among[chosen_points(offered.share[among], offered.devices[among], most=budget.limit)]
        measured_s = budget.run_all(rows)
        return fit_ernest(offered.share[rows], offered.devices[rows], measured_s)


def small_shares(share: Floats) -> Ints:
    """Places of the shares of at most SMALL_SHARE, or of the LEAST_SMALL smallest ones.

    >>> small_shares(np.array([1.0, 0.05, 0.1])).tolist()
    [0, 1, 2]
    """
    small = np.flatnonzero(share <= SMALL_SHARE)
    if len(small) >= LEAST_SMALL:
        return small
    return np.sort(np.argsort(share, kind="stable")[:LEAST_SMALL])


@dataclass(frozen=True, kw_only=True, slots=True)
class FittedPooled:
    """Coefficients per dataset, and those over all rows for a dataset that was never measured."""

    by_dataset: dict[int, FittedErnest]
    over_all: FittedErnest
    largest_batch: dict[int, float]

    def predict(self, jobs: JobViews) -> Floats:
        """Step times [s], shape (n,)."""
        dataset, batch, devices = _columns(jobs)
        seconds = np.empty(len(batch))
        for name in np.unique(dataset).tolist():
            rows = dataset == name
            fitted = self.by_dataset.get(name, self.over_all)
            share = batch[rows] / self.largest_batch.get(name, self.largest_batch[_ALL])
            seconds[rows] = fitted.seconds(share, devices[rows])
        return seconds


_ALL = -1
_LEAST_ROWS = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class ErnestPooled:
    """See the module: one fit per dataset, no sample runs."""

    title: ClassVar[str] = "Ernest, one fit per dataset"
    citation: ClassVar[str] = "Venkataraman et al., NSDI 2016"

    def fit(self, table: FeatureTable, rows: Ints) -> FittedPooled:
        """Fit per dataset where it has at least four rows, and over all rows."""
        require_rows(rows, self.title)
        dataset, batch, devices = _columns(table.jobs.take(rows))
        measured_s = table.measured_s[rows]
        fitted: dict[int, FittedErnest] = {}
        largest = {_ALL: float(batch.max())}
        for name in np.unique(dataset).tolist():
            of_it = dataset == name
            if of_it.sum() >= _LEAST_ROWS:
                largest[name] = float(batch[of_it].max())
                fitted[name] = fit_ernest(
                    batch[of_it] / largest[name], devices[of_it], measured_s[of_it], relative=True
                )
        over_all = fit_ernest(batch / largest[_ALL], devices, measured_s, relative=True)
        return FittedPooled(by_dataset=fitted, over_all=over_all, largest_batch=largest)


def fit_ernest(share: Floats, machines: Floats, seconds: Floats, *, relative: bool = False) -> FittedErnest:
    """Non-negative least squares of the four terms.

    Args:
        share: Share of the input of each run, shape (k,).
        machines: Machines of each run.
        seconds: Time of each run [s].
        relative: Least squares of the relative errors in the place of Ernest's absolute ones.
    """
    from scipy.optimize import nnls

    weight = 1.0 / seconds if relative else np.ones(len(seconds))
    coefficients, _ = nnls(ernest_features(share, machines) * weight[:, None], seconds * weight)
    return FittedErnest(coefficients=coefficients)


def _columns(jobs: JobViews) -> tuple[Ints, Floats, Floats]:
    batch, devices = (np.exp(column(jobs.native, name)) for name in ("log_global_batch_size", "log_devices"))
    return jobs.dataset, batch, devices
