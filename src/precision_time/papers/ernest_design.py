r"""Which small runs Ernest makes: A-optimal experiment design.

Formula: over weights $0 \le \lambda_j \le 1$ of the points (s, m), minimise $\sum_i f_i^T (\sum_j \lambda_j
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

import numpy as np
from numpy.typing import NDArray

from ..errors import ConfigError

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

BUDGET = 10.0
LEAST_WEIGHT = 0.3
LEAST_POINTS = 4
"""As many as the formula has terms."""
_GRID = 40
"""Points that the design chooses from; of more, an even part of each machine count is kept."""
_STEPS = 20
_RIDGE = 1e-6
"""Keeps the information matrix regular where all points have one machine count."""


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
    from scipy.optimize import LinearConstraint, minimize

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

    solved = minimize(
        value_and_gradient,
        start,
        jac=True,
        method="SLSQP",
        bounds=[(0.0, 1.0)] * len(share),
        constraints=[
            LinearConstraint(np.stack([cost, np.ones(len(cost))]), -np.inf, np.array([budget, runs]))
        ],
        options={"maxiter": 200, "ftol": 1e-7},
    )
    # SLSQP stops at a feasible point up to rounding; what it could not improve further it still has improved.
    weights: Floats = np.clip(solved.x, 0.0, 1.0)
    return weights


def criterion(features: Floats, weights: Floats) -> float:
    """What is minimised: the summed variance of the predictions at all points."""
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
