"""CherryPick replayed on measured jobs: how many runs until the choice is within 5 % of the best.

Compared with random search (its expected number of runs has a closed form), with a rule that predicts
nothing (largest batch per device first, of those the fewest devices) and with a predictor that has run
nothing of the job: it orders the configurations by predicted cost, those first that it expects to meet the
deadline, and its first is its choice. Runs along an order are what it takes to verify it. Every search stops
after MOST_RUNS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ..contract import Bools, Floats, Ints
from .search import Outcome, cherry_pick

WITHIN = 1.05
"""Of the best cost: what counts as found."""
MOST_RUNS = 30
"""A search that has not found it by then counts with so many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayJob:
    """A job with k measured configurations; arrays have shape (k,) unless stated."""

    key: str
    precision: str
    features: Floats
    """Shape (k, n_features)."""
    time: Floats
    """Measured seconds per sample: what the deadline limits."""
    cost: Floats
    """Measured cost per sample."""
    predicted_time: Floats
    """By a predictor that has seen no run of the job's architecture."""
    predicted_cost: Floats
    deadline: float
    """Seconds per sample."""
    devices: Floats
    batch_per_device: Floats
    priced: bool = False
    """Whether cost is money; device-seconds otherwise."""

    @property
    def best_cost(self) -> float:
        """Least cost of the configurations that meet the deadline."""
        return float(self.cost[self.time <= self.deadline].min())

    @property
    def good(self) -> Bools:
        """Configurations that meet the deadline at up to 5 % above the best cost."""
        good: Bools = (self.time <= self.deadline) & (self.cost <= WITHIN * self.best_cost)
        return good


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """What happened with one job; means over seeds."""

    key: str
    precision: str
    configurations: int
    good: int
    random_runs: float
    """Expected runs of random search."""
    rule_runs: int
    """Runs in the order of `rule_order`."""
    rule_meets: bool
    """Whether the first configuration of that order meets the deadline."""
    rule_regret_percent: float
    """How far its cost is above the best."""
    search_runs: float
    """Runs of CherryPick until a good configuration was among them."""
    search_found: float
    """Share of the seeds in which that was so within MOST_RUNS."""
    stopped_runs: float
    """Runs until its stop rule."""
    stopped_regret_percent: float
    """How far the best run until then is above the best cost; of the seeds that met the deadline."""
    chosen_meets: bool
    """Whether the predictor's outright choice meets the deadline."""
    chosen_regret_percent: float
    """How far its cost is above the best; negative where it is cheaper and misses the deadline."""
    chosen_runs: int
    """Runs along the predictor's order until a good configuration."""
    priced: bool


def replay(
    jobs: Sequence[ReplayJob], *, seeds: int, progress: Callable[[str], None] = lambda _: None
) -> tuple[Replayed, ...]:
    """Replay every job.

    Args:
        jobs: Jobs with measured configurations.
        seeds: Searches of each, from seed 0 on.
        progress: Called with a line on what is being done.
    """
    found = []
    for number, job in enumerate(jobs):
        progress(f"CherryPick, job {number + 1} of {len(jobs)}")
        found.append(_replay(job, seeds))
    return tuple(found)


def expected_random_runs(count: int, good: int, most: int = MOST_RUNS) -> float:
    """Expected draws without replacement until the first good one, or until `most` of them.

    Formula: the sum over k < most of the chance that none of k draws is good; (n + 1) / (g + 1) where `most`
    is no limit.

    >>> expected_random_runs(12, 1), expected_random_runs(9, 9), expected_random_runs(400, 1, most=1)
    (6.5, 1.0, 1.0)
    """
    none_good, expected = 1.0, 0.0
    for drawn in range(min(most, count)):
        expected += none_good
        none_good *= max(count - good - drawn, 0) / (count - drawn)
    return expected


def predicted_order(job: ReplayJob) -> Ints:
    """Configurations as the predictor would try them: those expected in time first, by predicted cost."""
    late = job.predicted_time > job.deadline
    order: Ints = np.lexsort((job.predicted_cost, late)).astype(np.intp)
    return order


def rule_order(job: ReplayJob) -> Ints:
    """Largest batch per device first, of equal ones the fewest devices: a rule that needs no prediction."""
    order: Ints = np.lexsort((job.devices, -job.batch_per_device)).astype(np.intp)
    return order


def _runs_along(order: Ints, good: Bools) -> int:
    """Runs until a good configuration, MOST_RUNS at most."""
    return min(int(np.flatnonzero(good[order])[0]) + 1, MOST_RUNS)


def _replay(job: ReplayJob, seeds: int) -> Replayed:
    good = job.good
    runs, found, stopped, regrets = [], [], [], []
    for seed in range(seeds):
        searched = cherry_pick(
            job.features,
            lambda index: Outcome(cost=float(job.cost[index]), time=float(job.time[index])),
            deadline=job.deadline,
            seed=seed,
            most_runs=MOST_RUNS,
            stop=False,
            found=lambda index: bool(good[index]),
        )
        hits = np.flatnonzero(good[list(searched.order)])
        runs.append(int(hits[0]) + 1 if len(hits) else len(searched.order))
        found.append(bool(len(hits)))
        stopped.append(searched.stopped_after)
        tried = np.array(searched.order[: searched.stopped_after])
        in_time = tried[job.time[tried] <= job.deadline]
        if len(in_time):
            regrets.append(_regret_percent(job, in_time))
    orders = predicted_order(job), rule_order(job)
    first, by_rule = (int(order[0]) for order in orders)
    return Replayed(
        key=job.key,
        precision=job.precision,
        configurations=len(job.cost),
        good=int(good.sum()),
        random_runs=expected_random_runs(len(job.cost), int(good.sum())),
        rule_runs=_runs_along(orders[1], good),
        rule_meets=bool(job.time[by_rule] <= job.deadline),
        rule_regret_percent=_regret_percent(job, [by_rule]),
        search_runs=float(np.mean(runs)),
        search_found=float(np.mean(found)),
        stopped_runs=float(np.mean(stopped)),
        stopped_regret_percent=float(np.mean(regrets)) if regrets else float("nan"),
        chosen_meets=bool(job.time[first] <= job.deadline),
        chosen_regret_percent=_regret_percent(job, [first]),
        chosen_runs=_runs_along(orders[0], good),
        priced=job.priced,
    )


def _regret_percent(job: ReplayJob, tried: Ints | list[int]) -> float:
    """How far the cheapest of some configurations is above the best."""
    return (float(job.cost[tried].min()) / job.best_cost - 1.0) * 100.0
