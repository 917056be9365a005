"""Jobs priced by the cost model, as tables that the predictor reads: like ones at once, each once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np

from ..arrays import Floats, Indices
from ..cost.job import Job, JobGroup, group_key, group_of_jobs
from ..cost.step import StepCosts
from .predictor import Predictor, Times
from .table import JobTable, priced_group


@dataclass(frozen=True, kw_only=True, slots=True)
class LikeJobs:
    """Jobs that differ in their micro batch only."""

    job: Job
    """One of them, which speaks for all."""
    key: Hashable
    """Its `group_key`."""
    batches: tuple[float, ...]
    """Their micro batches, each once."""

    @property
    def group(self) -> JobGroup:
        """What is priced."""
        return replace(group_of_jobs([self.job]), micro_batch_size=np.array(self.batches, dtype=np.float64))


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedJobs:
    """Priced jobs, each once however many ask for it: one row each, those of a group side by side."""

    groups: tuple[LikeJobs, ...]
    costs: tuple[StepCosts, ...]
    """By group; first those of its jobs, then of smaller ones (`table.priced_group`)."""
    table: JobTable
    rows: Indices
    """The row of each job that was given, shape (n,)."""

    @property
    def starts(self) -> list[int]:
        """The first row of each group, and the number of all rows."""
        return [0, *accumulate(len(group.batches) for group in self.groups)]

    def times(self, predictor: Predictor, *, coverage: float | Floats) -> Times:
        """Step times of the jobs that were given.

        Args:
            predictor: The trained predictor.
            coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
        """
        if isinstance(coverage, float):
            return predictor.times(self.table, coverage=coverage).take(self.rows)
        return predictor.times(self.table.take(self.rows), coverage=coverage)

    def costs_of(self, job: int) -> StepCosts:
        """The analytical costs of one job alone, arrays of shape (1,)."""
        starts = self.starts
        group = bisect_right(starts, int(self.rows[job])) - 1
        costs, place = self.costs[group], int(self.rows[job]) - starts[group]

        def taken(named: Mapping[str, Floats]) -> dict[str, Floats]:
            return {name: values[place : place + 1] for name, values in named.items()}

        return StepCosts(
            terms=taken(costs.terms),
            link_seconds=taken(costs.link_seconds),
            facts={},
            least_s=costs.least_s[place : place + 1],
        )


def predict_step_times(jobs: Sequence[Job], predictor: Predictor, *, coverage: float | Floats) -> Times:
    """Step times of many jobs: `Predictor.times` of their table.

    Args:
        jobs: n jobs; those that differ in their micro batch alone are priced together.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
    """
    return price_jobs(jobs).times(predictor, coverage=coverage)


def price_jobs(jobs: Sequence[Job]) -> PricedJobs:
    """Price jobs, groups of like ones at once.

    Args:
        jobs: n jobs.
    """
    found: dict[Hashable, tuple[Job, dict[float, int]]] = {}
    asked: list[tuple[Hashable, int]] = []
    for job in jobs:
        key = group_key(job)
        _, batches = found.setdefault(key, (job, {}))
        asked.append((key, batches.setdefault(job.layout.micro_batch_size, len(batches))))
    groups = [LikeJobs(job=job, key=key, batches=tuple(batches)) for key, (job, batches) in found.items()]
    first = dict(zip(found, accumulate((len(group.batches) for group in groups), initial=0), strict=False))
    rows = np.array([first[key] + place for key, place in asked], dtype=np.intp)
    return price_groups(groups, rows)


def price_groups(groups: Sequence[LikeJobs], rows: Indices | None = None) -> PricedJobs:
    """Price groups of jobs.

    Args:
        groups: Each with a key of its own.
        rows: Rows of the jobs that are wanted, shape (n,); None for all.
    """
    priced = [priced_group(each.group, each.job) for each in groups]
    table = JobTable.together([table for _, table in priced])
    return PricedJobs(
        groups=tuple(groups),
        costs=tuple(costs for costs, _ in priced),
        table=table,
        rows=np.arange(len(table)) if rows is None else rows,
    )
