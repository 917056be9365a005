"""Every prediction of the runs of one source: cost model, trees fitted without the source, shipped folds."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import load_corpus
from precision_time.io import cache_folder
from precision_time.learn.artifact import shipped_predictor
from precision_time.learn.boosting import DEFAULT_SETTINGS
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.predictor import Predictor
from precision_time_papers.evaluation.pricing import priced_corpus
from precision_time_papers.precision_aware import fit_to

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeldOutSource:
    """Runs of one source, shape (n,) each; NaN: no prediction."""

    name: str
    rows: Sequence[Measurement]
    measured_s: Floats
    analytical_s: Floats
    held_out_s: Floats
    """Corrected by trees that have seen no run of the source."""
    folds_s: Floats
    """From the folds by configuration of the shipped predictor."""
    fitted: Predictor
    """The trees fitted without the source."""


def progress(text: str) -> None:
    """Show what is being done."""
    print(text, file=sys.stderr, flush=True)


def corpus_table() -> MeasuredTable:
    """The corpus priced, or as it was priced before by a script or `precision-time papers report`."""
    usable = [row for row in load_corpus() if row.usable]
    return priced_corpus(usable, progress=progress, folder=cache_folder()).table


def hold_out(
    table: MeasuredTable,
    name: str,
    source_of: Callable[[Measurement], str],
    *,
    chosen: NDArray[np.bool_] | None = None,
) -> HeldOutSource:
    """Fit without a source and predict its runs.

    Args:
        table: The corpus.
        name: A value of `source_of`.
        source_of: Source of a run.
        chosen: Rows of interest, shape (n,); all when None.
    """
    progress(f"fitting without {name}")
    own = np.array([source_of(row) == name for row in table.measurements])
    fitted = fit_to(table, table.jobs, np.flatnonzero(~own), trees=DEFAULT_SETTINGS, seed=0)
    rows = np.flatnonzero(own if chosen is None else own & chosen)
    runs = tuple(table.measurements[row] for row in rows)
    evidence = shipped_predictor().measurements
    folds = dict(zip(evidence.measurement_ids.tolist(), evidence.predicted_s.tolist(), strict=True))
    return HeldOutSource(
        name=name,
        rows=runs,
        measured_s=table.measured_s[rows],
        analytical_s=table.jobs.analytical_s[rows],
        held_out_s=fitted.times(table.jobs.take(rows)).step_time_s,
        folds_s=np.array([folds.get(row.row_id, np.nan) for row in runs]),
        fitted=fitted,
    )
