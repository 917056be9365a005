"""T6: how much worse predictions of unseen runs get when a group of features is permuted among them.

The analytical seconds stay: what is measured is what the trees draw from each group.

Reference: Breiman, Random Forests, Machine Learning 45, 2001; groups because features of one kind carry
the same information.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from precision_time.io import packaged_toml
from precision_time.learn.metrics import mape
from precision_time.learn.predictor import Predictor
from precision_time.learn.table import JobTable
from precision_time.render.document import Section
from precision_time.render.table import CellValue, Table

from ..contract import Floats, Ints
from .cross_validation import Runs
from .metrics import over_seeds

GROUPS: Mapping[str, tuple[str, ...]] = {
    group: tuple(starts)
    for group, starts in packaged_toml(__package__, "data/feature_groups.toml")["groups"].items()
}
"""Group to the beginnings of its features' names; a feature belongs to the first group that fits."""
_REST = "others"
_REPEATS = 3
_MOST_ROWS = 4000
_PROTOCOLS = ("configuration", "model")


def grouped_features(names: Sequence[str]) -> dict[str, list[int]]:
    """Columns of each group; features of none are in `others`."""
    groups: dict[str, list[int]] = {}
    for index, name in enumerate(names):
        group = next((g for g, starts in GROUPS.items() if name.startswith(starts)), _REST)
        groups.setdefault(group, []).append(index)
    return groups


def importance_section(runs: Runs, seeds: Sequence[int]) -> Section:
    """T6 on the first fold of two protocols."""
    gains = {protocol: [_gains(runs, protocol, seed) for seed in seeds] for protocol in _PROTOCOLS}
    names = list(gains[_PROTOCOLS[0]][0])
    figures = {
        f"T6.{protocol}.{name}": over_seeds([gain[name] for gain in found])
        for protocol, found in gains.items()
        for name in names
    }
    order = sorted(names, key=lambda name: -figures[f"T6.{_PROTOCOLS[0]}.{name}"].value)
    sizes = {name: len(columns) for name, columns in grouped_features(runs.table.jobs.names).items()}
    rows: list[tuple[CellValue, ...]] = [
        (name, sizes[name], *(f"{figures[f'T6.{protocol}.{name}'].value:+.2f}" for protocol in _PROTOCOLS))
        for name in order
    ]
    return Section(
        key="T6",
        title="Feature importance",
        headline=f"Unseen configurations: the trees draw most from {order[0]} and {order[1]}.",
        tables=(
            Table(
                title="Points of MAPE lost when a group of features is permuted",
                columns=("features", ">columns", *(f">unseen {protocol}s" for protocol in _PROTOCOLS)),
                rows=tuple(rows),
                note="First fold of each protocol; the analytical seconds are not permuted.",
            ),
        ),
        figures=figures,
    )


def _gains(runs: Runs, protocol: str, seed: int) -> dict[str, float]:
    fitted, rows = runs.fitted(protocol, seed)
    draw = np.random.default_rng(seed)
    if len(rows) > _MOST_ROWS:
        rows = np.sort(draw.choice(rows, size=_MOST_ROWS, replace=False))
    jobs = runs.table.jobs.take(rows)
    runs.progress(f"importance, {protocol}")
    return points_lost(
        fitted.predictor, jobs, runs.table.measured_s[rows], grouped_features(jobs.names), seed=seed
    )


def points_lost(
    predictor: Predictor,
    jobs: JobTable,
    measured_s: Floats,
    columns: Mapping[str, Sequence[int]],
    *,
    seed: int,
) -> dict[str, float]:
    """Points of MAPE lost when columns are permuted among the jobs, mean over three draws.

    Args:
        predictor: Fitted on other jobs.
        jobs: n jobs.
        measured_s: Their step times, shape (n,).
        columns: Places of the features that are permuted together, by name.
        seed: Of the draws.
    """
    draw = np.random.default_rng(seed)
    base = _error(predictor, jobs, measured_s)
    return {
        name: float(
            np.mean(
                [
                    _error(predictor, _permuted(jobs, places, draw.permutation(len(measured_s))), measured_s)
                    - base
                    for _ in range(_REPEATS)
                ]
            )
        )
        for name, places in columns.items()
    }


def _permuted(jobs: JobTable, columns: Sequence[int], order: Ints) -> JobTable:
    features = jobs.features.copy()
    features[:, columns] = jobs.features[order][:, columns]
    return replace(jobs.alone(), features=features)


def _error(predictor: Predictor, jobs: JobTable, measured_s: Floats) -> float:
    return mape(measured_s, predictor.times(jobs).step_time_s) or 0.0
