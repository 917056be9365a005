"""What an answer costs: sample runs, fitting, making what the predictor reads, predicting.

Ernest's inference is told in three ways, because papers differ in what they count: its answer alone, with the
refit, and with the sample runs that the refit needs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...cost.job import Job
from ...learn.table import job_table
from ...papers.driple import static_graphs
from ...papers.ghn.architecture import architecture_of
from ...papers.ghn.network import node_vectors
from ...papers.ghn.readout import annotated_vector, lowered_dtypes, mean_vector, node_classes
from ...papers.ghn.weights import shipped_weights
from ...papers.predictddl.columns import cluster_columns
from ...papers.predictddl.trainer import input_columns
from .held_out import BULK
from .registry import Entry, Needs
from .runs import ComparedRuns
from .wide import Wide

Ints = NDArray[np.intp]
Way = Callable[[list[Job]], Any]

_SINGLES = 15
REQUESTS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingCost:
    """Seconds to make what a kind of predictor reads, of one job and of 1,000."""

    single_s: float
    bulk_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerCost:
    """Seconds that one predictor takes; samples are means over the jobs of the question asked."""

    name: str
    title: str
    fit_s: float
    """Of one fit: over the corpus, or per job for those who sample."""
    reading: ReadingCost
    single_s: float
    """One answer, what it reads being there."""
    bulk_s: float
    """1,000 answers at once, likewise."""
    runs: float
    """Sample runs per job."""
    run_s: float
    """Wall-clock seconds of those, median over jobs."""
    run_device_s: float
    """Their device-seconds, median over jobs."""

    @property
    def single_ms(self) -> float:
        """One answer with what it reads [ms]."""
        return (self.reading.single_s + self.single_s) * 1e3

    @property
    def bulk_ms(self) -> float:
        """1,000 answers with what they read [ms]."""
        return (self.reading.bulk_s + self.bulk_s) * 1e3

    def requests_s(self, count: int, *, runs: bool = True) -> float:
        """Seconds until so many new jobs are answered, after training once where that is needed at all.

        Args:
            count: Requests for jobs that differ.
            runs: Whether sample runs count.
        """
        per_job = self.single_s + self.reading.single_s
        if self.runs:
            per_job += self.fit_s + (self.run_s if runs else 0.0)
        return count * per_job

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "name": self.name,
            "fit_seconds": self.fit_s,
            "predict_single_ms": self.single_ms,
            "predict_1000_ms": self.bulk_ms,
            "of_that_reading_single_ms": self.reading.single_s * 1e3,
            "of_that_reading_1000_ms": self.reading.bulk_s * 1e3,
            "sample_runs": self.runs,
            "sample_run_seconds": self.run_s,
            "sample_run_device_seconds": self.run_device_s,
        }


def answer_cost(
    runs: ComparedRuns, entry: Entry, question: str, seeds: Sequence[int], reading: ReadingCost
) -> AnswerCost:
    """The account of one predictor under one question."""
    held = [runs.held_out(entry.name, question, seed) for seed in seeds]

    def median(name: str) -> float:
        values = np.concatenate([getattr(item, name) for item in held])
        return float(np.median(values)) if len(values) else 0.0

    sampled = np.concatenate([item.runs for item in held])
    return AnswerCost(
        name=entry.name,
        title=entry.title,
        fit_s=median("fit_s"),
        reading=reading,
        single_s=median("single_s"),
        bulk_s=median("bulk_s"),
        runs=float(sampled.mean()) if len(sampled) else 0.0,
        run_s=median("run_s"),
        run_device_s=median("run_device_s"),
    )


def reading_costs(wide: Wide, needs: Sequence[Needs]) -> dict[Needs, ReadingCost]:
    """Measure what has to be made of a job before predictors of each kind can answer.

    One job: an architecture that nothing is remembered of, median over jobs spread over the table. 1,000 jobs
    at once: jobs spread likewise, whose architectures are known by then; of a smaller table all its jobs,
    scaled to 1,000.
    """
    rows = np.linspace(0, len(wide) - 1, _SINGLES).astype(np.intp)
    spread = np.unique(np.linspace(0, len(wide) - 1, BULK).astype(np.intp))
    many = [wide.priceable[row] for row in spread]
    nothing = ReadingCost(single_s=0.0, bulk_s=0.0)
    costs = {need: nothing for need in needs}
    for need in costs.keys() & _WAYS.keys():
        first, again = _WAYS[need]
        first([_never_seen(wide.priceable[0])])
        singles = [_seconds(first, [_never_seen(wide.priceable[row])]) for row in rows]
        again(many)
        costs[need] = ReadingCost(
            single_s=float(np.median(singles)), bulk_s=_seconds(again, many) * BULK / len(many)
        )
    return costs


def _seconds(way: Way, jobs: list[Job]) -> float:
    started = time.perf_counter()
    way(jobs)
    return time.perf_counter() - started


def _never_seen(job: Job) -> Job:
    """The job with a graph of its own identity: caches go by that."""
    graph = replace(job.workload.graph, name=job.workload.graph.name)
    return replace(job, workload=replace(job.workload, graph=graph))


def _read_graphs(jobs: list[Job]) -> None:
    static_graphs([*{id(job.workload.graph): job.workload.graph for job in jobs}.values()])


def _embed_first(jobs: list[Job]) -> None:
    for job in jobs:
        architecture = architecture_of(job.workload.graph)
        mean_vector(architecture, node_vectors(architecture, shipped_weights()))
    cluster_columns(jobs)


def _embed(jobs: list[Job]) -> None:
    input_columns(jobs, None)


def _annotate_first(jobs: list[Job]) -> None:
    for job in jobs:
        graph = job.workload.graph
        architecture = architecture_of(graph)
        classes = node_classes(architecture, lowered_dtypes(graph, job.precision))
        annotated_vector(architecture, node_vectors(architecture, shipped_weights()), classes)
    cluster_columns(jobs)
    job_table(jobs)


def _annotate(jobs: list[Job]) -> None:
    input_columns(jobs, job_table(jobs))


_WAYS: Mapping[Needs, tuple[Way, Way]] = {
    Needs.PRICING: (job_table, job_table),
    Needs.GRAPH: (_read_graphs, _read_graphs),
    Needs.EMBEDDING: (_embed_first, _embed),
    Needs.BOTH: (_annotate_first, _annotate),
}
"""What makes the inputs: of architectures never seen, and again."""
