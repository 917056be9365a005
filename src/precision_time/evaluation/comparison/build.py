"""Compare all predictors: sample, price, predict what was held out, replay CherryPick, make the tables."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ... import __version__
from ...corpus.measurement import Measurement
from ...corpus.store import corpus_fingerprint, load_corpus
from ...errors import ConfigError
from ...io import cache_folder
from ...papers.cherrypick.replay import Replayed, replay
from ..report.contract import Figure, Report, Section
from ..report.priced import PricedCorpus, priced_corpus
from .costs import AnswerCost, answer_cost, reading_costs
from .protocols import FOLDS, QUESTIONS
from .registry import Entry, Needs, chosen_entries
from .replayed import replay_figures, replay_jobs, replay_table, summary_table
from .runs import ALL, JOBS, ComparedRuns
from .sample import QUICK_ROWS, sampled_jobs
from .scores import Score, score
from .tables import accuracy_table, architecture_table, cost_table, precision_table, requests_table
from .verdict import PAPER_LOWER_ERROR, PAPER_LOWER_TIME, verdict
from .wide import Wide, wide_table

Tell = Callable[[str], None]

QUICK_FOLDS = 2
QUICK_REPLAYED = 3
SEARCH_SEEDS, QUICK_SEARCH_SEEDS = 2, 1
COST_QUESTION = "architecture"


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Everything that was computed, and the report of it."""

    report: Report
    scores: tuple[Score, ...]
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
    tell: Tell = lambda _: None,
) -> Comparison:
    """Compare predictors on the shipped corpus, or on the measurements given.

    Args:
        only: Names of predictors; all when empty. Those who sample are always there: they decide which
            rows anybody is scored on.
        seeds: How many seeds of folds, boosters, networks and searches, from 0 on.
        quick: A sample, two folds, a tenth of the trees: checks that everything works, not how well.
        measurements: Runs; the shipped corpus when None.
        folder: Where priced tables and predictions are kept; the user's cache when None.
        tell: Called with a word on what is being done, for progress bars.

    Raises:
        UnknownNameError: If a predictor is not known.
        ConfigError: If no seed is asked for.
    """
    entries = chosen_entries(only)
    if seeds < 1:
        raise ConfigError(f"--seeds {seeds}: at least one seed is needed. To fix: --seeds 1.")
    # Idle OpenMP threads that spin make fits many times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    rows = [item for item in (load_corpus() if measurements is None else measurements) if item.usable]
    if quick:
        rows = sampled_jobs(rows, QUICK_ROWS)
    kept = cache_folder() if folder is None else folder
    priced = priced_corpus(rows, tell=tell, folder=kept)
    return compared(priced, entries, seeds=seeds, quick=quick, folder=kept, tell=tell)


def compared(
    priced: PricedCorpus,
    entries: tuple[Entry, ...],
    *,
    seeds: int,
    quick: bool,
    folder: Path | None,
    tell: Tell,
) -> Comparison:
    """Compare on runs that are priced; see `compare`."""
    wide = wide_table(priced, tell=tell)
    present = tuple(entry for entry in entries if not entry.missing)
    runs = ComparedRuns(
        wide=wide,
        entries=present,
        quick=quick,
        folds=QUICK_FOLDS if quick else FOLDS,
        tell=tell,
        folder=folder,
    )
    draws = tuple(range(seeds))
    scores = _scores(runs, draws)
    costs = _costs(runs, draws)
    replayed = _replayed(runs, quick)
    sections = [*_accuracy_sections(runs, scores), _cost_section(costs), *_replay_sections(replayed)]
    return Comparison(
        report=Report(
            sections=(verdict(scores, costs), *sections), card=_card(wide, runs, seeds, entries, quick)
        ),
        scores=scores,
        costs=costs,
        replayed=replayed,
    )


def _scores(runs: ComparedRuns, seeds: Sequence[int]) -> tuple[Score, ...]:
    found = []
    for question in QUESTIONS:
        for population in (JOBS, ALL):
            for name in runs.names(population):
                title = next(entry.title for entry in runs.entries if entry.name == name)
                found.append(score(runs, name, title, question, population, seeds))
    return tuple(item for item in found if item is not None)


def _costs(runs: ComparedRuns, seeds: Sequence[int]) -> dict[str, AnswerCost]:
    runs.tell("what an answer costs")
    reading = reading_costs(runs.wide, [entry.needs for entry in runs.entries])
    return {
        entry.name: answer_cost(runs, entry, COST_QUESTION, seeds, reading[entry.needs])
        for entry in runs.entries
    }


def _replayed(runs: ComparedRuns, quick: bool) -> tuple[Replayed, ...]:
    """CherryPick replayed; nothing without our predictor or without what searches."""
    searcher = any(entry.name == "cherrypick-gp" for entry in runs.entries)
    if not searcher or not any(entry.name == "ours" for entry in runs.entries):
        return ()
    jobs = replay_jobs(runs.wide, runs.held_out("ours", "architecture", 0).step_time_s)
    if quick:
        jobs = jobs[:QUICK_REPLAYED]
    return replay(jobs, seeds=QUICK_SEARCH_SEEDS if quick else SEARCH_SEEDS, tell=runs.tell)


def _accuracy_sections(runs: ComparedRuns, scores: Sequence[Score]) -> list[Section]:
    sections = []
    for key, question in QUESTIONS.items():
        mine = [item for item in scores if item.question == key]
        tables = []
        for population in (JOBS, ALL):
            if any(item.population == population for item in mine):
                tables += [accuracy_table(mine, key, population), precision_table(mine, key, population)]
        if key == "architecture":
            shown = (architecture_table(runs, population, 0) for population in (JOBS, ALL))
            tables += [table for table in shown if table is not None]
        sections.append(
            Section(
                key=key,
                title=question.title,
                headline=_best(mine),
                tables=tuple(tables),
                figures={
                    f"{key}.{item.population}.{item.name}.mape_percent": Figure(
                        value=item.mape_percent, spread=item.spread_percent
                    )
                    for item in mine
                },
            )
        )
    return sections


def _best(scores: Sequence[Score]) -> str:
    found = []
    for population, what in ((JOBS, "of jobs that can be sampled"), (ALL, "of all rows")):
        mine = [item for item in scores if item.population == population]
        if mine:
            best = min(mine, key=lambda item: item.mape_percent)
            found.append(f"{what} {best.title} ({best.mape_percent:.1f} %)")
    return f"Least error {', '.join(found)}."


def _cost_section(costs: Mapping[str, AnswerCost]) -> Section:
    return Section(
        key="cost",
        title="What an answer costs",
        headline=f"The paper reports up to {PAPER_LOWER_ERROR} times less error and {PAPER_LOWER_TIME} times "
        "less inference time than Ernest.",
        tables=(cost_table(costs), requests_table(costs)),
        figures={
            f"cost.{name}.predict_1000_ms": Figure(value=cost.bulk_ms, spread=None)
            for name, cost in costs.items()
        },
    )


def _replay_sections(replayed: Sequence[Replayed]) -> list[Section]:
    if not replayed:
        return []
    figures = replay_figures(replayed)
    return [
        Section(
            key="cherrypick",
            title="The best configuration of a job",
            headline=f"Runs until within 5 % of the best, mean over {len(replayed)} jobs: random search "
            f"{figures['cherrypick.random_runs'].value:.1f}, CherryPick "
            f"{figures['cherrypick.cherrypick_runs'].value:.1f}, in our predictor's order "
            f"{figures['cherrypick.ours_ordered_runs'].value:.1f}.",
            tables=(summary_table(replayed), replay_table(replayed)),
            figures=figures,
        )
    ]


def _card(
    wide: Wide, runs: ComparedRuns, seeds: int, entries: Sequence[Entry], quick: bool
) -> dict[str, Any]:
    return {
        "version": __version__,
        "corpus": corpus_fingerprint(wide.table.measurements),
        "rows": len(wide),
        "architectures": len(np.unique([item.model for item in wide.table.measurements])),
        "seeds": seeds,
        "folds": runs.folds,
        "quick": quick,
        "left_out": {
            entry.name: f"needs {', '.join(entry.missing)}: pip install 'precision-time[{entry.extra}]'"
            for entry in entries
            if entry.missing
        },
        "needs": {str(need): sum(entry.needs is need for entry in runs.entries) for need in Needs},
    }
