"""The wide table: every job as every predictor wants to see it, one row each.

Columns: the features of the job as its precision prices it; the same led by `fp32.`; the embeddings of its
architecture and its cluster, which PredictDDL reads (`ghn.`, `ghnp.`, `cluster.`); and numbers for looking up
(`job.`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ...corpus.jobs import job_of
from ...cost.job import Job
from ...learn.table import MeasuredTable
from ...papers.contract import ARCHITECTURE, DATASET, JOB_ID, beside, both
from ...papers.predictddl.columns import cluster_columns
from ...papers.predictddl.datasets import type_of_workload
from ...papers.predictddl.embeddings import job_embeddings
from ...workload.graph import OpGraph
from ..report.priced import PricedCorpus
from .jobs import MeasuredJob, job_numbers, measured_jobs

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]
Tell = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wide:
    """The table, and what its numbers stand for."""

    table: MeasuredTable
    jobs: tuple[MeasuredJob, ...]
    graphs: tuple[OpGraph, ...]
    """Operator graphs by the number in the column `job.architecture`."""
    datasets: tuple[str, ...]
    """Data-set types by the number in the column `job.dataset`."""
    priceable: tuple[Job, ...]
    """The jobs themselves, row by row."""

    def __len__(self) -> int:
        return len(self.table)


def wide_table(priced: PricedCorpus, *, tell: Tell = lambda _: None) -> Wide:
    """Build it from priced runs.

    Args:
        priced: Measured runs, priced as they are and as fp32.
        tell: Called with a word on what is being done.
    """
    tell("reading the jobs")
    measurements = priced.table.measurements
    priceable = tuple(job_of(item) for item in measurements)
    jobs = measured_jobs(measurements)
    graphs, architecture = _numbered_graphs(priceable)
    types = [type_of_workload(job.workload) for job in priceable]
    datasets, dataset = np.unique(types, return_inverse=True)
    columns: dict[str, Floats] = {
        JOB_ID: job_numbers(jobs, len(measurements)).astype(np.float64),
        DATASET: dataset.reshape(-1).astype(np.float64),
        ARCHITECTURE: architecture.astype(np.float64),
    }
    tell("embedding the architectures")
    for names, values in (job_embeddings(priceable), cluster_columns(priceable)):
        columns |= dict(zip(names, values.T, strict=True))
    features = beside(both(priced.table.jobs, priced.fp32), columns)
    return Wide(
        table=replace(priced.table, jobs=features),
        jobs=jobs,
        graphs=graphs,
        datasets=tuple(str(name) for name in datasets),
        priceable=priceable,
    )


def _numbered_graphs(jobs: Sequence[Job]) -> tuple[tuple[OpGraph, ...], Ints]:
    """Distinct graphs and the number of each job's; loading keeps one object per graph."""
    numbers: dict[int, int] = {}
    graphs: list[OpGraph] = []
    where = np.empty(len(jobs), dtype=np.intp)
    for index, job in enumerate(jobs):
        graph = job.workload.graph
        if id(graph) not in numbers:
            numbers[id(graph)] = len(graphs)
            graphs.append(graph)
        where[index] = numbers[id(graph)]
    return tuple(graphs), where
