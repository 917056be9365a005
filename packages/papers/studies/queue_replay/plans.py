"""Plans of `planning/queue` for jobs that wait all at once, executed with the measured times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from precision_time.arrays import Floats
from precision_time_papers.queue.choices import Choice
from precision_time_papers.queue.devices import executed, place
from precision_time_papers.queue.objectives import MAKESPAN, Objective
from precision_time_papers.queue.pools import Pool
from precision_time_papers.queue.solver import solve

from .replay import BLIND, OURS, TRUTH, HeldOutRuns
from .simulation import Arrivals, simulate
from .traces import CASES, Workload, workloads_of

PLANNED = {"sia": (1, 2, 3), "gavel": (2,)}
"""Workloads by case: with pools to choose from; of Gavel the one whose jobs all arrive at the start."""
_MOST_JOBS = 100
_ESTIMATORS = (TRUTH, OURS, BLIND)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanOutcome:
    """One workload, all jobs at the start: makespans by measured times, by whose durations were believed."""

    case: str
    number: int
    jobs: int
    fifo_s: float
    shortest_s: dict[str, float]
    planned_s: dict[str, float]
    gap: dict[str, float]
    """How much smaller the planned makespan could be at most, by the durations believed."""


def replay_plans(
    runs: HeldOutRuns, *, time_limit_s: float = 10.0, progress: Callable[[str], None] = lambda _: None
) -> list[PlanOutcome]:
    """Makespans of plans, and of starting the jobs in order.

    Args:
        runs: Measured runs and what is predicted of them.
        time_limit_s: Of each search.
        progress: Called with what is being done.
    """
    found = []
    for case, numbers in PLANNED.items():
        for workload in workloads_of(case, runs.measurements, runs.step_time_s[TRUTH]):
            if workload.number in numbers:
                progress(f"plans of {case} {workload.number}")
                found.append(_planned(workload, runs, time_limit_s))
    return found


def _planned(workload: Workload, runs: HeldOutRuns, time_limit_s: float) -> PlanOutcome:
    some = slice(0, _MOST_JOBS)
    whole = workload.arrivals
    jobs = replace(
        whole, arrival_s=np.zeros(len(whole.gpus[some])), gpus=whole.gpus[some], true_s=whole.true_s[some]
    )
    first_pool = np.broadcast_to(np.arange(1.0, jobs.true_s.shape[1] + 1.0), jobs.true_s.shape)
    fifo = simulate(jobs, jobs.arrival_s, first_pool)
    shortest, planned, gap = {}, {}, {}
    for name in _ESTIMATORS:
        believed_s = workload.durations(runs.step_time_s[name])[some]
        shortest[name] = float(simulate(jobs, believed_s.min(axis=1), believed_s).max())
        planned[name], gap[name] = makespan_of_plan(workload.case, jobs, believed_s, time_limit_s)
    return PlanOutcome(
        case=workload.case,
        number=workload.number,
        jobs=len(jobs.gpus),
        fifo_s=float(fifo.max()),
        shortest_s=shortest,
        planned_s=planned,
        gap=gap,
    )


def makespan_of_plan(
    case: str, jobs: Arrivals, believed_s: Floats, time_limit_s: float
) -> tuple[float, float]:
    """Of the plan for the believed durations, executed with the true ones; and its gap."""
    pools = [
        Pool(name=pool["device"], device=pool["device"], nodes=int(size), devices_per_node=1)
        for pool, size in zip(CASES[case]["pools"], jobs.capacity, strict=True)
    ]
    choices = [_choices(int(gpus), row) for gpus, row in zip(jobs.gpus, believed_s, strict=True)]
    times = [np.array([choice.duration_s for choice in own]) for own in choices]
    none = np.full(len(choices), np.inf)
    goal = Objective(
        name=MAKESPAN, submit_s=jobs.arrival_s, deadline_s=none, weight=np.ones(len(none)), share_s=none
    )
    found = solve(pools, choices, times, goal, time_limit_s=time_limit_s)
    chosen = [own[k] for own, k in zip(choices, found.chosen, strict=True)]
    order = sorted(range(len(chosen)), key=lambda job: (found.start_s[job], job))
    durations_s = np.array([choice.duration_s for choice in chosen])
    placed = place(pools, chosen, order, jobs.arrival_s, durations_s)
    true_s = np.array([[jobs.true_s[job, choice.pool] for job, choice in enumerate(chosen)]])
    ends_s = executed(pools, chosen, placed, jobs.arrival_s, true_s)
    planned_s = float(placed.end_s.max())
    return float(ends_s.max()), 0.0 if found.optimal else max(1.0 - found.bound / planned_s, 0.0)


def _choices(gpus: int, believed_s: Sequence[float] | Floats) -> tuple[Choice, ...]:
    """A job's pools; GPUs are taken one by one, as hosts are not simulated."""
    return tuple(
        Choice(pool=pool, devices=gpus, nodes=gpus, precision="", quantiles_s=(float(seconds),) * 101)
        for pool, seconds in enumerate(believed_s)
        if np.isfinite(seconds)
    )
