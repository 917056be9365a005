"""A cluster with a queue, event by event: jobs arrive, start as a policy says, take the measured times."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from precision_time.arrays import Floats, Ints

_DONE = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Arrivals:
    """Jobs of a trace; of n jobs on p pools."""

    arrival_s: Floats
    """Shape (n,)."""
    gpus: Ints
    """That a job takes, all of one pool, shape (n,)."""
    true_s: Floats
    """Duration on each pool, infinite where it cannot run, shape (n, p)."""
    capacity: Ints
    """GPUs of each pool, shape (p,)."""


def simulate(jobs: Arrivals, priority: Floats, believed_s: Floats, *, waits: bool = False) -> Floats:
    """When jobs end that run to their end once started, shape (n,).

    The waiting job with the smallest priority is started next, and none overtakes it. It takes the pool on
    which it is believed to be fastest of those that are free, or waits for the one where it would end first.

    Args:
        jobs: The trace.
        priority: Shape (n,); of equal ones the first to arrive.
        believed_s: Duration on each pool as the scheduler believes it, shape (n, p).
        waits: Whether it waits for a faster pool where it believes that it will pay.
    """
    free = jobs.capacity.copy()
    end_s = np.full(len(priority), np.inf)
    arriving = list(np.lexsort((np.arange(len(priority)), jobs.arrival_s)))[::-1]
    waiting: list[tuple[float, float, int]] = []
    running: list[tuple[float, int, int]] = []
    believed_run_s: list[dict[int, tuple[float, float]]] = [{} for _ in free]
    believed_s = np.where(np.isfinite(jobs.true_s), believed_s, np.inf)
    while arriving or waiting or running:
        now_s = min(
            float(jobs.arrival_s[arriving[-1]]) if arriving else np.inf, running[0][0] if running else np.inf
        )
        while running and running[0][0] <= now_s:
            _, job, pool = heapq.heappop(running)
            free[pool] += jobs.gpus[job]
            del believed_run_s[pool][job]
        while arriving and jobs.arrival_s[arriving[-1]] <= now_s:
            job = int(arriving.pop())
            heapq.heappush(waiting, (float(priority[job]), float(jobs.arrival_s[job]), job))
        while waiting:
            job = waiting[0][2]
            room_s = [
                _room_s(jobs, int(free[pool]), believed_run_s[pool], job, now_s, waits=waits)
                for pool in range(len(free))
            ]
            ends_s = np.array(room_s) + believed_s[job]
            pool = int(ends_s.argmin())
            if not np.isfinite(ends_s[pool]) or free[pool] < jobs.gpus[job]:
                break
            heapq.heappop(waiting)
            free[pool] -= jobs.gpus[job]
            end_s[job] = now_s + jobs.true_s[job, pool]
            believed_run_s[pool][job] = now_s, float(believed_s[job, pool])
            heapq.heappush(running, (float(end_s[job]), job, pool))
    return end_s


def _room_s(
    jobs: Arrivals,
    free: int,
    running: Mapping[int, tuple[float, float]],
    job: int,
    now_s: float,
    *,
    waits: bool,
) -> float:
    """When a pool is believed to be free for a job; infinite where that is later and none waits.

    Args:
        jobs: The trace.
        free: GPUs of the pool.
        running: Start and believed duration of the jobs on it.
        job: Which job.
        now_s: The time.
        waits: As of `simulate`.
    """
    if free >= jobs.gpus[job]:
        return now_s
    if not waits:
        return np.inf
    for end_s, other in sorted((_end_s(*run, now_s), other) for other, run in running.items()):
        free += int(jobs.gpus[other])
        if free >= jobs.gpus[job]:
            return end_s
    return np.inf


def _end_s(start_s: float, believed_s: float, now_s: float) -> float:
    """The believed end of a run: what is believed doubles as often as the run outlasts it."""
    over = (now_s - start_s) / believed_s
    return start_s + believed_s * (2.0 ** np.ceil(np.log2(over)) if over > 1.0 else 1.0)


def simulate_preemptive(jobs: Arrivals, believed_s: Floats) -> Floats:
    """When jobs end if at every event those with the shortest believed remaining time run, shape (n,).

    Preemption and moving between pools cost nothing: what the order is worth at best.

    Args:
        jobs: The trace.
        believed_s: As in `simulate`.
    """
    believed_s = np.where(np.isfinite(jobs.true_s), believed_s, np.inf)
    left = np.ones(len(jobs.arrival_s))
    end_s = np.full(len(left), np.inf)
    shortest_s, now_s = believed_s.min(axis=1), float(jobs.arrival_s.min())
    while not np.isfinite(end_s).all():
        present = np.flatnonzero((jobs.arrival_s <= now_s) & ~np.isfinite(end_s))
        later = jobs.arrival_s[jobs.arrival_s > now_s]
        next_s = float(later.min()) if len(later) else np.inf
        free, rates = jobs.capacity.copy(), np.zeros(len(left))
        for job in present[np.lexsort((jobs.arrival_s[present], left[present] * shortest_s[present]))]:
            offered = np.where(free >= jobs.gpus[job], believed_s[job], np.inf)
            pool = int(offered.argmin())
            if np.isfinite(offered[pool]):
                free[pool] -= jobs.gpus[job]
                rates[job] = 1.0 / jobs.true_s[job, pool]
        on = np.flatnonzero(rates)
        if len(on):
            next_s = min(next_s, now_s + float((left[on] / rates[on]).min()))
        left[on] -= rates[on] * (next_s - now_s)
        now_s = next_s
        end_s[on[left[on] <= _DONE]] = now_s
    return end_s
