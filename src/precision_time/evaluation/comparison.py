"""`precision-time compare-predictors`: predictors of the literature and ours on the same unseen rows."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..corpus.measurement import Measurement
from ..corpus.store import corpus_fingerprint, load_corpus
from ..errors import ConfigError
from ..io import cache_folder
from ..papers.cherrypick.replay import Replayed, replay
from ..papers.contract import Ints
from ..papers.per_job import STEPS_PER_RUN
from ..papers.registry import PREDICTORS, Needs, PredictorEntry, chosen_predictors
from .costs import REQUESTS, AnswerCost, answer_cost, reading_costs
from .cross_validation import ALL, JOBS, Runs, tree_settings
from .measured_jobs import sampled_jobs
from .metrics import PredictorScore, score_predictor, scored_errors_percent
from .pricing import PricedCorpus, Progress, full_feature_table, priced_corpus, silent
from .protocols import SMALL_CLUSTER
from .replay import replay_jobs, replay_metrics, replay_table, summary_table
from .tables import CellValue, Metric, Report, ReportTable, Section, columns_of, ratio_text

FOLDS, QUICK_FOLDS = 5, 2
QUICK_ROWS = 900
QUICK_REPLAYED = 3
SEARCH_SEEDS, QUICK_SEARCH_SEEDS = 2, 1
PAPER_LOWER_ERROR, PAPER_LOWER_TIME = 9.8, 10.3
"""PredictDDL, abstract: up to so many times lower error and inference time than Ernest."""
TARGET = 2.0
"""On unseen architectures: times less error than Ernest under its own conditions."""
ERNEST, POOLED = "ernest", "ernest-pooled"
POPULATIONS: Mapping[str, str] = {JOBS: "jobs that Ernest can be fitted to", ALL: "all rows, no sample runs"}
TEST_ARCHITECTURES = (
    *("alexnet", "vgg16", "resnet18", "resnet50", "densenet161", "squeezenet1_0", "resnext50_32x4d"),
    *("mobilenetv3_large_100", "efficientnet_b0", "vit_base_patch16_224", "bert-base-uncased", "gpt2"),
)
"""Shown by name: those of PredictDDL's figures, as remembered (papers.md 3.5), and three transformers."""
_SHOWN_JOBS = 12


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One of the three comparisons."""

    title: str
    description: str
    """What is fitted and what is predicted, in a sentence."""
    protocol: str
    """A name of PROTOCOLS."""


QUESTIONS: Mapping[str, Question] = {
    "configuration": Question(
        title="(a) 80/20, unseen configurations",
        description="A fifth of the configurations (architecture, precision, batch, cluster and software) is "
        "predicted, with all repeats; fitted on the rest.",
        protocol="one-fifth",
    ),
    "architecture": Question(
        title="(b) unseen architectures",
        description="A fifth of the architectures is predicted at a time, with all their rows; "
        "fitted on the others.",
        protocol="model",
    ),
    "cluster": Question(
        title="(c) unseen cluster sizes",
        description=f"Every run on more than {SMALL_CLUSTER} devices is predicted; fitted on up to "
        f"{SMALL_CLUSTER}.",
        protocol="cluster",
    ),
}
_UNSEEN = QUESTIONS["architecture"].protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictorComparison:
    """Everything that was computed, and the report of it."""

    report: Report
    scores: tuple[PredictorScore, ...]
    costs: Mapping[str, AnswerCost]
    replayed: tuple[Replayed, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            **self.report.to_dict(),
            "scores": [item.to_dict() for item in self.scores],
            "costs": [item.to_dict() for item in self.costs.values()],
        }


def compare(
    *,
    only: Sequence[str] = (),
    seeds: int = 1,
    quick: bool = False,
    measurements: Sequence[Measurement] | None = None,
    folder: Path | None = None,
    progress: Progress = silent,
) -> PredictorComparison:
    """Compare predictors on the shipped corpus, or on the measurements given.

    Args:
        only: Names of predictors; all when empty. Predictors that sample are always compared: they decide
            which rows are scored.
        seeds: How many seeds of folds, boosters, networks and searches, from 0 on.
        quick: A sample, two folds, a tenth of the trees: checks that everything works, not how well.
        measurements: Runs; the shipped corpus when None.
        folder: Where priced tables and predictions are kept; the user's cache when None.
        progress: Called with a line on what is being done.

    Raises:
        UnknownNameError: If a predictor is not known.
        ConfigError: If there are no seeds.
    """
    predictors = chosen_predictors(only)
    if seeds < 1:
        raise ConfigError(f"--seeds {seeds}: at least one seed is needed. To fix: --seeds 1.")
    # Idle OpenMP threads that spin make fits many times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    rows = [item for item in (load_corpus() if measurements is None else measurements) if item.usable]
    if quick:
        rows = sampled_jobs(rows, QUICK_ROWS)
    kept = cache_folder() if folder is None else folder
    priced = priced_corpus(rows, progress=progress, folder=kept)
    return compared(priced, predictors, seeds=seeds, quick=quick, folder=kept, progress=progress)


def comparison_runs(
    priced: PricedCorpus,
    predictors: Sequence[PredictorEntry],
    *,
    quick: bool,
    folder: Path | None,
    progress: Progress = silent,
) -> Runs:
    """Timed out-of-fold predictions of the predictors that can be fitted."""
    return Runs(
        priced=priced,
        features=full_feature_table(priced, progress=progress),
        settings=tree_settings(quick=quick),
        folds=QUICK_FOLDS if quick else FOLDS,
        quick=quick,
        timed=True,
        predictors=tuple(item for item in predictors if not item.missing),
        progress=progress,
        folder=folder,
    )


def compared(
    priced: PricedCorpus,
    predictors: Sequence[PredictorEntry],
    *,
    seeds: int,
    quick: bool,
    folder: Path | None,
    progress: Progress = silent,
) -> PredictorComparison:
    """Compare on runs that are priced; see `compare`."""
    runs, draws = (
        comparison_runs(priced, predictors, quick=quick, folder=folder, progress=progress),
        range(seeds),
    )
    found = (
        score_predictor(runs, name, PREDICTORS[name].title, key, question.protocol, population, draws)
        for key, question in QUESTIONS.items()
        for population in POPULATIONS
        for name in runs.names(population)
    )
    scores = tuple(item for item in found if item is not None)
    progress("what an answer costs")
    reading = reading_costs(runs, [item.needs for item in runs.predictors])
    costs = {
        item.name: answer_cost(runs, item, _UNSEEN, draws, reading[item.needs]) for item in runs.predictors
    }
    replayed = _replayed(runs, quick)
    sections = [
        _summary_section(scores, costs),
        *(_accuracy_section(runs, key, scores) for key in QUESTIONS),
        _cost_section(costs),
        *_replay_sections(replayed),
    ]
    measurements = runs.table.measurements
    card = {
        "version": __version__,
        "corpus": corpus_fingerprint(measurements),
        "rows": len(measurements),
        "sample": QUICK_ROWS if quick else None,
        "architectures": len({item.model for item in measurements}),
        "seeds": seeds,
        "folds": runs.folds,
        "quick": quick,
        "left_out": {
            item.name: f"needs {item.missing}: pip install 'precision-time[{item.extra}]'"
            for item in predictors
            if item.missing
        },
        "needs": {str(need): sum(item.needs is need for item in runs.predictors) for need in Needs},
    }
    report = Report(sections=tuple(sections), card=card)
    return PredictorComparison(report=report, scores=scores, costs=costs, replayed=replayed)


def _replayed(runs: Runs, quick: bool) -> tuple[Replayed, ...]:
    """CherryPick replayed; nothing unless both our predictor and its Gaussian process are compared."""
    if not {"cherrypick-gp", "ours"} <= {item.name for item in runs.predictors}:
        return ()
    jobs = replay_jobs(runs.table, runs.ours(_UNSEEN, 0).step_time_s)
    seeds = QUICK_SEARCH_SEEDS if quick else SEARCH_SEEDS
    return replay(jobs[:QUICK_REPLAYED] if quick else jobs, seeds=seeds, progress=runs.progress)


def _accuracy_section(runs: Runs, key: str, scores: Sequence[PredictorScore]) -> Section:
    tables, best = [], []
    for population, what in ((JOBS, "of jobs that can be sampled"), (ALL, "of all rows")):
        found = _best_first(scores, key, population)
        if found:
            tables += [_accuracy_table(found), _precision_table(found)]
            best.append(f"{what} {found[0].title} ({found[0].mape_percent:.1f} %)")
    if key == "architecture":
        shown = (_architecture_table(runs, population) for population in POPULATIONS)
        tables += [table for table in shown if table.rows]
    return Section(
        key=key,
        title=QUESTIONS[key].title,
        headline=f"Least error {', '.join(best)}.",
        tables=tuple(tables),
        figures={
            f"{key}.{item.population}.{item.name}.mape_percent": Metric(
                value=item.mape_percent, spread=item.spread_percent
            )
            for item in scores
            if item.question == key
        },
    )


def _best_first(scores: Sequence[PredictorScore], question: str, population: str) -> list[PredictorScore]:
    found = [item for item in scores if (item.question, item.population) == (question, population)]
    return sorted(found, key=lambda item: item.mape_percent)


def _accuracy_table(found: Sequence[PredictorScore]) -> ReportTable:
    """Errors and ranking of all predictors, the best first."""
    errors, question = {item.name: item.mape_percent for item in found}, QUESTIONS[found[0].question]
    rows: list[tuple[CellValue, ...]] = [
        (
            *(item.title, PREDICTORS[item.name].knows, item.mape_percent, item.spread_percent),
            *(item.by_job_percent, item.median_percent, item.p90_percent),
            *(ratio_text(tau, 3) for tau in (item.tau_within_jobs, item.tau_overall)),
            *(_times(errors.get(name), item.mape_percent) for name in (ERNEST, POOLED)),
        )
        for item in found
    ]
    size = f"{found[0].rows} rows, {found[0].jobs} jobs, {found[0].architectures} architectures"
    return ReportTable(
        title=f"{question.title}: {POPULATIONS[found[0].population]} ({size})",
        columns=columns_of(
            "predictor | knows | >MAPE % | >± over seeds | >mean over jobs % | >median % | "
            ">p90 % | >tau in a job | >tau overall | "
            ">x lower error than Ernest, own small runs | >than Ernest, one fit"
        ),
        rows=tuple(rows),
        note=question.description,
    )


def _precision_table(found: Sequence[PredictorScore]) -> ReportTable:
    names = sorted({name for item in found for name in item.by_precision})
    question, population = QUESTIONS[found[0].question], POPULATIONS[found[0].population]
    return ReportTable(
        title=f"{question.title}: MAPE % by precision, {population}",
        columns=("predictor", *(f">{name}" for name in names)),
        rows=tuple((item.title, *(item.by_precision.get(name) for name in names)) for item in found),
    )


def _architecture_table(runs: Runs, population: str) -> ReportTable:
    """T7: predicted over actual time of test architectures that no training row has, first seed."""
    names, measured_s = runs.names(population), runs.table.measured_s
    scored = np.flatnonzero(runs.scored(_UNSEEN, 0, population))
    models = np.array([runs.table.measurements[row].model for row in scored])
    chosen: tuple[str, ...] = TEST_ARCHITECTURES
    if population == JOBS:
        kinds, counts = np.unique(models, return_counts=True)
        chosen = tuple(str(kinds[place]) for place in np.argsort(-counts, kind="stable")[:_SHOWN_JOBS])

    def ratio(name: str, rows: Ints) -> str:
        ratios = (runs.predict(name, _UNSEEN, 0).step_time_s / measured_s)[rows]
        error = scored_errors_percent(runs, name, _UNSEEN, population, 0)[rows].mean()
        return f"{np.median(ratios):.2f} ({error:.0f})"

    of_model = {model: scored[models == model] for model in chosen}
    lines: list[tuple[CellValue, ...]] = [
        (model, len(rows), *(ratio(name, rows) for name in names))
        for model, rows in of_model.items()
        if len(rows)
    ]
    return ReportTable(
        title=f"T7: predicted / actual time of unseen architectures, {POPULATIONS[population]}",
        columns=("architecture", ">rows", *(f">{PREDICTORS[name].title}" for name in names)),
        rows=tuple(lines),
        note="Median ratio, and the mean error in percent in brackets.",
    )


def _cost_section(costs: Mapping[str, AnswerCost]) -> Section:
    ernest = costs.get(ERNEST)

    def faster(cost: AnswerCost, *, runs: bool) -> CellValue:
        reference = None if ernest is None else ernest.requests_s(1, runs=runs)
        return _times(reference, cost.requests_s(1, runs=runs))

    answers = ReportTable(
        title="Cost of fitting and of answering",
        columns=columns_of(
            "predictor | needs of a new job | >fit s | >one answer ms | >1,000 answers ms | >sample runs | "
            ">their seconds | >their device-seconds | >x faster than Ernest with its runs | "
            ">x faster than its refit and answer"
        ),
        rows=tuple(
            (
                *(cost.title, str(PREDICTORS[name].needs), cost.fit_s, cost.single_ms, cost.bulk_ms),
                *(cost.runs, cost.run_s, cost.run_device_s),
                *(faster(cost, runs=runs) for runs in (True, False)),
            )
            for name, cost in costs.items()
        ),
        note="Fits are over the corpus, or per job for predictors that sample. One answer includes what has "
        "to be computed of an architecture that is not cached (pricing, embedding, reading its graph), 1,000 "
        f"answers the same of cached ones. Sample runs are of {STEPS_PER_RUN} steps at their measured times, "
        "median over jobs; starting a job, which takes longer, is not counted.",
    )
    requests = ReportTable(
        title="T8: seconds until new jobs are answered, by number of requests",
        columns=("predictor", ">trained once s", *(f">{count}" for count in REQUESTS)),
        rows=tuple(
            (cost.title, None if cost.runs else cost.fit_s, *(cost.requests_s(count) for count in REQUESTS))
            for cost in costs.values()
        ),
        note="Requests are for different jobs, one after the other. Predictors that sample run and refit for "
        "each of them.",
    )
    return Section(
        key="cost",
        title="What an answer costs",
        headline=f"The paper reports up to {PAPER_LOWER_ERROR} times less error and {PAPER_LOWER_TIME} times "
        "less inference time than Ernest.",
        tables=(answers, requests),
        figures={f"cost.{name}.predict_1000_ms": Metric(value=cost.bulk_ms) for name, cost in costs.items()},
    )


def _replay_sections(replayed: Sequence[Replayed]) -> list[Section]:
    if not replayed:
        return []
    figures = replay_metrics(replayed)
    means = [figures[f"cherrypick.{name}_runs"].value for name in ("random", "cherrypick", "ours_ordered")]
    return [
        Section(
            key="cherrypick",
            title="The best configuration of a job",
            headline=f"Runs until within 5 % of the best, mean over {len(replayed)} jobs: random search "
            f"{means[0]:.1f}, CherryPick {means[1]:.1f}, in our predictor's order {means[2]:.1f}.",
            tables=(summary_table(replayed), replay_table(replayed)),
            figures=figures,
        )
    ]


def _summary_section(scores: Sequence[PredictorScore], costs: Mapping[str, AnswerCost]) -> Section:
    """Ratios of PredictDDL and ours to Ernest on unseen architectures, and those of its paper."""
    found = {item.name: item for item in scores if (item.question, item.population) == ("architecture", JOBS)}
    conditions = {
        ERNEST: "its own conditions: refitted on small sample runs of the queried job",
        "ernest-free": "refitted on sample runs of any size",
        POOLED: "one fit per dataset; knows no architecture, runs nothing",
    }
    rows: list[tuple[CellValue, ...]] = []
    figures: dict[str, Metric] = {}
    for name in ("predictddl", "predictddl-precision", "ours"):
        for ernest, condition in conditions.items():
            if name not in found or ernest not in found:
                continue
            own, other = found[name], found[ernest]
            answer_s = costs[name].requests_s(1)
            rows.append(
                (
                    *(own.title, condition, own.mape_percent, other.mape_percent),
                    _times(other.mape_percent, own.mape_percent),
                    _times(other.by_job_percent, own.by_job_percent),
                    *(_times(costs[ernest].requests_s(1, runs=runs), answer_s) for runs in (True, False)),
                )
            )
            lower = other.mape_percent / own.mape_percent
            figures[f"verdict.{name}.lower_error_than_{ernest}"] = Metric(value=lower)
    paper = (
        "PredictDDL, in the paper",
        "not stated in the abstract",
        None,
        None,
        f"up to {PAPER_LOWER_ERROR}",
    )
    rows.append((*paper, None, None, f"up to {PAPER_LOWER_TIME}"))
    return Section(
        key="verdict",
        title="Compared with the paper's ratios",
        headline=_headline(found),
        tables=(
            ReportTable(
                title="Unseen architectures, jobs that Ernest can be fitted to",
                columns=columns_of(
                    "predictor | Ernest under | >MAPE % | >Ernest's MAPE % | >x lower error | "
                    ">x lower, every job with the same weight | >x faster, sample runs counted | "
                    ">x faster, refit and answer only"
                ),
                rows=tuple(rows),
                note="The abstract does not say whether Ernest was refitted for each job, nor what its "
                "inference time includes.",
            ),
        ),
        figures=figures,
    )


def _headline(found: Mapping[str, PredictorScore]) -> str:
    own, ernest = found.get("predictddl-precision"), found.get(ERNEST)
    if own is None or ernest is None:
        return "PredictDDL or Ernest was left out, so that there is no ratio."
    others = (found[name] for name in ("formulas", "ours", POOLED) if name in found)
    met = "met" if ernest.mape_percent / own.mape_percent >= TARGET else "not met"
    return (
        f"On unseen architectures {own.title} errs by {own.mape_percent:.1f} % (mean over jobs "
        f"{own.by_job_percent:.1f} %), {ernest.title}, by {ernest.mape_percent:.1f} % "
        f"({ernest.by_job_percent:.1f} %): {compared_errors(own.mape_percent, ernest.mape_percent)}. "
        f"The target, {TARGET:.0f} times less, is {met}. On the same rows: "
        + ", ".join(f"{item.title} {item.mape_percent:.1f} %" for item in others)
        + "."
    )


def compared_errors(own: float, other: float) -> str:
    """Two errors as a ratio above 1.

    >>> compared_errors(10.0, 20.0), compared_errors(50.0, 20.0)
    ('2.0 times less error', '2.5 times the error')
    """
    return f"{other / own:.1f} times less error" if own <= other else f"{own / other:.1f} times the error"


def _times(reference: float | None, value: float) -> CellValue:
    return None if reference is None else ratio_text(reference / max(value, 1e-9))
