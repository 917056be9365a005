"""Train the predictors of `precision_time_papers.predictddl` that ship with the package.

    python train_predictddl.py                    # every dataset type with enough runs
    python train_predictddl.py imagenet cifar     # some
    python train_predictddl.py --missing          # only variants that a shipped predictor lacks
    python train_predictddl.py --show             # the table in docs/devdocs/papers.md
    python train_predictddl.py --nested           # the same, all choices made inside training parts

Takes minutes; the priced corpus is kept in the cache folder. What ships must be trained again whenever the
weights of the GHN or the columns of the inputs change (`packages/papers/tests/predictddl/test_shipped.py`).
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from precision_time.corpus.jobs import job_of
from precision_time.corpus.splits import SplitBy, group_numbers, grouped_folds
from precision_time.corpus.store import load_corpus
from precision_time.io import cache_folder
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.metrics import summarize
from precision_time_papers.evaluation.pricing import priced_corpus
from precision_time_papers.predictddl.columns import VARIANTS
from precision_time_papers.predictddl.fitting import QUICK, FitSettings, choose
from precision_time_papers.predictddl.registry import Registry, shipped_folder
from precision_time_papers.predictddl.regressors import KINDS
from precision_time_papers.predictddl.trainer import (
    USUAL_TARGET,
    TypeRuns,
    examples_of,
    input_columns,
    rows_by_type,
    settings_of,
    train_type,
)

MOST_ROWS = {"imagenet": 1200}
FEW_ROWS = 500
"""Of an SVR that ships, in the type with most architectures and in the others: the whole registry stays below
1.5 megabytes."""


def main() -> None:
    """Train what is asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("types", nargs="*", help="dataset types; all by default")
    parser.add_argument("--output", type=Path, default=shipped_folder())
    parser.add_argument("--show", action="store_true", help="print the errors of what is there")
    parser.add_argument("--missing", action="store_true", help="keep the variants that are there")
    parser.add_argument("--nested", action="store_true", help="measure only, write nothing")
    asked = parser.parse_args()
    if asked.show or asked.nested:
        print("| dataset type | runs | variant |", *(f"{kind} |" for kind in KINDS), "chosen | MAPE | p90 |")
        print("| --- |" + " --- |" * 8)
    if asked.show:
        _show(Registry(own=asked.output))
        return
    table = priced_corpus(load_corpus(), progress=_tell, folder=cache_folder()).table
    for name, rows in rows_by_type(table.measurements).items():
        if asked.types and name not in asked.types:
            continue
        if not rows.enough:
            print(f"{name}: left out, {rows.refusal()}", file=sys.stderr)
            continue
        own = _rows_of(table, rows)
        started = time.monotonic()
        if asked.nested:
            _nested(name, own)
        else:
            _write(rows, own, asked.output, keep=asked.missing)
        print(f"{name}: {time.monotonic() - started:.0f} s", file=sys.stderr, flush=True)


def _show(registry: Registry) -> None:
    """The errors on the cards: 4 folds of whole architectures, on which the choices were made too."""
    for name in registry.types():
        trained = registry.load(name)
        for variant, model in trained.variants.items():
            medians = " | ".join(f"{model.scores[kind]['median_ape_percent']:.0f}" for kind in KINDS)
            best = model.scores[model.best]
            figures = (best["median_ape_percent"], best["mape_percent"], best["p90_ape_percent"])
            tail = " | ".join(f"{figure:.0f}" for figure in figures)
            kind = f"{model.best}, {model.regressors[model.best].target}"
            print(f"| {name} | {trained.card['rows']} | {variant} | {medians} | {kind}: {tail} |")


def _rows_of(table: MeasuredTable, rows: TypeRuns) -> MeasuredTable:
    wanted = {id(item) for item in rows.measurements}
    return table.take(np.array([n for n, item in enumerate(table.measurements) if id(item) in wanted]))


def _write(rows: TypeRuns, table: MeasuredTable, folder: Path, *, keep: bool) -> None:
    settings = FitSettings(most_rows=MOST_ROWS.get(rows.dataset_type, FEW_ROWS))
    before = Registry(own=folder).load(rows.dataset_type) if keep else None
    there = {} if before is None else dict(before.variants)
    wanted = [variant for variant in VARIANTS if variant not in there]
    trained = train_type(rows, table=table, settings=settings, variants=wanted, progress=_tell)
    if before is not None:
        made = there | dict(trained.variants)
        trained = replace(before, variants={variant: made[variant] for variant in VARIANTS})
    shutil.rmtree(folder / rows.dataset_type, ignore_errors=True)
    Registry(own=folder).save(trained)
    for variant, model in trained.variants.items():
        for kind, score in model.scores.items():
            mark = "*" if kind == model.best else " "
            print(f"{rows.dataset_type:16s} {variant:22s} {kind:13s}{mark} {_figures(score)}", flush=True)


def _nested(name: str, table: MeasuredTable) -> None:
    """Errors on architectures that neither the fit nor any choice has seen: 5 outer folds, quick settings."""
    names, values = input_columns([job_of(item) for item in table.measurements], table.jobs)
    folds = grouped_folds(group_numbers(table.measurements, by=SplitBy.MODEL), num_folds=5)
    for variant in VARIANTS:
        settings = settings_of(variant, QUICK, (USUAL_TARGET[variant],))
        predicted: dict[str, np.ndarray] = {}
        for fold in np.unique(folds):
            inside, outside = np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)
            chosen = choose(examples_of(variant, table, names, values, inside), settings)
            asked = examples_of(variant, table, names, values, outside)
            for kind, regressor in {**chosen.regressors, "chosen": chosen.regressors[chosen.best]}.items():
                answers = predicted.setdefault(kind, np.empty(len(table)))
                answers[outside] = regressor.predict(asked.x, asked.analytical_s)
        scores = {kind: summarize(table.measured_s, seconds) for kind, seconds in predicted.items()}
        medians = " | ".join(f"{score.median_ape_percent:.0f}" for score in scores.values() if score)
        last = scores["chosen"]
        assert last is not None
        tail = f"{last.mape_percent:.0f} | {last.p90_ape_percent:.0f}"
        print(f"| {name} | {len(table)} | {variant} | {medians} | {tail} |", flush=True)


def _figures(score: object) -> str:
    figures = json.loads(json.dumps(score))
    return (
        f"median {figures['median_ape_percent']:6.1f} %  MAPE {figures['mape_percent']:7.1f} %  "
        f"p90 {figures['p90_ape_percent']:7.1f} %  n {figures['n']}"
    )


def _tell(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:100.100s}", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
