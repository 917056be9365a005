"""Out-of-fold predictions of the stages: each fold is a task that any process can run."""

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

    train: Ints
    test: Ints


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
    no_shrinkage: bool
    """Use the correction in full, however far jobs are from the training set."""


def out_of_fold_by_stage(
    table: MeasuredTable,
    folds: Sequence[Fold],
    *,
    weights: Floats,
    groups: NDArray[Any],
    settings: Mapping[str, BoosterSettings],
    seed: int,
    no_shrinkage: bool = False,
    map_fn: Executor = map,
) -> Iterable[ByStage]:
    """What the stages predict for the test rows of each fold, in the order of the folds.

    Args:
        table: Measured jobs.
        folds: Training and test rows.
        weights: Evidence of each row of the table, shape (n,).
        groups: Group of each row of the table.
        settings: LightGBM settings per stage.
        seed: Of boosters and inner folds.
        no_shrinkage: See FoldTask.
        map_fn: What runs the folds: `map`, a pool of processes, a cluster. The answers are the same.
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
            no_shrinkage=no_shrinkage,
        )
        for fold in folds
    )
    return map_fn(_run_fold, tasks)


def _run_fold(task: FoldTask) -> ByStage:
    fitted = fit_stages(
        task.table, task.fold.train, task.weights, task.groups, settings=task.settings, seed=task.seed
    )
    jobs = task.table.jobs.take(task.fold.test)
    return (fitted.without_shrinkage(jobs) if task.no_shrinkage else fitted).by_stage(jobs)
