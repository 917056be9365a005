"""Measured runs as tables: what predictors are fitted to and scored on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats, Ints
from ..corpus.jobs import UnsupportedRow, job_of
from ..corpus.measurement import Measurement
from ..corpus.splits import configuration_groups, joined_groups
from ..cost.job import Job
from ..errors import PrecisionTimeError
from ..executor import Executor, in_chunks
from ..records import dataclass
from .boosting import BoosterSettings, boost
from .novelty import training_set
from .predictor import Predictor, readable
from .table import JobTable, job_table

_CHUNK = 1000
"""Rows per task: about a second."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredTable:
    """Jobs with their measurements, ready for fitting and scoring."""

    jobs: JobTable
    measurements: tuple[Measurement, ...]
    measured_s: Floats
    sync_s: Floats
    """Wait for communication that the source measured [s]; NaN where it did not."""
    rejected: Counter[str]
    """Why rows of the corpus could not be priced, and how many."""

    def __len__(self) -> int:
        return len(self.measured_s)

    def groups(self) -> NDArray[np.int64]:
        """Groups that no inner fold may divide: repeats of a configuration, and twins, shape (n,)."""
        return joined_groups(configuration_groups(self.measurements), self.jobs.twins())

    def with_own(self, jobs: Sequence[Job], measurements: Sequence[Measurement]) -> MeasuredTable:
        """The table with further runs after its own, of which no waits are known."""
        return replace(
            self,
            jobs=JobTable.together([self.jobs, job_table(jobs)] if len(self) else [job_table(jobs)]),
            measurements=(*self.measurements, *measurements),
            measured_s=np.concatenate([self.measured_s, [item.step_time_s for item in measurements]]),
            sync_s=np.concatenate([self.sync_s, np.full(len(measurements), np.nan)]),
        )

    def take(self, rows: NDArray[np.intp]) -> MeasuredTable:
        """The table of some of the rows."""
        return replace(
            self,
            jobs=self.jobs.take(rows),
            measurements=tuple(self.measurements[row] for row in rows),
            measured_s=self.measured_s[rows],
            sync_s=self.sync_s[rows],
        )


def measured_table(
    measurements: Sequence[Measurement],
    progress: Callable[[int], None] | None = None,
    *,
    over: Executor = map,
) -> MeasuredTable:
    """The fitting table of the measurements that can be priced; the others are counted with reasons.

    Args:
        measurements: Any runs.
        progress: Called with the number of rows done after every chunk.
        over: What runs the chunks, each of the same models: the table is the same.
    """
    order = sorted(range(len(measurements)), key=lambda index: measurements[index].model)
    tables: list[JobTable] = []
    kept: list[int] = []
    rejected: Counter[str] = Counter()
    chunks = in_chunks(order, _CHUNK)
    rows = [[measurements[index] for index in chunk] for chunk in chunks]
    for chunk, (table, places, refused) in zip(chunks, over(_priced, rows), strict=True):
        tables.append(table)
        kept += [chunk[place] for place in places]
        rejected += refused
        if progress:
            progress(len(chunk))
    in_order = np.argsort(np.array(kept, dtype=np.intp), kind="stable")
    found = [measurements[kept[place]] for place in in_order.tolist()]
    jobs = JobTable.together([table for table in tables if len(table.analytical_s)])
    return MeasuredTable(
        jobs=jobs.take(in_order) if found else jobs,
        measurements=tuple(found),
        measured_s=np.array([item.step_time_s for item in found]),
        sync_s=np.array([np.nan if item.sync_time_s is None else item.sync_time_s for item in found]),
        rejected=rejected,
    )


def _priced(measurements: Sequence[Measurement]) -> tuple[JobTable, list[int], Counter[str]]:
    """The priced rows, their places, and why the others could not be priced."""
    jobs: list[Job] = []
    kept: list[int] = []
    rejected: Counter[str] = Counter()
    for place, measurement in enumerate(measurements):
        if not measurement.usable:
            rejected[f"unusable: {measurement.quality_reason}"] += 1
            continue
        try:
            jobs.append(job_of(measurement))
        except UnsupportedRow as error:
            rejected[error.reason] += 1
            continue
        except PrecisionTimeError as error:
            rejected[type(error).__name__ + ": " + str(error)[:80]] += 1
            continue
        kept.append(place)
    return job_table(jobs), kept, rejected


def fit_predictor(
    table: MeasuredTable, rows: Ints, weights: Floats, settings: BoosterSettings, *, seed: int = 0
) -> Predictor:
    """Learn from some rows of a table.

    Args:
        table: Measured jobs.
        rows: Indices of the rows to learn from.
        weights: Evidence of each row of the table, shape (n,).
        settings: LightGBM settings.
        seed: Of the booster; the same seed gives the same trees.
    """
    jobs = table.jobs.alone().take(rows)
    target = np.log(table.measured_s[rows] / jobs.analytical_s)
    return Predictor(
        names=jobs.names,
        trees=boost(readable(jobs), target, weights[rows], settings, seed),
        training_set=training_set(jobs, np.arange(len(jobs))),
    )
