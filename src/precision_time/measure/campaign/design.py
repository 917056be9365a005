r"""Which points to measure when there is no time for all: a greedy D-optimal design on Ernest's terms.

Formula: points of one job (model, precision, batch, resources per worker) share a linear model of the terms
$f = (1, s/m, \log m, m)$. With the information $M = \epsilon I + \sum f f^T$ of what is chosen, one more
point adds $\log\det(M + f f^T) - \log\det M = \log(1 + f^T M^{-1} f)$. The point with the largest gain per
second is taken until the budget is spent. The gains are submodular, so that greedy is within 1 - 1/e of the
best choice for points of equal cost.
Source: terms and the idea of choosing small runs by experiment design from Venkataraman et al., Ernest, NSDI
2016, section 4, which relaxes an A-optimal design of one job; here many jobs compete for one budget.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from ...papers.ernest_design import ernest_features, scaled
from .plan import Point

Floats = NDArray[np.float64]
_RIDGE = 1e-2
"""Of columns scaled to a mean of 1: a term that no point has told of counts as nearly unknown."""


def most_informative(
    points: Sequence[Point],
    budget_s: float,
    *,
    seconds: Callable[[Point], float],
    group_start_s: float = 0.0,
    known: Sequence[Point] = (),
) -> list[Point]:
    """The points to measure within a budget, the most telling per second first.

    Args:
        points: Those that might be measured.
        budget_s: Seconds for all of them together.
        seconds: Expected seconds of a point.
        group_start_s: Seconds that the first point of each setting costs on top.
        known: Points that have been measured: what they told is not worth as much again.
    """
    if not points:
        return []
    features = terms_of([*points, *known])
    jobs = [_job(point) for point in [*points, *known]]
    inverses: dict[Hashable, Floats] = {job: np.eye(features.shape[1]) / _RIDGE for job in jobs}
    for index in range(len(points), len(jobs)):
        _add(inverses, jobs[index], features[index])
    cost = np.array([max(seconds(point), 1e-6) for point in points])
    started = {point.setting for point in known}
    left, spent_s, chosen = list(range(len(points))), 0.0, list[Point]()
    while left:
        full = np.array([cost[i] + group_start_s * (points[i].setting not in started) for i in left])
        gains = np.array([np.log1p(features[i] @ inverses[jobs[i]] @ features[i]) for i in left])
        rates = np.where(spent_s + full <= budget_s, gains / full, -1.0)
        best = int(np.argmax(rates))
        if rates[best] < 0.0:
            break
        index = left.pop(best)
        spent_s += float(full[best])
        started.add(points[index].setting)
        _add(inverses, jobs[index], features[index])
        chosen.append(points[index])
    return chosen


def _job(point: Point) -> Hashable:
    """Points whose times follow one formula of Ernest's."""
    setting = point.setting
    resources = (setting.cpus_per_worker, setting.gpus_per_worker, setting.num_nodes)
    sizes = tuple(sorted(point.sizes.items()))
    return (
        point.model,
        sizes,
        point.dataset,
        point.precision,
        point.batch_per_worker,
        point.optimizer,
        resources,
    )


def terms_of(points: Sequence[Point]) -> Floats:
    """Ernest's terms of the points over their means, shape (n, 4)."""
    workers = np.array([point.setting.num_workers for point in points], dtype=float)
    share = np.array([point.fraction for point in points])
    return scaled(ernest_features(share, workers))


def _add(inverses: dict[Hashable, Floats], job: Hashable, row: Floats) -> None:
    """One row more of information: the inverse by Sherman and Morrison."""
    inverse = inverses[job]
    column = inverse @ row
    inverses[job] = inverse - np.outer(column, column) / (1.0 + row @ column)
