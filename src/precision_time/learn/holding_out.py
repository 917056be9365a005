"""Fit the stages on some rows, ask them of others: one fold, as a task that any process can take on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..executor import Executor
from .stages import BoosterSettings, ByStage, fit_stages
from .table import MeasuredTable

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]


@dataclass(frozen=True, kw_only=True, slots=True)
class Fold:
    """Rows to fit on and rows to predict; rows in neither are left out on purpose."""

    inside: Ints
    outside: Ints


@dataclass(frozen=True, kw_only=True, slots=True)
class FoldTask:
    """Everything that one fold needs."""

    table: MeasuredTable
    """Without its measurements, which nothing here reads."""
    fold: Fold
    weights: Floats
    """Evidence of each row of the table, shape (n,)."""
    groups: NDArray[Any]
    """Group of each row: rows of one group stay together in the inner folds."""
    settings: Mapping[str, BoosterSettings]
    seed: int
    trusting: bool
    """Take the correction in full, however far jobs lie from measured runs (`StagedCorrection.trusting`)."""


def held_out_by_stage(
    table: MeasuredTable,
    folds: Sequence[Fold],
    *,
    weights: Floats,
    groups: NDArray[Any],
    settings: Mapping[str, BoosterSettings],
    seed: int,
    trusting: bool = False,
    spread: Executor = map,
) -> Iterable[ByStage]:
    """What the stages say of the rows outside each fold, in the order of the folds.

    Args:
        table: Measured jobs.
        folds: What is fitted on and asked.
        weights: Evidence of each row of the table, shape (n,).
        groups: Group of each row of the table.
        settings: LightGBM settings per stage.
        seed: Of boosters and inner folds.
        trusting: See FoldTask.
        spread: What runs the folds: `map`, a pool of processes, a cluster. The answers are the same.
    """
    bare = replace(table, measurements=())
    tasks = (
        FoldTask(
            table=bare,
            fold=fold,
            weights=weights,
            groups=groups,
            settings=settings,
            seed=seed,
            trusting=trusting,
        )
        for fold in folds
    )
    return spread(_answer, tasks)


def _answer(task: FoldTask) -> ByStage:
    fitted = fit_stages(
        task.table, task.fold.inside, task.weights, task.groups, settings=task.settings, seed=task.seed
    )
    asked = task.table.jobs.take(task.fold.outside)
    return (fitted.trusting(asked) if task.trusting else fitted).by_stage(asked)
