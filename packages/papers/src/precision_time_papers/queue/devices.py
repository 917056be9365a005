"""Which devices each job of an order gets, and when it ends: jobs start when their devices are free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from precision_time.arrays import Floats, Ints

from .choices import Choice
from .pools import Pool


@dataclass(frozen=True, kw_only=True, slots=True)
class Placed:
    """Jobs on devices, in the order of the jobs."""

    start_s: Floats
    """Shape (jobs,)."""
    end_s: Floats
    slots: tuple[Ints, ...]
    """Devices of each job, numbered within its pool host by host."""
    order: tuple[int, ...]
    """Jobs by when they get their devices."""


def place(
    pools: Sequence[Pool],
    chosen: Sequence[Choice],
    order: Sequence[int],
    submit_s: Floats,
    duration_s: Floats,
    *,
    hosts: Sequence[Sequence[int] | None] | None = None,
    whole_nodes: bool = False,
) -> Placed:
    """Devices for jobs one after the other, each as early as those before it let it start.

    Args:
        pools: Of the cluster.
        chosen: The choice of each job.
        order: Jobs, the first served first.
        submit_s: Jobs start no earlier, shape (jobs,).
        duration_s: Shape (jobs,).
        hosts: The hosts of each job within its pool, where they are given.
        whole_nodes: Whether a job shares its hosts with no other.
    """
    free_s = [np.zeros((pool.nodes, pool.devices_per_node)) for pool in pools]
    start_s, end_s = np.zeros(len(chosen)), np.zeros(len(chosen))
    slots: list[Ints] = [np.zeros(0, dtype=np.intp)] * len(chosen)
    for job in order:
        choice = chosen[job]
        free = free_s[choice.pool]
        width = free.shape[1] if whole_nodes else choice.per_node
        ready_s = np.maximum(np.sort(free, axis=1)[:, width - 1], submit_s[job])
        given = None if hosts is None else hosts[job]
        if given is None:
            start = np.sort(ready_s)[choice.nodes - 1]
            usable = np.flatnonzero(ready_s <= start)
            # Of the hosts that are ready, those with the fewest devices to spare: large holes stay whole.
            spare = (free[usable] <= start).sum(axis=1)
            taken = usable[np.lexsort((-ready_s[usable], spare))[: choice.nodes]]
        else:
            taken = np.array(given, dtype=np.intp)
        start = max(float(ready_s[taken].max()), float(submit_s[job]))
        found = []
        for host in taken:
            waiting = np.flatnonzero(free[host] <= start)
            latest = waiting[np.argsort(-free[host][waiting], kind="stable")[:width]]
            found.append(host * free.shape[1] + np.sort(latest))
        slots[job] = np.concatenate(found)
        start_s[job], end_s[job] = start, start + duration_s[job]
        free.reshape(-1)[slots[job]] = end_s[job]
    return Placed(start_s=start_s, end_s=end_s, slots=tuple(slots), order=tuple(order))


def executed(
    pools: Sequence[Pool], chosen: Sequence[Choice], placed: Placed, submit_s: Floats, durations_s: Floats
) -> Floats:
    """When jobs end that keep devices and order and take other times, shape (draws, jobs).

    Args:
        pools: Of the cluster.
        chosen: The choice of each job.
        placed: The plan.
        submit_s: Jobs start no earlier, shape (jobs,).
        durations_s: Shape (draws, jobs).
    """
    free_s = [np.zeros((len(durations_s), pool.devices)) for pool in pools]
    end_s = np.zeros_like(durations_s)
    for job in placed.order:
        free, own = free_s[chosen[job].pool], placed.slots[job]
        end_s[:, job] = np.maximum(free[:, own].max(axis=1), submit_s[job]) + durations_s[:, job]
        free[:, own] = end_s[:, job : job + 1]
    return end_s
