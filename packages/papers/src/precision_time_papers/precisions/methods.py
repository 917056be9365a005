"""Three ways to find the fastest precision schedule of a job under a budget of risk.

All of them keep the budget, ask the predictor for times, and are no slower than the reference, which is
always among what they compare.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from precision_time.arrays import Ints
from precision_time.errors import ConfigError

from .knapsack import exhaustive, frontier
from .schedules import Picks, Schedules

_MOST_ASSIGNMENTS = 20_000
_MOST_CANDIDATES = 256
_SLACK = 1e-9


def by_dynamic_programming(schedules: Schedules, budget: float, *, seed: int = 0) -> Picks:
    """The fastest of the schedules that dynamic programming proposes.

    Two instances of the knapsack are solved to the optimum, one with the predictor's times of one group at a
    time, one with those of the cost model. As predicted times of groups do not quite add up, every schedule
    on the two frontiers is predicted, and the fastest is the answer.
    """
    del seed
    return fastest(schedules, candidates(schedules, budget), budget)


def candidates(schedules: Schedules, budget: float) -> list[Picks]:
    """The two frontiers of `by_dynamic_programming`."""
    found: dict[Picks, None] = {}
    for choices in (schedules.choices, schedules.analytical_choices):
        some = _thinned(frontier(choices, budget))
        found |= dict.fromkeys(tuple(row) for row in some.tolist())
    return list(found)


def by_exhaustion(schedules: Schedules, budget: float, *, seed: int = 0) -> Picks:
    """The fastest of all schedules within the budget.

    Raises:
        ConfigError: If there are too many of them.
    """
    del seed
    many = float(schedules.kinds) ** len(schedules.groups)
    if many > _MOST_ASSIGNMENTS:
        raise ConfigError(
            f"{schedules.kinds} types for each of {len(schedules.groups)} groups are {many:,.0f} schedules. "
            f"The rule: exhaustive search predicts at most {_MOST_ASSIGNMENTS:,}. To fix: "
            "dynamic-programming, fewer types (--types) or fewer ranges of layers (--layers)."
        )
    return fastest(schedules, exhaustive(schedules.choices, budget), budget)


def by_reinforcement(schedules: Schedules, budget: float, *, seed: int = 0) -> Picks:
    """The best schedule that a trained agent tried: proximal policy optimization on `environment.py`."""
    from .environment import train

    return train(schedules, budget, seed=seed).best


def fastest(schedules: Schedules, tried: Iterable[Picks], budget: float) -> Picks:
    """The fastest of some schedules and the reference, of those within the budget."""
    reference: Picks = (0,) * len(schedules.groups)
    some = [reference, *tried]
    within = schedules.risks_of(some) <= budget * (1.0 + _SLACK)
    some = [picks for picks, fits in zip(some, within, strict=True) if fits]
    return some[int(schedules.times_s(some).argmin())]


def _thinned(found: Ints) -> Ints:
    """A frontier of which not more is predicted than is worth it: the last, and some before it."""
    if len(found) <= _MOST_CANDIDATES:
        return found
    kept: Ints = found[np.unique(np.linspace(0, len(found) - 1, _MOST_CANDIDATES).astype(np.int64))]
    return kept


METHODS: Mapping[str, Callable[..., Picks]] = {
    "dynamic-programming": by_dynamic_programming,
    "exhaustive": by_exhaustion,
    "reinforcement": by_reinforcement,
}
