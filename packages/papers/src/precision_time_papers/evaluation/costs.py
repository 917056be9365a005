"""What an answer costs: sample runs, fitting, computing what the predictor reads, predicting.

Papers differ in what they count as Ernest's inference: its answer alone, with the refit, or with the sample
runs that the refit needs. Tables show all three.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from precision_time.corpus.jobs import job_of
from precision_time.corpus.measurement import Measurement
from precision_time.cost.job import Job
from precision_time.learn.table import job_table

from ..driple import static_graphs
from ..ghn.architecture import architecture_of
from ..ghn.network import node_vectors
from ..ghn.readout import annotated_vector, lowered_dtypes, mean_vector, node_classes
from ..ghn.weights import shipped_weights
from ..predictddl.columns import cluster_columns, sum_columns
from ..predictddl.trainer import input_columns
from ..registry import Needs, PredictorEntry
from .cross_validation import BULK, Runs, timed

Preparation = Callable[[list[Job]], Any]

_SINGLES = 15
REQUESTS = (1, 2, 4, 8, 16)


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadingCost:
    """Seconds to compute what a kind of predictor reads, of one job and of 1,000."""

    single_s: float
    bulk_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerCost:
    """Seconds that one predictor takes; samples are means over jobs."""

    name: str
    title: str
    fit_s: float
    """Of one fit: over the corpus, or per job for predictors that sample."""
    reading: ReadingCost
    single_s: float
    """One answer, its inputs given."""
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
    runs: Runs, entry: PredictorEntry, protocol: str, seeds: Sequence[int], reading: ReadingCost
) -> AnswerCost:
    """The account of one predictor under one protocol."""
    found = [runs.predict(entry.name, protocol, seed) for seed in seeds]

    def median(name: str) -> float:
        values = np.concatenate([getattr(item, name) for item in found])
        return float(np.median(values)) if len(values) else 0.0

    sampled = np.concatenate([item.runs for item in found])
    seconds = {name: median(name) for name in ("fit_s", "single_s", "bulk_s", "run_s", "run_device_s")}
    mean_runs = float(sampled.mean()) if len(sampled) else 0.0
    return AnswerCost(name=entry.name, title=entry.title, reading=reading, runs=mean_runs, **seconds)


def reading_costs(measurements: Sequence[Measurement], needs: Sequence[Needs]) -> dict[Needs, ReadingCost]:
    """Time what has to be computed from a job before predictors of each kind can answer.

    One job: an architecture of which nothing is cached, median over jobs from all of the table. 1,000 jobs at
    once: of architectures that are cached by then; of a smaller table all its jobs, scaled to 1,000.
    """
    ones, many = (
        [job_of(measurements[row]) for row in np.linspace(0, len(measurements) - 1, count).astype(int)]
        for count in (_SINGLES, min(BULK, len(measurements)))
    )
    nothing = ReadingCost(single_s=0.0, bulk_s=0.0)
    costs = {need: nothing for need in needs}
    for need in costs.keys() & _PREPARATIONS.keys():
        first, again = _PREPARATIONS[need]
        first([_uncached(ones[0])])
        singles = [timed(first, [_uncached(job)])[1] for job in ones]
        again(many)
        costs[need] = ReadingCost(
            single_s=float(np.median(singles)), bulk_s=timed(again, many)[1] * BULK / len(many)
        )
    return costs


def _uncached(job: Job) -> Job:
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


def _sum(jobs: list[Job]) -> None:
    sum_columns(job_table(jobs))
    cluster_columns(jobs)


def _embed_and_sum_first(jobs: list[Job]) -> None:
    _embed_first(jobs)
    sum_columns(job_table(jobs))


def _embed_and_sum(jobs: list[Job]) -> None:
    _embed(jobs)
    sum_columns(job_table(jobs))


def _annotate_first(jobs: list[Job]) -> None:
    for job in jobs:
        graph = job.workload.graph
        architecture = architecture_of(graph)
        classes = node_classes(architecture, lowered_dtypes(graph, job.runs))
        annotated_vector(architecture, node_vectors(architecture, shipped_weights()), classes)
    cluster_columns(jobs)
    job_table(jobs)


def _annotate(jobs: list[Job]) -> None:
    input_columns(jobs, job_table(jobs))


_PREPARATIONS: Mapping[Needs, tuple[Preparation, Preparation]] = {
    Needs.PRICING: (job_table, job_table),
    Needs.SUMS: (_sum, _sum),
    Needs.EMBEDDING_AND_SUMS: (_embed_and_sum_first, _embed_and_sum),
    Needs.GRAPH: (_read_graphs, _read_graphs),
    Needs.EMBEDDING: (_embed_first, _embed),
    Needs.BOTH: (_annotate_first, _annotate),
}
"""What computes the inputs: of architectures that are not cached, and of those that are."""
