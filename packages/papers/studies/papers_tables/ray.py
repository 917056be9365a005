"""Performance models of jobs on Ray: the tables of Filippini et al. (SEAA 2023), on our campaigns and others.

Interpolation and extrapolation in workers, samples and CPUs per worker, of the time of an epoch and of a
whole job, each model of a campaign by itself, and the same of public step times over devices and batch. The
campaigns are computed here; the study of public data takes longer and is read from
docs/reference/ray-public.json.

Source: Federica Filippini, Boris Lublinsky, Maximilien de Bayser, Danilo Ardagna, "Performance Models for
Distributed Deep Learning Training Jobs on Ray", SEAA 2023. Its abstract: average errors of 3 to 15 %.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.errors import ConfigError
from precision_time.executor import Executor
from precision_time.render.document import Metric, Section
from precision_time.render.table import CellValue, Table
from precision_time_papers.ray_models.points import read_csv
from precision_time_papers.ray_models.schema import prepared_rows, study_of
from precision_time_papers.ray_models.study import Study, run_study
from precision_time_papers.ray_models.techniques import TECHNIQUES
from precision_time_papers.ray_models.trust import LARGEST_ERROR

from . import REFERENCE, STORED
from .claims import Claim, PaperSection, at_most, percent

Floats = NDArray[np.float64]

PAPER = "3-15"
PAPER_MOST = 15.0
"""Percent: the upper end of what the paper reports."""
BOUND = 0.75
"""Extrapolation learns from values up to this share of the largest one."""
RULES = ("constant", "samples", "work", "ernest")
"""Techniques that every table has beside the one chosen."""
_PART_TECHNIQUES = ("constant", "samples", "work", "ernest", "lasso", "nnls", "stepwise", "forward")
"""Of a part of a job: a few coefficients, since parts are simple and many."""
_LEAST_VALUES = 3
_LEAST_ASKED = 3
PUBLIC = REFERENCE / "ray-public.json"
TARGETS = {"epoch_time_s": "epoch", "total_time_s": "whole job"}
PARTS = ("group_start_s", "build_s", "warmup_s", "train_time_s", "evaluation_s", "checkpoint_s")
"""What the time of a whole job is the sum of."""
COLUMNS = {"workers": "num_workers", "samples": "num_samples", "CPUs per worker": "cpus_per_worker"}
SCENARIOS = {
    f"{method}, {words}": (method, column)
    for method in ("interpolation", "extrapolation")
    for words, column in COLUMNS.items()
}
_ROLES = {
    "num_workers": "workers",
    "cpus_per_worker": "cpus",
    "num_samples": "size",
    "batch_per_worker": "batch",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Campaign:
    """One stored campaign."""

    name: str
    labels: tuple[str, ...] = ("",)
    """Labels of the points that are learned from: those of a machine that does what it is asked."""
    words: str = ""
    simulated: str = ""
    """What of it is simulated, said wherever the campaign is named; empty where nothing is."""

    @property
    def title(self) -> str:
        """Its name in headings and claims."""
        return f"{self.name} ({self.simulated})" if self.simulated else self.name

    @property
    def path(self) -> Path:
        """Its CSV."""
        return STORED / f"{self.name}.csv"


CAMPAIGNS = (
    Campaign(name="own-ray-cpu", words="one machine, a core per worker"),
    Campaign(
        name="own-ray-nodes-cpu",
        labels=("", "simulated-nodes"),
        simulated="simulated nodes",
        words="simulated: Ray nodes in network namespaces of one machine, workers with an enforced share of "
        "a core",
    ),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """One model of one campaign, and what is asked of it."""

    campaign: Campaign
    model: str
    target: str
    scenario: str

    @property
    def rule(self) -> tuple[str, str]:
        """Method and column."""
        return SCENARIOS[self.scenario]


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What a study made of it; errors in percent on points held out."""

    task: Task
    learned: int
    predicted: int
    chosen: str
    mean: float
    median: float
    by_technique: Mapping[str, float]
    with_interval: int
    inside_interval: int
    flagged_errors: tuple[float, ...]
    """Of answers that the training part flags."""
    other_errors: tuple[float, ...]
    flagged_by: tuple[str, ...]
    parts_mean: float | None = None
    """A whole job as the sum of its parts, each learned by itself; None where its target is no whole job."""


def sections(
    *,
    executor: Executor,
    seeds: int = 1,
    campaigns: Sequence[Campaign] = CAMPAIGNS,
    public: Path = PUBLIC,
) -> tuple[Section, ...]:
    """The Ray paper's section of docs/papers.md.

    Args:
        executor: Computes the studies.
        seeds: Kept for the contract: splits are by values of a column, and nothing else is drawn.
        campaigns: Stored campaigns; those that are not there are left out, and the text says so.
        public: Summary of the study on public data by ray_models.py; left out if it is not there.
    """
    del seeds
    stored = [campaign for campaign in campaigns if campaign.path.exists()]
    tasks = tasks_of(stored)
    found = [outcome for outcome in executor(outcome_of, tasks) if outcome is not None]
    tables: list[Table] = []
    told: list[str] = []
    claims: list[Claim] = []
    for campaign in stored:
        group = [item for item in found if item.task.campaign == campaign]
        tables += campaign_tables(campaign, group)
        words, means = f"Own campaign {campaign.title}", [item.mean for item in group]
        told += [verdict(words, means), *comparisons(group)]
        claims += claimed(words, means)
    if len(found) < len(tasks):
        told.append(f"{len(tasks) - len(found)} of {len(tasks)} cells have too few points to hold any out.")
    told += [f"The campaign {item.name} is not stored here." for item in campaigns if item not in stored]
    figures = {f"R/{item.name}": Metric(value=_mean(item, found)) for item in stored}
    if public.exists():
        content = json.loads(public.read_text(encoding="utf-8"))
        tables += public_tables(content)
        for words, sources in _PUBLIC_GROUPS:
            asked = [item for item in content["outcomes"] if item["cell"].startswith(sources)]
            told.append(verdict(words, [item["mean"] for item in asked]))
            claims += claimed(words, [item["mean"] for item in asked])
    else:
        told.append(
            "Public data are not stored: `python packages/papers/studies/ray_models.py --only public`."
        )
    return (
        PaperSection(
            key="R",
            claims=tuple(claims),
            title="Performance models of training jobs on Ray",
            headline=" ".join(told),
            tables=tuple(tables),
            figures=figures,
        ),
    )


def _mean(campaign: Campaign, outcomes: Iterable[Outcome]) -> float:
    return float(np.mean([item.mean for item in outcomes if item.task.campaign == campaign]))


def verdict(words: str, errors: Sequence[float]) -> str:
    """How many cells lie within the paper's range, and the mean, as a sentence.

    >>> verdict("Ours", [2.0, 10.0, 30.0])
    'Ours: 2 of 3 cells err by at most 15 % (the paper: 3-15 % on average); mean 14.0 %, median 10.0 %.'
    """
    if not errors:
        return f"{words}: no cell."
    within = sum(error <= PAPER_MOST for error in errors)
    return (
        f"{words}: {within} of {len(errors)} cells err by at most {PAPER_MOST:g} % (the paper: {PAPER} % on "
        f"average); mean {np.mean(errors):.1f} %, median {np.median(errors):.1f} %."
    )


def claimed(words: str, errors: Sequence[float]) -> Iterator[Claim]:
    """The paper's range beside the mean of some cells; nothing without any.

    >>> [one] = claimed("Ours", [2.0, 10.0, 30.0])
    >>> one.ours, one.rows, one.verdict
    ('14.0 % (median 10.0); 2 of 3 cells within 15 %', 3, 'holds')
    """
    if errors:
        mean, within = float(np.mean(errors)), sum(error <= PAPER_MOST for error in errors)
        yield Claim(
            claim=f"average error in interpolation and extrapolation: {words}",
            paper=f"{PAPER} %",
            ours=f"{percent(mean, float(np.median(errors)))}; {within} of {len(errors)} cells within "
            f"{PAPER_MOST:g} %",
            rows=len(errors),
            verdict=at_most(mean, PAPER_MOST),
        )


def comparisons(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """How often each rule is closer than the technique selected, and what learning a job's parts is worth."""
    closer = [
        f"{TECHNIQUES[name].title} in {sum(found)}"
        for name in (*RULES, "forward")
        if (found := [item.by_technique[name] < item.mean for item in outcomes if name in item.by_technique])
    ]
    yield f"Closer than the technique selected, of {len(outcomes)} cells: {', '.join(closer)}."
    jobs = [(item.parts_mean, item.mean) for item in outcomes if item.parts_mean is not None]
    if jobs:
        parts, whole = np.mean(jobs, axis=0).tolist()
        yield (
            f"Whole jobs, mean of {len(jobs)} cells: {parts:.1f} % as the sum of their parts, {whole:.1f} % "
            "learned directly."
        )


def rows_of(campaign: Campaign) -> list[dict[str, str]]:
    """The fp32 points of a campaign that count; `model` names machine and dataset, too, where they differ."""
    rows, _ = read_csv(campaign.path)
    kept = [
        row
        for row in rows
        if row["status"] == "ok" and row["label"] in campaign.labels and row["precision"] == "fp32"
    ]
    apart = [name for name in ("machine", "dataset") if len({row.get(name) for row in kept}) > 1]
    return [{**row, "model": " ".join([row["model"], *(row[name] for name in apart)])} for row in kept]


def tasks_of(campaigns: Iterable[Campaign]) -> list[Task]:
    """Every model, target and scenario that a campaign has enough values for."""
    tasks = []
    for campaign in campaigns:
        rows = rows_of(campaign)
        for model in sorted({row["model"] for row in rows}):
            of_it = [row for row in rows if row["model"] == model]
            for scenario, (_, column) in SCENARIOS.items():
                if len({float(row[column]) for row in of_it}) >= _LEAST_VALUES:
                    tasks += [
                        Task(campaign=campaign, model=model, target=target, scenario=scenario)
                        for target in TARGETS
                        if all(row[target] for row in of_it)
                    ]
    return tasks


def outcome_of(task: Task) -> Outcome | None:
    """The study of a task; None where its split cannot be made."""
    rows = [row for row in rows_of(task.campaign) if row["model"] == task.model]
    try:
        study = studied(rows, task, task.target, tuple(TECHNIQUES), judged=True)
    except ConfigError:
        return None
    asked = np.concatenate([item.rows for item in study.test])
    if len(asked) < _LEAST_ASKED:
        return None
    measured = study.points.measured[asked]
    predicted = np.concatenate([item.best_s for item in study.test])
    errors = _errors(measured, predicted)
    widths, flags = judged(study)
    stated = ~np.isnan(widths)
    inside = np.abs(np.log(measured / predicted))[stated] <= widths[stated]
    return Outcome(
        task=task,
        learned=len(study.points) - len(study.test[0].rows),
        predicted=len(asked),
        chosen=study.test[0].best,
        mean=float(errors.mean()),
        median=float(np.median(errors)),
        by_technique={score.technique.name: score.validation_mape for score in study.scores},
        with_interval=int(stated.sum()),
        inside_interval=int(inside.sum()),
        flagged_errors=tuple(error for error, some in zip(errors.tolist(), flags, strict=True) if some),
        other_errors=tuple(error for error, some in zip(errors.tolist(), flags, strict=True) if not some),
        flagged_by=tuple(sorted({kind for some in flags for kind in some})),
        parts_mean=_parts_error(rows, task, measured) if task.target == "total_time_s" else None,
    )


def judged(study: Study) -> tuple[Floats, list[tuple[str, ...]]]:
    """Widths of the intervals and kinds of flags of the points held out."""
    widths, flags = [], []
    for item in study.test:
        assert item.trust is not None
        columns = study.points.take(item.rows).columns
        widths.append(item.trust.widths(columns))
        flags += [tuple(flag.kind for flag in some) for some in item.trust.flags(columns)]
    return np.concatenate(widths), flags


def studied(
    rows: Sequence[Mapping[str, str]],
    task: Task,
    target: str,
    techniques: Sequence[str],
    *,
    judged: bool = False,
) -> Study:
    """The study of one target of some rows, held out as the task says."""
    columns = [name for name in _ROLES if len({row[name] for row in rows}) > 1]
    method, column = task.rule
    validation: dict[str, object] = {"method": method, "column": column}
    if method == "extrapolation":
        largest = max(float(row[column]) for row in rows)
        validation = {"method": method, "bounds": {column: BOUND * largest}}
    roles = {_ROLES[name]: name for name in columns}
    terms = [name for name in ("work", "ernest", "optimus") if _has_roles(name, roles)]
    study = study_of(
        {
            "target": target,
            "columns": columns,
            "roles": roles,
            "features": {"inverse": "all", "log": "all", "degree": 2, "terms": terms},
            "techniques": [name for name in techniques if not TECHNIQUES[name].grey],
            "validation": validation,
        }
    )
    points, plan = prepared_rows(study, rows, range(2, len(rows) + 2))
    return run_study(points, plan, keep=False, judged=judged)


def _has_roles(term: str, roles: Mapping[str, str]) -> bool:
    return "size" in roles and (term == "work" or "workers" in roles)


def _parts_error(rows: Sequence[Mapping[str, str]], task: Task, measured: Floats) -> float | None:
    """Error [%] of the sum of a job's parts, each learned by itself from the same points."""
    total = np.zeros(len(measured))
    for part in PARTS:
        times = [float(row.get(part) or 0.0) for row in rows]
        if not any(times):
            continue
        if min(times) <= 0.0:
            return None
        study = studied(rows, task, part, _PART_TECHNIQUES)
        total = total + np.concatenate([item.best_s for item in study.test])
    return float(_errors(measured, total).mean())


def _errors(measured: Floats, predicted: Floats) -> Floats:
    errors: Floats = np.abs(predicted - measured) / measured * 100.0
    return errors


def campaign_tables(campaign: Campaign, outcomes: Sequence[Outcome]) -> Iterator[Table]:
    """Means over the models, every cell, and what flags are worth."""
    if not outcomes:
        return
    scenarios = [
        (f"{scenario}, {TARGETS[target]}", group)
        for target in TARGETS
        for scenario in SCENARIOS
        if (
            group := [
                item for item in outcomes if item.task.scenario == scenario and item.task.target == target
            ]
        )
    ]
    yield Table(
        title=f"{campaign.title}: mean over the models",
        columns=(
            "asked", "paper (average) %", ">models", ">points asked", ">best in selection, mean %",
            ">median %", ">sum of parts, mean %", *(f">{TECHNIQUES[name].title} %" for name in RULES),
            ">forward selection %", ">best in hindsight %", ">in 90 % interval %", "worst model",
        ),
        rows=tuple(_scenario_row(words, group) for words, group in scenarios),
        note=f"{campaign.words[:1].upper()}{campaign.words[1:]}. Errors of times held out, by the "
        "technique that was best on inner splits of what was learned from. Interpolation holds out every "
        f"third interior value of a column in turn; extrapolation learns up to {BOUND:.0%} of the largest.",
    )  # fmt: skip
    yield Table(
        title=f"{campaign.title}: every cell",
        columns=(
            "model", "asked", ">learned from", ">asked points", "technique", ">mean %", ">median %",
            ">in 90 % interval %", ">flagged %", "flags",
        ),
        rows=tuple(
            (
                item.task.model, f"{item.task.scenario}, {TARGETS[item.task.target]}", item.learned,
                item.predicted, item.chosen, item.mean, item.median,
                _share(item.inside_interval, item.with_interval),
                _share(len(item.flagged_errors), item.predicted),
                ", ".join(item.flagged_by) or "-",
            )
            for item in outcomes
        ),
    )  # fmt: skip
    yield flag_table(
        campaign.title,
        [item.flagged_errors for item in outcomes],
        [item.other_errors for item in outcomes],
    )


def _scenario_row(words: str, group: Sequence[Outcome]) -> tuple[CellValue, ...]:
    worst = max(group, key=lambda item: item.mean)
    parts = [item.parts_mean for item in group if item.parts_mean is not None]
    rules = [[item.by_technique[name] for item in group if name in item.by_technique] for name in RULES]
    return (
        words,
        PAPER,
        len(group),
        sum(item.predicted for item in group),
        float(np.mean([item.mean for item in group])),
        float(np.median([item.mean for item in group])),
        float(np.mean(parts)) if len(parts) == len(group) else None,
        *(float(np.mean(errors)) if errors else None for errors in rules),
        float(np.mean([item.by_technique["forward"] for item in group])),
        float(np.mean([min(item.by_technique.values()) for item in group])),
        _share(sum(item.inside_interval for item in group), sum(item.with_interval for item in group)),
        f"{worst.task.model} {worst.mean:.1f}",
    )


def flag_table(words: str, flagged: Sequence[Sequence[float]], others: Sequence[Sequence[float]]) -> Table:
    """Errors [%] of the answers that are flagged and of the others, per cell."""
    limit = 100.0 * LARGEST_ERROR
    rows: list[tuple[CellValue, ...]] = []
    for name, cells in (("flagged", flagged), ("not flagged", others), ("all", [*flagged, *others])):
        errors = [error for cell in cells for error in cell]
        stated = [float(np.mean(errors)), float(np.median(errors)), max(errors)] if errors else [None] * 3
        beyond = _share(sum(error > limit for error in errors), len(errors))
        rows.append((name, len(errors), *stated, beyond))
    return Table(
        title=f"{words}: answers that are flagged, and the others",
        columns=("answers", ">n", ">mean %", ">median %", ">largest %", f">off by more than {limit:g} %, %"),
        rows=tuple(rows),
        note="Flags know the points learned from alone; every answer counts once.",
    )


def _share(part: int, whole: int) -> float | None:
    return 100.0 * part / whole if whole else None


_PUBLIC_GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Pollux and Sia", ("pollux/", "sia/")),
    ("Gavel", ("gavel/",)),
)
"""Pollux and Sia are measured for profiles; Gavel's are rates of whole jobs of a shared cluster."""


def public_tables(content: Mapping[str, Any]) -> Iterator[Table]:
    """Tables of the study on public step times, as stored."""
    outcomes: list[Mapping[str, Any]] = content["outcomes"]
    for words, sources in _PUBLIC_GROUPS:
        group = [item for item in outcomes if item["cell"].startswith(sources)]
        scenarios = [name for name in content["scenarios"] if any(item["scenario"] == name for item in group)]
        yield Table(
            title=f"{words}: step time, mean over cells (network x device x source)",
            columns=(
                "asked", "paper (average) %", ">cells", ">points asked", ">best in selection, mean %",
                ">median %", ">best grey box %", ">best black box %",
                *(f">{TECHNIQUES[name].title} %" for name in RULES),
                ">forward selection %", ">best in hindsight %", ">in 90 % interval %", "worst cell",
            ),
            rows=tuple(
                _public_row(name, [item for item in group if item["scenario"] == name]) for name in scenarios
            ),
            note=f"From docs/reference/ray-public.json (`{content['command']}`). {content['note']}",
        )  # fmt: skip
        yield flag_table(
            words, [item["flagged_errors"] for item in group], [item["other_errors"] for item in group]
        )
    worst = sorted(outcomes, key=lambda item: -item["mean"])[:12]
    yield Table(
        title="The largest errors on public data, and their flags",
        columns=(
            "cell", "asked", ">learned from", ">asked points", "technique", ">mean %", ">median %",
            ">flagged %", "flags",
        ),
        rows=tuple(
            (
                item["cell"], item["scenario"], item["learned"], item["predicted"], item["chosen"],
                item["mean"], item["median"], _share(len(item["flagged_errors"]), item["predicted"]),
                ", ".join(item["flagged_by"]) or "-",
            )
            for item in worst
        ),
    )  # fmt: skip


def _public_row(name: str, group: Sequence[Mapping[str, Any]]) -> tuple[CellValue, ...]:
    worst = max(group, key=lambda item: item["mean"])
    rules = [[item["by_technique"][rule] for item in group if rule in item["by_technique"]] for rule in RULES]
    return (
        name,
        PAPER,
        len(group),
        sum(item["predicted"] for item in group),
        float(np.mean([item["mean"] for item in group])),
        float(np.median([item["mean"] for item in group])),
        float(np.mean([item["by_technique"][item["grey_box"]] for item in group])),
        float(np.mean([item["by_technique"][item["black_box"]] for item in group])),
        *(float(np.mean(errors)) if errors else None for errors in rules),
        float(np.mean([item["by_technique"]["forward"] for item in group])),
        float(np.mean([min(item["by_technique"].values()) for item in group])),
        _share(sum(item["inside_interval"] for item in group), sum(item["with_interval"] for item in group)),
        f"{worst['cell']} {worst['mean']:.0f}",
    )
