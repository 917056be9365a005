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

Which small runs it makes: A-optimal experiment design.
Formula: over weights $0 \le \lambda_j \le 1$ of the points (s, m), minimize $\sum_i f_i^T (\sum_j \lambda_j
f_j f_j^T)^{-1} f_i$ subject to $\sum_j \lambda_j (s_j / s_{min}) / m_j \le B$, with $f = (1, s/m, \log m,
m)$ over its column means and B = 10 times the cheapest run on one machine. Its grid has 20 steps, so that
$s_{min}$ is at least a twentieth of the largest share: where a measured job was also run with a thousandth
of its largest batch, that is not what the budget is counted in. Points with $\lambda > 0.3$ are run, in
decreasing $\lambda$. Where the number of runs is limited to n, also $\sum_j \lambda_j \le n$: else many
cheap points tie at 1.
Source: Venkataraman et al., Ernest, NSDI 2016, section 4, and its code (amplab/ernest 4a7359c). The problem
is convex; SciPy's SLSQP solves it with the exact gradient in the place of its code's CVXPY.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from precision_time.errors import ConfigError, required_module

from .contract import FeatureTable, Floats, Ints, JobViews, column, require_rows
from .per_job import Configurations, MeasurementBudget

SMALL_SHARE = 1.0 / 8.0
LEAST_SMALL = 8
"""Where fewer configurations are that small, so many of the smallest are offered instead."""
_LEAST_S = 1e-9
BUDGET = 10.0
LEAST_WEIGHT = 0.3
LEAST_POINTS = 4
"""As many as the formula has terms."""
_GRID = 40
"""Points that the design chooses from; of more, an even part of each machine count is kept."""
_STEPS = 20
_RIDGE = 1e-6
"""Keeps the information matrix regular where all points have one machine count."""


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
    nnls = required_module("scipy.optimize", package="scipy", extra="train", purpose="fit Ernest").nnls
    weight = 1.0 / seconds if relative else np.ones(len(seconds))
    coefficients, _ = nnls(ernest_features(share, machines) * weight[:, None], seconds * weight)
    return FittedErnest(coefficients=coefficients)


def _columns(jobs: JobViews) -> tuple[Ints, Floats, Floats]:
    batch, devices = (np.exp(column(jobs.native, name)) for name in ("log_global_batch_size", "log_devices"))
    return jobs.dataset, batch, devices


def ernest_features(share: Floats, machines: Floats) -> Floats:
    """The four terms of Ernest's formula, shape (k, 4)."""
    ones = np.ones(len(share))
    return np.stack([ones, share / machines, np.log(machines), machines], axis=1)


def optimal_weights(
    share: Floats, machines: Floats, *, budget: float = BUDGET, most: int | None = None
) -> Floats:
    """The weights that the module's problem gives, shape (k,).

    Args:
        share: Share of the input of each point, above 0.
        machines: Machines of each point, at least 1.
        budget: B of the formula.
        most: Limit of the sum of the weights; none when None.

    Raises:
        ConfigError: If there are no points, or none of them fits into the budget.
    """
    optimize = required_module(
        "scipy.optimize", package="scipy", extra="train", purpose="choose Ernest's sample runs"
    )
    if not len(share) or budget <= 0.0:
        raise ConfigError(
            f"An experiment design needs points and a budget above 0, got {len(share)} points and "
            f"{budget:g}. To fix: offer at least {LEAST_POINTS} configurations."
        )
    features = scaled(ernest_features(share, machines))
    cost = share / max(float(share.min()), float(share.max()) / _STEPS) / machines
    total = features.T @ features
    runs = float(most or len(share))
    start = np.full(len(share), 0.9 * min(1.0, budget / float(cost.sum()), runs / len(share)))
    scale = criterion(features, start)

    def value_and_gradient(weights: Floats) -> tuple[float, Floats]:
        inverse = np.linalg.inv(_information(features, weights))
        slope = -np.einsum("ij,jk,ik->i", features, inverse @ total @ inverse, features)
        return float(np.trace(inverse @ total)) / scale, slope / scale

    solved = optimize.minimize(
        value_and_gradient,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(share),
        constraints=[
            optimize.LinearConstraint(np.stack([cost, np.ones(len(cost))]), -np.inf, np.array([budget, runs]))
        ],
        options={"maxiter": 200, "ftol": 1e-7},
    )
    # SLSQP stops at a feasible point up to rounding; what it could not improve further it still has improved.
    weights: Floats = np.clip(solved.x, 0.0, 1.0)
    return weights


def criterion(features: Floats, weights: Floats) -> float:
    """What is minimized: the summed variance of the predictions at all points."""
    inverse = np.linalg.inv(_information(features, weights))
    return float(np.einsum("ij,jk,ik->", features, inverse, features))


def chosen_points(share: Floats, machines: Floats, *, most: int, budget: float = BUDGET) -> Ints:
    """The points to run, heaviest first: those above LEAST_WEIGHT, at least LEAST_POINTS, at most `most`.

    Args:
        share: Share of the input of each point offered.
        machines: Machines of each.
        most: How many runs may be made.
        budget: B of the formula.
    """
    grid = _thinned(share, machines)
    weights = optimal_weights(share[grid], machines[grid], budget=budget, most=most)
    # Equal weights: the cheaper run first.
    order = np.lexsort(((share / machines)[grid], -np.round(weights, 6)))
    wanted = int((weights > LEAST_WEIGHT).sum())
    return grid[order][: min(max(wanted, LEAST_POINTS), most)]


def _information(features: Floats, weights: Floats) -> Floats:
    matrix: Floats = (features * weights[:, None]).T @ features + _RIDGE * np.eye(features.shape[1])
    return matrix


def scaled(features: Floats) -> Floats:
    """Terms over their column means, shape (k, 4)."""
    means = features.mean(axis=0)
    over_means: Floats = features / np.where(means > 0.0, means, 1.0)
    return over_means


def _thinned(share: Floats, machines: Floats) -> Ints:
    """Indices of at most about _GRID points: shares spread evenly over each machine count."""
    order = np.lexsort((share, machines))
    if len(order) <= _GRID:
        return order.astype(np.intp)
    counts = np.unique(machines)
    spread = counts[np.unique(np.linspace(0, len(counts) - 1, 12).round().astype(int))]
    each = max(_GRID // len(spread), 2)
    kept: list[Ints] = []
    for count in spread:
        of_it = order[machines[order] == count]
        kept.append(of_it[np.unique(np.linspace(0, len(of_it) - 1, each).round().astype(int))])
    return np.concatenate(kept).astype(np.intp)
