"""Jobs priced by the cost model, as a table that the predictor reads: each once however many ask for it."""

from __future__ import annotations

from collections.abc import Sequence

from ..arrays import Floats, Indices
from ..cost.job import Job, Jobs
from ..cost.step import StepCosts
from ..records import dataclass
from .predictor import Predictor, Times
from .table import JobTable, priced_groups


@dataclass(frozen=True, kw_only=True, slots=True)
class PricedJobs:
    """Priced jobs: one row each, those of a group side by side."""

    counts: tuple[int, ...]
    """Rows of each group."""
    costs: StepCosts
    """Of these jobs and of smaller ones (`table.priced_groups`)."""
    places: Indices
    """Which of the costs are those of the rows of the table."""
    table: JobTable
    rows: Indices
    """The row of each job that was given, shape (n,)."""

    def times(self, predictor: Predictor, *, coverage: float | Floats) -> Times:
        """Step times of the jobs that were given.

        Args:
            predictor: The trained predictor.
            coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
        """
        as_given = len(self.rows) == len(self.table) and bool((self.rows[1:] > self.rows[:-1]).all())
        return predictor.times(self.table if as_given else self.table.take(self.rows), coverage=coverage)


def predict_step_times(jobs: Sequence[Job], predictor: Predictor, *, coverage: float | Floats) -> Times:
    """Step times of many jobs: `Predictor.times` of their table.

    Args:
        jobs: n jobs; those that differ in their micro batch alone are priced together.
        predictor: The trained predictor.
        coverage: Probability that each interval holds, 0..1; one for all or shape (n,).
    """
    if not jobs:
        return predictor.times(JobTable.together([]), coverage=coverage)
    return price_jobs(Jobs.of(jobs)).times(predictor, coverage=coverage)


def price_jobs(jobs: Jobs) -> PricedJobs:
    """Price jobs, each once, groups of like ones at once."""
    once, rows = jobs.distinct()
    groups = [*once.groups()]
    costs, table, places = priced_groups(groups)
    return PricedJobs(counts=tuple(map(len, groups)), costs=costs, places=places, table=table, rows=rows)
