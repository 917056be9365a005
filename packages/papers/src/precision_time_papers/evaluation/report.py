"""`precision-time papers report`: tables T1 to T6 of the precision-aware paper, on runs held out by group."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from precision_time import __version__
from precision_time.corpus.families import family_numbers
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import corpus_fingerprint, load_corpus
from precision_time.errors import ConfigError
from precision_time.executor import Executor
from precision_time.io import cache_folder
from precision_time.learn.training import require_fitting
from precision_time.render.document import Section

from .cross_validation import Runs, tree_settings
from .generalization import generalization_section
from .importance import importance_section
from .precision_tables import cross_section, spread_section
from .predictor_tables import ablations_section, predictors_section
from .pricing import Progress, priced_corpus, silent
from .tables import Report

SECTIONS: Mapping[str, Callable[[Runs, Sequence[int]], Section]] = {
    "T1": spread_section,
    "T2": cross_section,
    "T3": predictors_section,
    "T4": ablations_section,
    "T5": generalization_section,
    "T6": importance_section,
}
FOLDS, QUICK_FOLDS = 5, 2
QUICK_ROWS = 1500
"""Runs that a quick report is made of by default."""
_LEAST_ROWS = 200


def build_report(
    *,
    only: Sequence[str] = (),
    seeds: int = 1,
    quick: bool = False,
    sample: int | None = None,
    folds: int | None = None,
    measurements: Sequence[Measurement] | None = None,
    folder: Path | None = None,
    progress: Progress = silent,
    map_fn: Executor = map,
) -> Report:
    """The tables requested, on the shipped corpus or on the measurements given.

    Args:
        only: Keys of SECTIONS; all when empty.
        seeds: How many seeds of folds and boosters, from 0 on.
        quick: Two folds, a tenth of the trees, and a sample: checks that everything works, not how well.
        sample: Runs to draw, whole families at a time; all when None (QUICK_ROWS when quick).
        folds: How many; FOLDS when None (QUICK_FOLDS when quick).
        measurements: Runs; the shipped corpus when None.
        folder: Where priced tables and predictions are kept; the user's cache when None.
        progress: Called with a line on what is being done.
        map_fn: What runs the folds: `map`, a pool of processes, a cluster. The report is the same.

    Raises:
        ConfigError: If a table is not known, or seeds, folds or runs are too few.
        MissingExtraError: If LightGBM or scipy is not installed.
    """
    chosen = _sections(only)
    if seeds < 1:
        raise ConfigError(f"--seeds {seeds}: at least one seed is needed. To fix: --seeds 1.")
    if folds is not None and folds < QUICK_FOLDS:
        raise ConfigError(
            f"--folds {folds}: at least {QUICK_FOLDS} folds are needed. To fix: --folds {QUICK_FOLDS}."
        )
    wanted = sample if sample is not None or not quick else QUICK_ROWS
    if wanted is not None and wanted < _LEAST_ROWS:
        raise ConfigError(
            f"--sample {wanted}: folds and trees need at least {_LEAST_ROWS} runs. "
            f"To fix: --sample {_LEAST_ROWS} or more."
        )
    require_fitting()
    rows = [item for item in (load_corpus() if measurements is None else measurements) if item.usable]
    kept = cache_folder() if folder is None else folder
    priced = priced_corpus(sample_families(rows, wanted), progress=progress, folder=kept)
    runs = Runs(
        priced=priced,
        settings=tree_settings(quick=quick),
        folds=folds or (QUICK_FOLDS if quick else FOLDS),
        progress=progress,
        map_fn=map_fn,
        folder=kept,
    )
    return report_of(runs, only=chosen, seeds=seeds, quick=quick, sample=wanted)


def report_of(
    runs: Runs, *, only: Sequence[str], seeds: int, quick: bool = False, sample: int | None = None
) -> Report:
    """The tables of runs that are priced; see `build_report`."""
    sections = []
    for key in only:
        runs.progress(key)
        sections.append(SECTIONS[key](runs, tuple(range(seeds))))
    return Report(sections=tuple(sections), card=_card(runs, seeds, quick, sample))


def sample_families(rows: Sequence[Measurement], count: int | None) -> list[Measurement]:
    """About `count` of the runs, families whole, in their order; half of them of several precisions.

    Args:
        rows: Runs.
        count: How many; all when None.
    """
    if count is None or count >= len(rows):
        return list(rows)
    numbers = family_numbers(rows)
    precisions = np.unique([item.precision for item in rows], return_inverse=True)[1]
    _, family = np.unique(numbers, return_inverse=True)
    seen = np.unique(np.stack([family, precisions.reshape(-1)]), axis=1)[0]
    several = np.flatnonzero(np.bincount(seen) > 1)
    draw = np.random.default_rng(0)
    sizes = np.bincount(family)
    taken = np.zeros(len(sizes), dtype=bool)
    for families, least in ((several, count // 2), (np.arange(len(sizes)), count)):
        order = draw.permutation(families[~taken[families]])
        before = np.cumsum(sizes[order]) - sizes[order] + sizes[taken].sum()
        taken[order[before < least]] = True
    return [rows[index] for index in np.flatnonzero(taken[family]).tolist()]


def _sections(only: Sequence[str]) -> tuple[str, ...]:
    wanted = {name.strip().upper() for name in only if name.strip()}
    unknown = sorted(wanted - SECTIONS.keys())
    if unknown:
        raise ConfigError(
            f"--only {unknown[0]}: there is no such table. To fix: one or more of {', '.join(SECTIONS)}."
        )
    return tuple(key for key in SECTIONS if not wanted or key in wanted)


def _card(runs: Runs, seeds: int, quick: bool, sample: int | None) -> dict[str, Any]:
    return {
        "version": __version__,
        "corpus": corpus_fingerprint(runs.table.measurements),
        "rows": len(runs.table),
        "rejected": dict(runs.table.rejected.most_common()),
        "seeds": seeds,
        "folds": runs.folds,
        "quick": quick,
        "sample": sample,
        "trees": {stage: item.num_trees for stage, item in runs.settings.items()},
    }
