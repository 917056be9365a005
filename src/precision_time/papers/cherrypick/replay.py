"""CherryPick replayed on measured jobs: how many runs until the choice is within 5 % of the best.

Compared with random search (its expected number of runs has a closed form) and with a predictor that has run
nothing of the job: it orders the configurations by predicted cost, those first that it expects to meet the
deadline, and its first is its choice. Runs along that order are what it takes to verify it.
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


def expected_random_runs(count: int, good: int) -> float:
    """Expected draws without replacement until the first good one.

    >>> expected_random_runs(12, 1), expected_random_runs(9, 9)
    (6.5, 1.0)
    """
    return (count + 1.0) / (good + 1.0)


def predicted_order(job: ReplayJob) -> Ints:
    """Configurations as the predictor would try them: those expected in time first, by predicted cost."""
    late = job.predicted_time > job.deadline
    order: Ints = np.lexsort((job.predicted_cost, late)).astype(np.intp)
    return order


def _replay(job: ReplayJob, seeds: int) -> Replayed:
    good, best = job.good, job.best_cost
    runs, found, stopped, regrets = [], [], [], []
    for seed in range(seeds):
        searched = cherry_pick(
            job.features,
            lambda index: Outcome(cost=float(job.cost[index]), time=float(job.time[index])),
            deadline=job.deadline,
            seed=seed,
            most_runs=MOST_RUNS,
            stop=False,
        )
        hits = np.flatnonzero(good[list(searched.order)])
        runs.append(int(hits[0]) + 1 if len(hits) else len(searched.order))
        found.append(bool(len(hits)))
        stopped.append(searched.stopped_after)
        tried = np.array(searched.order[: searched.stopped_after])
        in_time = tried[job.time[tried] <= job.deadline]
        if len(in_time):
            regrets.append((float(job.cost[in_time].min()) / best - 1.0) * 100.0)
    order = predicted_order(job)
    first = int(order[0])
    return Replayed(
        key=job.key,
        precision=job.precision,
        configurations=len(job.cost),
        good=int(good.sum()),
        random_runs=expected_random_runs(len(job.cost), int(good.sum())),
        search_runs=float(np.mean(runs)),
        search_found=float(np.mean(found)),
        stopped_runs=float(np.mean(stopped)),
        stopped_regret_percent=float(np.mean(regrets)) if regrets else float("nan"),
        chosen_meets=bool(job.time[first] <= job.deadline),
        chosen_regret_percent=(float(job.cost[first]) / best - 1.0) * 100.0,
        chosen_runs=int(np.flatnonzero(good[order])[0]) + 1,
    )
