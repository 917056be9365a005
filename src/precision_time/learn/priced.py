"""Jobs priced by the cost model, as tables that the learned stages read: like ones at once, each once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from ..arrays import Floats, Indices
from ..cost.job import Job, Jobs, group_key
from ..cost.step import StepCosts, price
from .table import JobTable, group_table

if TYPE_CHECKING:
    from .artifact import TrainedPredictor


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
    def group(self) -> Jobs:
        """What is priced."""
        return Jobs.at(self.job, np.array(self.batches, dtype=np.float64))


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedJobs:
    """Priced jobs, each once however many ask for it: one row each, those of a group side by side."""

    groups: tuple[LikeJobs, ...]
    costs: tuple[StepCosts, ...]
    """By group."""
    table: JobTable
    reference: JobTable | None
    """The same as measured runs are (`on_reference`), if some are not."""
    rows: Indices
    """The row of each job that was given, shape (n,)."""

    @property
    def starts(self) -> list[int]:
        """The first row of each group, and the number of all rows."""
        return [0, *accumulate(len(group.batches) for group in self.groups)]

    def like(self, predictor: TrainedPredictor) -> JobTable:
        """What the learned stages read."""
        table = self.table if self.reference is None else self.reference
        return table.select(predictor.correction.names)

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
    tables: list[JobTable] = []
    references: list[JobTable] = []
    costs: list[StepCosts] = []
    for each in groups:
        costs.append(price(each.group))
        tables.append(group_table(each.group, costs[-1]))
        learned_on, reference = tables[-1], on_reference(each.job)
        if reference is not each.job:
            as_measured = replace(each, job=reference).group
            learned_on = group_table(as_measured, price(as_measured))
        references.append(learned_on)
    same = all(one is other for one, other in zip(tables, references, strict=True))
    return PricedJobs(
        groups=tuple(groups),
        costs=tuple(costs),
        table=JobTable.together(tables),
        reference=None if same else JobTable.together(references),
        rows=np.arange(sum(len(each.batches) for each in groups)) if rows is None else rows,
    )


def on_reference(job: Job) -> Job:
    """The job as measured runs are: on the catalog's hardware most like its own, stragglers included.

    Itself where it is so already.
    """
    cluster = job.cluster.reference
    if cluster is None:
        return job if job.stragglers else replace(job, stragglers=True)
    return replace(job, cluster=cluster, stragglers=True)
