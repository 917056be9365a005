r"""The search: three scattered starts, then the largest expected improvement, until too little is expected.

Formula: $EI = (y^* - \mu) \Phi(z) + \sigma \phi(z)$ with $z = (y^* - \mu) / \sigma$, on log cost, times the
probability to meet the deadline, $P(\log T \le \log T_{max})$. On logarithms EI is the expected relative
saving, to first order. Cost is minimized under a deadline. CherryPick prices a run by time x price; here the
caller gives cost and time of every configuration through a function that runs one. Stop rule of the paper: at
least six configurations tried, and the largest expected improvement below 10 % of the best.

Prior: a Gaussian process over log times or log costs with the kernel Matern 5/2,
$k(r) = s^2 (1 + \sqrt5 r/l + 5 r^2 / 3 l^2) \exp(-\sqrt5 r/l)$ with a length per feature, plus noise;
logarithms make the noise of runs multiplicative. scikit-learn's regressor does the work: over a finite set
the posterior of every candidate is one call. Optuna's GP sampler proposes points of a product of ranges,
while here only configurations that exist may be chosen.
Source: Alipourfard et al., CherryPick, NSDI 2017, sections 3.3 to 3.5.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from precision_time.errors import ConfigError, required_module

from ..contract import Floats, Ints

STARTS = 3
LEAST_RUNS = 6
STOP_BELOW = 0.1
"""Expected improvement of log cost, about the share of the best cost."""
_LEAST_DEVIATION = 1e-9


_LENGTHS = (0.1, 10.0)
_VARIANCES = (0.05, 20.0)
_NOISE = (1e-4, 0.2)
_FIRST_NOISE = 1e-2
"""Bounds of the kernel's lengths, variance and noise, and the noise that fitting starts from."""


def _needed(module: str) -> Any:
    """A module of scikit-learn, or of scipy that it brings."""
    purpose = "search configurations by Bayesian optimization"
    return required_module(module, package="scikit-learn", extra="precision-time-papers", purpose=purpose)


def fit_gaussian(x: Floats, y: Floats, *, seed: int) -> Any:
    """scikit-learn's Gaussian process conditioned on values, its kernel fitted by maximum likelihood.

    Args:
        x: Points within the unit cube, shape (k, n_features).
        y: Logarithms of what was measured there, shape (k,).
        seed: Of scikit-learn's optimizer.

    Raises:
        MissingExtraError: If scikit-learn is not installed.
    """
    gaussian, kernels = _needed("sklearn.gaussian_process"), _needed("sklearn.gaussian_process.kernels")
    lengths = np.ones(x.shape[1])
    kernel = kernels.ConstantKernel(1.0, _VARIANCES) * kernels.Matern(
        lengths, _LENGTHS, nu=2.5
    ) + kernels.WhiteKernel(_FIRST_NOISE, _NOISE)
    process = gaussian.GaussianProcessRegressor(kernel, normalize_y=True, random_state=seed)
    with warnings.catch_warnings():
        # A handful of points leaves lengths at their bounds: that is what the bounds are for.
        warnings.simplefilter("ignore", _needed("sklearn.exceptions").ConvergenceWarning)
        process.fit(x, y)
    return process


def unit_cube(features: Floats) -> Floats:
    """Columns brought to 0 .. 1, columns that do not vary left out; shape (k, varying).

    >>> unit_cube(np.array([[1.0, 5.0], [3.0, 5.0], [2.0, 5.0]])).ravel().tolist()
    [0.0, 1.0, 0.5]
    """
    low, high = features.min(axis=0), features.max(axis=0)
    varying = high > low
    scaled: Floats = (features[:, varying] - low[varying]) / (high - low)[varying]
    return scaled if scaled.shape[1] else np.zeros((len(features), 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What running one configuration gave."""

    cost: float
    """Whatever is minimized, above 0."""
    time: float
    """What the deadline limits, in its unit, above 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """A finished search."""

    order: tuple[int, ...]
    """Configurations in the order they were run."""
    best: int | None
    """The cheapest of them that meets the deadline; None where none does."""
    stopped_after: int
    """Runs after which the stop rule was first met; all of them where it never was."""


def cherry_pick(
    features: Floats,
    run: Callable[[int], Outcome],
    *,
    deadline: float = float("inf"),
    seed: int = 0,
    most_runs: int | None = None,
    stop: bool = True,
    found: Callable[[int], bool] = lambda _: False,
) -> Searched:
    """Search the configurations.

    Args:
        features: Of each configuration, shape (k, n_features); log where they span powers.
        run: Runs the configuration of an index.
        deadline: Limit of `Outcome.time`.
        seed: Of the starts and of ties.
        most_runs: Runs that may be made; all configurations when None.
        stop: Whether to stop by the rule; otherwise the search goes on to `most_runs`.
        found: Without `stop`, the search ends once the rule was met and a configuration of an index that
            this accepts was run: what it would run further is then of no interest.

    Raises:
        ConfigError: If there is nothing to search, or the deadline is not above 0.
    """
    if not len(features) or deadline <= 0.0:
        raise ConfigError(
            f"{len(features)} configurations and a deadline of {deadline:g}: nothing to search. "
            "To fix: give at least one configuration and a deadline above 0."
        )
    x = unit_cube(features)
    most = min(len(x), most_runs or len(x))
    order: list[int] = []
    outcomes: list[Outcome] = []
    for index in spread_starts(x, min(STARTS, most), seed=seed):
        order.append(index)
        outcomes.append(run(index))
    stopped_after: int | None = None
    while len(order) < most:
        left = np.setdiff1d(np.arange(len(x)), order)
        gain = _gain(x, order, outcomes, left, deadline, seed)
        enough = len(order) >= LEAST_RUNS and float(gain.max()) < STOP_BELOW
        if enough and _best(order, outcomes, deadline) is not None and stopped_after is None:
            stopped_after = len(order)
        if stopped_after is not None and (stop or any(map(found, order))):
            break
        index = int(left[np.argmax(gain)])
        order.append(index)
        outcomes.append(run(index))
    return Searched(
        order=tuple(order), best=_best(order, outcomes, deadline), stopped_after=stopped_after or len(order)
    )


def spread_starts(x: Floats, count: int, *, seed: int) -> list[int]:
    """Configurations nearest to the first points of a scrambled Sobol sequence, each once.

    Args:
        x: Configurations within the unit cube, shape (k, n_features).
        count: How many, at most k.
        seed: Of the scrambling.
    """
    sobol = _needed("scipy.stats").qmc.Sobol(d=x.shape[1], scramble=True, seed=seed)
    points = sobol.random_base2(max(count - 1, 1).bit_length())
    taken: list[int] = []
    for point in points[:count]:
        order = np.argsort(np.square(x - point).sum(axis=1), kind="stable")
        taken.append(next(int(index) for index in order if int(index) not in taken))
    return taken


def expected_improvement(mean: Floats, deviation: Floats, best: float) -> Floats:
    """Expected amount by which a value falls below the best one, shape (k,).

    Args:
        mean: Posterior means of log cost, shape (k,).
        deviation: Posterior standard deviations.
        best: Smallest log cost so far.
    """
    norm = _needed("scipy.stats").norm
    spread = np.maximum(deviation, _LEAST_DEVIATION)
    z = (best - mean) / spread
    improvement: Floats = (best - mean) * norm.cdf(z) + spread * norm.pdf(z)
    return np.maximum(improvement, 0.0)


def chance_below(mean: Floats, deviation: Floats, limit: float) -> Floats:
    """Probability that a value is at most `limit`, shape (k,)."""
    chance: Floats = _needed("scipy.stats").norm.cdf((limit - mean) / np.maximum(deviation, _LEAST_DEVIATION))
    return chance


def _gain(
    x: Floats, order: list[int], outcomes: list[Outcome], left: Ints, deadline: float, seed: int
) -> Floats:
    """Expected improvement of each configuration left, shape (len(left),)."""
    tried = x[order]
    log_time = np.log([outcome.time for outcome in outcomes])
    meets = np.ones(len(left))
    if np.isfinite(deadline):
        mean, deviation = fit_gaussian(tried, log_time, seed=seed).predict(x[left], return_std=True)
        meets = chance_below(mean, deviation, float(np.log(deadline)))
    feasible = [outcome.cost for outcome in outcomes if outcome.time <= deadline]
    if not feasible:
        # Nothing to improve on yet: look for what meets the deadline at all.
        return meets
    log_cost = np.log([outcome.cost for outcome in outcomes])
    mean, deviation = fit_gaussian(tried, log_cost, seed=seed).predict(x[left], return_std=True)
    return meets * expected_improvement(mean, deviation, float(np.log(min(feasible))))


def _best(order: list[int], outcomes: list[Outcome], deadline: float) -> int | None:
    meeting = [
        (outcome.cost, index)
        for index, outcome in zip(order, outcomes, strict=True)
        if outcome.time <= deadline
    ]
    return min(meeting)[1] if meeting else None
