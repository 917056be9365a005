"""Sections of the comparison of predictors: questions, accuracy, costs, ratios to Ernest, the search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from precision_time.corpus.protocols import SMALL_CLUSTER
from precision_time.render.document import Metric, Section
from precision_time.render.table import CellValue, Table, columns_of, ratio_text

from ..cherrypick.replay import Replayed
from ..contract import Ints
from ..per_job import STEPS_PER_RUN
from ..registry import PREDICTORS
from .costs import REQUESTS, AnswerCost
from .cross_validation import ALL, JOBS, WITHIN, Runs
from .metrics import PredictorScore, scored_errors_percent
from .replay import replay_headline, replay_metrics, replay_table, summary_table

PAPER_LOWER_ERROR, PAPER_LOWER_TIME = 9.8, 10.3
"""PredictDDL, abstract: up to so many times lower error and inference time than Ernest."""
TARGET = 2.0
"""On unseen architectures: times less error than Ernest under its own conditions."""
ERNEST, POOLED = "ernest", "ernest-pooled"
POPULATIONS: Mapping[str, str] = {
    JOBS: "jobs that Ernest can be fitted to",
    ALL: "all rows, no sample runs",
    WITHIN: "data-parallel runs, PredictDDL fitted within source, precision and stack",
}
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
UNSEEN = QUESTIONS["architecture"].protocol


_HEADLINES: Mapping[str, str] = {
    JOBS: "of jobs that can be sampled",
    ALL: "of all rows",
    WITHIN: "where PredictDDL is fitted within source, precision and stack",
}


def accuracy_section(runs: Runs, key: str, scores: Sequence[PredictorScore]) -> Section:
    """The tables of one question."""
    tables, best = [], []
    for population, what in _HEADLINES.items():
        found = _best_first(scores, key, population)
        if found:
            tables += [_accuracy_table(runs, found), _precision_table(found)]
            if population == ALL:
                tables.append(_worst_table(runs, key, found))
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


def _accuracy_table(runs: Runs, found: Sequence[PredictorScore]) -> Table:
    """Errors and ranking of all predictors, the best first."""
    question, population = QUESTIONS[found[0].question], found[0].population
    rows: list[tuple[CellValue, ...]] = [
        (
            *(item.title, PREDICTORS[item.name].knows, item.mape_percent, item.spread_percent),
            *(item.median_percent, item.p90_percent, item.by_job_percent, item.job_median_percent),
            *(ratio_text(tau, 3) for tau in (item.tau_within_jobs, item.tau_overall)),
            *lower_than(runs, item.name, ERNEST, question.protocol, population),
            *lower_than(runs, item.name, POOLED, question.protocol, population)[:2],
        )
        for item in found
    ]
    size = f"{found[0].rows} rows, {found[0].jobs} jobs, {found[0].architectures} architectures"
    return Table(
        title=f"{question.title}: {POPULATIONS[population]} ({size})",
        columns=columns_of(
            "predictor | knows | >mean % | >± over seeds | >median % | >p90 % | >mean over jobs % | "
            ">median over jobs % | >tau in a job | >tau overall | "
            ">x lower than Ernest, own small runs: mean | >than Ernest, own small runs: median | >on rows | "
            ">x lower than Ernest, one fit: mean | >than Ernest, one fit: median"
        ),
        rows=tuple(rows),
        note=f"{question.description} Ratios to Ernest: of the mean and of the median error, on the rows "
        "that both answer, first seed.",
    )


def lower_than(
    runs: Runs, name: str, other: str, protocol: str, population: str
) -> tuple[CellValue, CellValue, CellValue]:
    """How many times lower the mean and the median error is than another's, and on how many rows; first seed.

    Ernest with its own runs answers for jobs that can be sampled only, and not for what it has run.
    """
    if name == other or other not in {item.name for item in runs.predictors}:
        return None, None, None
    errors = [scored_errors_percent(runs, item, protocol, population, 0) for item in (name, other)]
    shared = ~np.isnan(errors).any(axis=0) & ~runs.predict(other, protocol, 0).sampled
    if not shared.any():
        return None, None, None
    own, reference = (values[shared] for values in errors)
    mean, median = (float(statistic(reference) / statistic(own)) for statistic in (np.mean, np.median))
    return ratio_text(mean), ratio_text(median), int(shared.sum())


def _worst_table(runs: Runs, key: str, found: Sequence[PredictorScore]) -> Table:
    """What a mean is made of: the model with the largest sum of errors, the mean without it; first seed."""
    protocol = QUESTIONS[key].protocol
    models = np.unique([item.model for item in runs.table.measurements], return_inverse=True)
    names, number = models[0], models[1].reshape(-1)
    rows: list[tuple[CellValue, ...]] = []
    for item in found:
        errors = scored_errors_percent(runs, item.name, protocol, ALL, 0)
        scored = ~np.isnan(errors)
        sums = np.bincount(number[scored], weights=errors[scored], minlength=len(names))
        worst = int(sums.argmax())
        others = scored & (number != worst)
        rows.append(
            (
                *(item.title, item.mape_percent, str(names[worst]), int((scored & (number == worst)).sum())),
                100.0 * float(sums[worst] / sums.sum()),
                float(errors[others].mean()) if others.any() else None,
                item.median_percent,
            )
        )
    return Table(
        title=f"{QUESTIONS[key].title}: what the means over all rows are made of",
        columns=columns_of(
            "predictor | >mean % | worst model | >its rows | >its share of the sum of errors % | "
            ">mean without it % | >median %"
        ),
        rows=tuple(rows),
    )


def _precision_table(found: Sequence[PredictorScore]) -> Table:
    names = sorted({name for item in found for name in item.by_precision})
    question, population = QUESTIONS[found[0].question], POPULATIONS[found[0].population]
    return Table(
        title=f"{question.title}: MAPE % by precision, {population}",
        columns=("predictor", *(f">{name}" for name in names)),
        rows=tuple((item.title, *(item.by_precision.get(name) for name in names)) for item in found),
    )


def _architecture_table(runs: Runs, population: str) -> Table:
    """T7: predicted over actual time of test architectures that no training row has, first seed."""
    names, measured_s = runs.names(population), runs.table.measured_s
    scored = np.flatnonzero(runs.scored(UNSEEN, 0, population))
    models = np.array([runs.table.measurements[row].model for row in scored])
    chosen: tuple[str, ...] = TEST_ARCHITECTURES
    if population == JOBS:
        kinds, counts = np.unique(models, return_counts=True)
        chosen = tuple(str(kinds[place]) for place in np.argsort(-counts, kind="stable")[:_SHOWN_JOBS])

    def ratio(name: str, rows: Ints) -> str:
        ratios = (runs.predict(name, UNSEEN, 0).step_time_s / measured_s)[rows]
        error = scored_errors_percent(runs, name, UNSEEN, population, 0)[rows].mean()
        return f"{np.median(ratios):.2f} ({error:.0f})"

    of_model = {model: scored[models == model] for model in chosen}
    lines: list[tuple[CellValue, ...]] = [
        (model, len(rows), *(ratio(name, rows) for name in names))
        for model, rows in of_model.items()
        if len(rows)
    ]
    return Table(
        title=f"T7: predicted / actual time of unseen architectures, {POPULATIONS[population]}",
        columns=("architecture", ">rows", *(f">{PREDICTORS[name].title}" for name in names)),
        rows=tuple(lines),
        note="Median ratio, and the mean error in percent in brackets.",
    )


def cost_section(costs: Mapping[str, AnswerCost]) -> Section:
    """What answers cost, and T8."""
    ernest = costs.get(ERNEST)

    def faster(cost: AnswerCost, *, runs: bool) -> CellValue:
        reference = None if ernest is None else ernest.requests_s(1, runs=runs)
        return _times(reference, cost.requests_s(1, runs=runs))

    answers = Table(
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
    requests = Table(
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


def replay_sections(replayed: Sequence[Replayed]) -> list[Section]:
    """CherryPick's question; nothing where no job was replayed."""
    if not replayed:
        return []
    figures = replay_metrics(replayed)
    return [
        Section(
            key="cherrypick",
            title="The best configuration of a job",
            headline=replay_headline(replayed),
            tables=(summary_table(replayed), replay_table(replayed)),
            figures=figures,
        )
    ]


def summary_section(scores: Sequence[PredictorScore], costs: Mapping[str, AnswerCost]) -> Section:
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
                    *(
                        _times(getattr(other, name), getattr(own, name))
                        for name in ("mape_percent", "median_percent", "by_job_percent", "job_median_percent")
                    ),
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
    rows.append((*paper, None, None, None, None, f"up to {PAPER_LOWER_TIME}"))
    return Section(
        key="verdict",
        title="Compared with the paper's ratios",
        headline=_headline(found),
        tables=(
            Table(
                title="Unseen architectures, jobs that Ernest can be fitted to",
                columns=columns_of(
                    "predictor | Ernest under | >MAPE % | >Ernest's MAPE % | >x lower error | "
                    ">by the median | >by the mean over jobs | >by the median over jobs | "
                    ">x faster, sample runs counted | >x faster, refit and answer only"
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
        f"On unseen architectures {own.title} errs by {own.mape_percent:.1f} % (median "
        f"{own.median_percent:.1f} %), {ernest.title}, by {ernest.mape_percent:.1f} % "
        f"({ernest.median_percent:.1f} %): {compared_errors(own.mape_percent, ernest.mape_percent)} by the "
        f"mean, {compared_errors(own.median_percent, ernest.median_percent)} by the median. "
        f"The target, {TARGET:.0f} times less by the mean, is {met}. On the same rows: "
        + ", ".join(
            f"{item.title} {item.mape_percent:.1f} % ({item.median_percent:.1f} %)" for item in others
        )
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
