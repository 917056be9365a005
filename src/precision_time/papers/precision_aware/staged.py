"""The stages fitted on any view of the jobs: what ours and the blind ones have in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from ...corpus.splits import configuration_groups
from ...learn.stages import BoosterSettings, StagedCorrection, fit_stages
from ...learn.table import JobTable, MeasuredTable
from ...learn.training import row_weights

Ints = NDArray[np.intp]


def fit_staged(
    table: MeasuredTable, jobs: JobTable, rows: Ints, *, settings: Mapping[str, BoosterSettings], seed: int
) -> StagedCorrection:
    """Fit the stages with `jobs` in the place of the table's own.

    Args:
        table: Measurements.
        jobs: How the jobs of all its rows look to the predictor.
        rows: Rows to learn from.
        settings: LightGBM settings per stage.
        seed: Of boosters and inner folds.
    """
    return fit_stages(
        replace(table, jobs=jobs),
        rows,
        row_weights(table),
        configuration_groups(table.measurements),
        settings=settings,
        seed=seed,
    )
