"""precision-time: formulas and trees, both fitted without the publishers of the rows that are asked."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from precision_time import __version__
from predictors import fitting
from predictors.contract import Answer

NAME, VERSION, LEARNS = "precision-time", __version__, True
VARIANTS = {
    "ours": {"constants": "refitted", "trees": "fitted"},
    "ours, formulas alone": {"constants": "refitted", "trees": "none"},
    "ours, constants that ship": {"constants": "ship", "trees": "fitted"},
}
CANNOT = "nothing of these rows; the width of its intervals was chosen with all sources at hand"
_REFITTED = "refitted"
_pools: dict[str, tuple[frozenset[int], ProcessPoolExecutor]] = {}
"""By kind of constants what a process was fitted to. It reads constants once: refitted ones get another."""


def fit(known: Sequence[Mapping[str, Any]], settings: Mapping[str, str]) -> None:
    """Constants to the known runs, trees to what the formulas then leave."""
    kind, numbers = settings["constants"], frozenset(row["row_id"] for row in known)
    before, pool = _pools.get(kind, (frozenset(), None))
    if before == numbers:
        return
    if pool is not None and kind == _REFITTED:
        pool.shutdown()
    if pool is None or kind == _REFITTED:
        pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    changes = fitting.constants_of(numbers) if kind == _REFITTED else {}
    pool.submit(fitting.learn, numbers, changes).result()
    _pools[kind] = numbers, pool


def predict(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, str]) -> list[Answer]:
    """What each row states as a request, answered by what `fit` left."""
    pool, trees = _pools[settings["constants"]][1], settings["trees"] != "none"
    found = pool.submit(fitting.ask, [row["request"] for row in rows], trees).result()
    return [Answer(seconds=step_s, low_s=low_s, high_s=high_s) for step_s, low_s, high_s in found]
