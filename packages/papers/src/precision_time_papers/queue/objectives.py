"""What a plan of a queue is judged by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from precision_time.arrays import Floats
from precision_time.errors import UnknownNameError

from .choices import Choice
from .jobs import QueueJob
from .pools import Pool

MAKESPAN, DEADLINES, FAIRNESS, MEAN_COMPLETION = "makespan", "deadlines", "fairness", "mean-completion"
OBJECTIVES = {
    MAKESPAN: "end of the last job",
    DEADLINES: "mean weighted lateness",
    FAIRNESS: "worst finish-time ratio",
    MEAN_COMPLETION: "mean completion time",
}
"""Each is to be small."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """A figure of the ends of jobs; everything it holds has shape (jobs,)."""

    name: str
    submit_s: Floats
    deadline_s: Floats
    """Infinite where there is none."""
    weight: Floats
    share_s: Floats
    """Durations on a fair share of the cluster."""

    def lateness_s(self, end_s: Floats) -> Floats:
        """Seconds after the deadlines, shape (..., jobs)."""
        return np.maximum(end_s - self.deadline_s, 0.0)

    def finish_ratio(self, end_s: Floats) -> Floats:
        """From submission to end over the time on a fair share (rho of Themis, NSDI 2020)."""
        return (end_s - self.submit_s) / self.share_s

    def value(self, end_s: Floats) -> float:
        """The figure [s; without unit for fairness]."""
        if self.name == MAKESPAN:
            return float(end_s.max())
        if self.name == FAIRNESS:
            return float(self.finish_ratio(end_s).max())
        cost_s = self.lateness_s(end_s) if self.name == DEADLINES else end_s - self.submit_s
        return float((self.weight * cost_s).sum() / self.weight.sum())


def objective_of(
    name: str,
    jobs: Sequence[QueueJob],
    pools: Sequence[Pool],
    choices: Sequence[Sequence[Choice]],
    planned_s: Sequence[Floats],
) -> Objective:
    """The objective of a queue.

    Args:
        name: One of OBJECTIVES.
        jobs: The queue.
        pools: Of the cluster.
        choices: Of each job.
        planned_s: Planned durations of each job's choices.

    Raises:
        UnknownNameError: If there is no such objective.
    """
    if name not in OBJECTIVES:
        hint = f"To fix: one of {', '.join(OBJECTIVES)}."
        raise UnknownNameError(kind="objective", name=name, known=OBJECTIVES, hint=hint)
    of_tenant = Counter(job.tenant for job in jobs)
    shares = [1.0 / (len(of_tenant) * of_tenant[job.tenant]) for job in jobs]
    return Objective(
        name=name,
        submit_s=np.array([job.submit_s for job in jobs]),
        deadline_s=np.array([np.inf if job.deadline_s is None else job.deadline_s for job in jobs]),
        weight=np.array([job.weight for job in jobs]),
        share_s=np.array(
            [
                _share_s(own, pools, times, share)
                for own, times, share in zip(choices, planned_s, shares, strict=True)
            ]
        ),
    )


def _share_s(choices: Sequence[Choice], pools: Sequence[Pool], times_s: Floats, share: float) -> float:
    """Duration of a job with a share of every pool to itself; on more devices it has them in turn."""
    return min(
        float(time_s) * max(1.0, choice.devices / (share * pools[choice.pool].devices))
        for choice, time_s in zip(choices, times_s, strict=True)
    )
