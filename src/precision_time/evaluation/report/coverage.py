"""Whether the intervals hold as often as they say, on runs held out whole.

Cross-conformal: the intervals of the runs of one fold are calibrated on the out-of-fold residuals of all
other folds' runs, never on their own.

Reference: Vovk, Cross-conformal predictors, 2015; Barber et al., Annals of Statistics 49(1), 2021 (CV+).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ...learn.intervals import IntervalModel, novelty
from ...learn.training import PROTOCOLS, HeldOut, fit_intervals, row_weights
from .priced import take
from .runs import Runs

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)


def inside_intervals(runs: Runs, protocol: str, seed: int, levels: Sequence[float] = LEVELS) -> Floats:
    """Whether each run lies in its interval, shape (levels, n): 1, 0, or NaN where it was not asked.

    Args:
        runs: Held-out predictions.
        protocol: What was held out.
        seed: Of folds and boosters.
        levels: Nominal coverages.
    """
    asked = runs.ours(protocol, seed)
    calibrating = {name: runs.ours(name, seed) for name in PROTOCOLS}
    weights, table = row_weights(runs.table), runs.table
    inside = np.full((len(levels), len(table)), np.nan)
    for fold in sorted(set(asked.folds.tolist()) - {-1}):
        runs.tell(f"intervals, {protocol}, fold {fold + 1}")
        ours, others = np.flatnonzero(asked.folds == fold), np.flatnonzero(asked.folds != fold)
        model = fit_intervals(
            take(table, others),
            {name: _part(held, others) for name, held in calibrating.items()},
            weights[others],
            runs.settings,
            seed,
        )
        ratio = table.measured_s[ours] / asked.step_time_s[ours]
        for index, level in enumerate(levels):
            low, high = _factors(model, runs, ours, asked, level)
            inside[index, ours] = (ratio >= low) & (ratio <= high)
    return inside


def _factors(
    model: IntervalModel, runs: Runs, rows: Ints, held: HeldOut, level: float
) -> tuple[Floats, Floats]:
    return model.factors(runs.table.jobs.features[rows], novelty(held.distance[rows]), level)


def _part(held: HeldOut, rows: Ints) -> HeldOut:
    return HeldOut(step_time_s=held.step_time_s[rows], folds=held.folds[rows], distance=held.distance[rows])
