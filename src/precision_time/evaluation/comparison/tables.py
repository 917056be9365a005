"""The tables of the comparison, made of scores and costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ..report.contract import Cell, Table
from .costs import REQUESTS, AnswerCost
from .protocols import QUESTIONS
from .registry import BY_NAME
from .runs import ALL, JOBS, ComparedRuns
from .scores import Score, errors_percent

ERNEST, POOLED = "ernest", "ernest-pooled"
POPULATIONS: Mapping[str, str] = {
    JOBS: "jobs that Ernest can be fitted to",
    ALL: "all rows, no sample runs",
}
TEST_ARCHITECTURES = (
    *("alexnet", "vgg16", "resnet18", "resnet50", "densenet161", "squeezenet1_0", "resnext50_32x4d"),
    *("mobilenetv3_large_100", "efficientnet_b0", "vit_base_patch16_224", "bert-base-uncased", "gpt2"),
)
"""Shown by name: those of PredictDDL's figures, as remembered (papers.md 3.5), and three transformers."""
_SHOWN_JOBS = 12


def accuracy_table(scores: Sequence[Score], question: str, population: str) -> Table:
    """Errors and ranking of all predictors, the best first."""
    found = _chosen(scores, question, population)
    errors = {item.name: item.mape_percent for item in found}
    rows: list[tuple[Cell, ...]] = [
        (
            item.title,
            BY_NAME[item.name].knows,
            item.mape_percent,
            item.spread_percent,
            item.by_job_percent,
            item.median_percent,
            item.p90_percent,
            _tau(item.tau_within_jobs),
            _tau(item.tau_overall),
            _times(errors.get(ERNEST), item.mape_percent),
            _times(errors.get(POOLED), item.mape_percent),
        )
        for item in found
    ]
    size = f"{found[0].rows} rows, {found[0].jobs} jobs, {found[0].architectures} architectures"
    return Table(
        title=f"{QUESTIONS[question].title}: {POPULATIONS[population]} ({size})",
        columns=(
            "predictor",
            "knows",
            ">MAPE %",
            ">± over seeds",
            ">mean over jobs %",
            ">median %",
            ">p90 %",
            ">tau in a job",
            ">tau overall",
            ">x lower error than Ernest, own small runs",
            ">than Ernest, one fit",
        ),
        rows=tuple(rows),
        note=QUESTIONS[question].asks,
    )


def precision_table(scores: Sequence[Score], question: str, population: str) -> Table:
    """MAPE by precision."""
    found = _chosen(scores, question, population)
    names = sorted({name for item in found for name in item.by_precision})
    rows: list[tuple[Cell, ...]] = [
        (item.title, *(item.by_precision.get(name) for name in names)) for item in found
    ]
    return Table(
        title=f"{QUESTIONS[question].title}: MAPE % by precision, {POPULATIONS[population]}",
        columns=("predictor", *(f">{name}" for name in names)),
        rows=tuple(rows),
    )


def cost_table(costs: Mapping[str, AnswerCost]) -> Table:
    """What fitting and answering takes."""
    ernest = costs.get(ERNEST)
    rows: list[tuple[Cell, ...]] = [
        (
            cost.title,
            str(BY_NAME[name].needs),
            cost.fit_s,
            cost.single_ms,
            cost.bulk_ms,
            cost.runs,
            cost.run_s,
            cost.run_device_s,
            _faster(ernest, cost, runs=True),
            _faster(ernest, cost, runs=False),
        )
        for name, cost in costs.items()
    ]
    return Table(
        title="Cost of fitting and of answering",
        columns=(
            "predictor",
            "needs of a new job",
            ">fit s",
            ">one answer ms",
            ">1,000 answers ms",
            ">sample runs",
            ">their seconds",
            ">their device-seconds",
            ">x faster than Ernest with its runs",
            ">x faster than its refit and answer",
        ),
        rows=tuple(rows),
        note="Fits are over the corpus, or per job for predictors that sample. One answer holds what "
        "has to be made of an architecture never seen (pricing, embedding, reading its graph), 1,000 answers "
        "the same of known ones. Sample runs are of 50 steps at "
        "their measured times, median over jobs; starting a job, which takes longer, is not counted.",
    )


def requests_table(costs: Mapping[str, AnswerCost]) -> Table:
    """T8: seconds for 1 to 16 requests of different jobs."""
    rows: list[tuple[Cell, ...]] = [
        (cost.title, None if cost.runs else cost.fit_s, *(cost.requests_s(count) for count in REQUESTS))
        for cost in costs.values()
    ]
    return Table(
        title="T8: seconds until new jobs are answered, by number of requests",
        columns=("predictor", ">trained once s", *(f">{count}" for count in REQUESTS)),
        rows=tuple(rows),
        note="Requests are for different jobs, one after the other. Predictors that sample run and refit for "
        "each of them.",
    )


def architecture_table(runs: ComparedRuns, population: str, seed: int) -> Table | None:
    """T7: predicted over actual time of test architectures that no training row has; None without rows."""
    names = runs.names(population)
    asked = np.flatnonzero(runs.asked("architecture", seed, population))
    items = runs.wide.table.measurements
    chosen: tuple[str, ...] = TEST_ARCHITECTURES
    if population == JOBS:
        kinds, counts = np.unique([items[row].model for row in asked], return_counts=True)
        chosen = tuple(str(kinds[place]) for place in np.argsort(-counts, kind="stable")[:_SHOWN_JOBS])
    rows: list[tuple[Cell, ...]] = []
    for model in chosen:
        of_it = np.array([row for row in asked if items[row].model == model], dtype=np.intp)
        if len(of_it):
            ratios = [_ratio(runs, name, population, seed, of_it) for name in names]
            rows.append((model, len(of_it), *ratios))
    if not rows:
        return None
    return Table(
        title=f"T7: predicted / actual time of unseen architectures, {POPULATIONS[population]}",
        columns=("architecture", ">rows", *(f">{BY_NAME[name].title}" for name in names)),
        rows=tuple(rows),
        note="Median ratio, and the mean error in percent in brackets.",
    )


def _ratio(runs: ComparedRuns, name: str, population: str, seed: int, rows: NDArray[np.intp]) -> Cell:
    ratio = (runs.held_out(name, "architecture", seed).step_time_s / runs.wide.table.measured_s)[rows]
    error = errors_percent(runs, name, "architecture", population, seed)[rows].mean()
    return f"{np.median(ratio):.2f} ({error:.0f})"


def _chosen(scores: Sequence[Score], question: str, population: str) -> list[Score]:
    """Scores of one table, the best first."""
    found = [item for item in scores if (item.question, item.population) == (question, population)]
    return sorted(found, key=lambda item: item.mape_percent)


def _faster(ernest: AnswerCost | None, cost: AnswerCost, *, runs: bool) -> Cell:
    if ernest is None:
        return None
    return f"{ernest.requests_s(1, runs=runs) / max(cost.requests_s(1, runs=runs), 1e-9):,.2f}"


def _times(reference: float | None, value: float) -> Cell:
    return None if reference is None else f"{reference / max(value, 1e-9):.2f}"


def _tau(value: float | None) -> Cell:
    return None if value is None else f"{value:.3f}"
