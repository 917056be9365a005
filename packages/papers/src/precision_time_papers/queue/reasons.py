"""Why a job runs where it does: its next best choice, and what the plan would be with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from precision_time.units import format_duration

from .choices import Choice
from .devices import Placed, place
from .jobs import QueueJob
from .objectives import FAIRNESS, MEAN_COMPLETION, OBJECTIVES, Objective
from .pools import Pool

_SAME = 1.001
"""Objectives within a thousandth are told as the same."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Remedy:
    """What becomes of the deadlines in another plan."""

    one_more_host_of: str
    """A pool; empty for the same cluster, planned for the deadlines."""
    late_jobs: int
    lateness_s: float
    """Of the latest job."""


def reasons_of(
    jobs: Sequence[QueueJob],
    pools: Sequence[Pool],
    every: Sequence[Sequence[Choice]],
    offered: Sequence[Sequence[Choice]],
    taken: Sequence[int],
    placed: Placed,
    figure: Objective,
    quantile: float,
    *,
    whole_nodes: bool,
) -> list[str]:
    """A sentence for each job.

    Args:
        jobs: The queue.
        pools: Of the cluster.
        every: All choices that fit, of each job.
        offered: Those that the solver chose among.
        taken: Place of the choice of each job.
        placed: The plan.
        figure: The objective.
        quantile: Of the planned durations.
        whole_nodes: Whether a job shares its hosts with no other.
    """
    chosen = [own[k] for own, k in zip(offered, taken, strict=True)]
    planned_s = placed.end_s - placed.start_s
    value = figure.value(placed.end_s)
    found = []
    for index, job in enumerate(jobs):
        said = _precision_words(chosen[index], every[index])
        others: list[tuple[float, float, Choice]] = []
        for other in offered[index]:
            if other is chosen[index]:
                continue
            swapped, times_s = [*chosen], planned_s.copy()
            swapped[index], times_s[index] = other, other.quantile_s(quantile)
            again = place(pools, swapped, placed.order, figure.submit_s, times_s, whole_nodes=whole_nodes)
            ends = again.end_s
            others.append((figure.value(ends), float((ends - figure.submit_s).mean()), other))
        mean_s = float((placed.end_s - figure.submit_s).mean())
        said += _other_words(chosen[index], others, (value, mean_s), pools, figure.name)
        if job.deadline_s is not None and placed.end_s[index] > job.deadline_s:
            said.append(_late_words(job, offered[index], pools, quantile))
        found.append("; ".join(said))
    return found


def choice_words(choice: Choice, pools: Sequence[Pool]) -> str:
    """Such as "8 x H100-SXM5-80GB in fp8-mixed"."""
    return f"{choice.devices} x {pools[choice.pool].name} in {choice.precision}"


def _precision_words(chosen: Choice, every: Sequence[Choice]) -> list[str]:
    """How much faster the precision is than the others on the same devices."""
    same = [
        other
        for other in every
        if (other.pool, other.devices, other.nodes) == (chosen.pool, chosen.devices, chosen.nodes)
        and other.precision != chosen.precision
    ]
    return [
        f"{other.duration_s / chosen.duration_s:.2f} x as fast as in {other.precision}"
        for other in sorted(same, key=lambda each: each.duration_s)
    ]


def _other_words(
    chosen: Choice,
    others: Sequence[tuple[float, float, Choice]],
    plan: tuple[float, float],
    pools: Sequence[Pool],
    objective: str,
) -> list[str]:
    """The best of the other choices, and what it does to the objective, or else to the mean completion."""
    if not others:
        return ["no other choice is faster or smaller"]
    best, mean_s, other = min(others, key=lambda each: each[:2])
    speed = f"{format_duration(other.duration_s)} for {format_duration(chosen.duration_s)}"
    shown = f"{best:.2f}" if objective == FAIRNESS else format_duration(best)
    if best <= plan[0] * _SAME:
        effect = f"the same {OBJECTIVES[objective]}"
        if objective != MEAN_COMPLETION:
            effect += f", {format_duration(mean_s)} for {format_duration(plan[1])} on average"
    else:
        effect = f"{OBJECTIVES[objective]} {shown}"
    return [f"next best {choice_words(other, pools)} ({speed}): {effect}"]


def _late_words(job: QueueJob, offered: Sequence[Choice], pools: Sequence[Pool], quantile: float) -> str:
    """Whether any plan meets the deadline of a job, and what the nearest miss is."""
    times = [choice.quantile_s(quantile) for choice in offered]
    fastest = int(np.argmin(times))
    assert job.deadline_s is not None
    end_s = job.submit_s + times[fastest]
    what = choice_words(offered[fastest], pools)
    if end_s > job.deadline_s:
        return (
            f"even alone on {what} it ends {format_duration(end_s - job.deadline_s)} after its deadline: it "
            f"takes a deadline of {format_duration(end_s)}, or more devices (gpus)"
        )
    return f"alone on {what} it would be in time"
