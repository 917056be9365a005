"""What the measured runs nearest to an unseen one are worth, and what they say where we miss most."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ...corpus.measurement import Measurement
from ...learn.evidence_space import evidence_keys, nearest
from .contract import Cell, Table
from .protocols import PROTOCOLS
from .runs import Runs
from .scores import errors_percent

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

_PROTOCOL = "configuration"
_BOUNDS = (0.9, 0.7, 0.5, 0.3, 0.0)
"""Least similarity of each class."""
_SHOWN = 3
_WORST = 10
_CHUNK = 500


def evidence_tables(runs: Runs, seed: int) -> tuple[Table, Table]:
    """Error by similarity of the nearest run, and the worst misses beside their nearest runs."""
    rows, similarity = nearest_known(runs, seed)
    predicted_s = runs.ours(_PROTOCOL, seed).step_time_s
    return _by_similarity(runs, predicted_s, rows, similarity), _worst(runs, predicted_s, rows, similarity)


def nearest_known(runs: Runs, seed: int, count: int = _SHOWN) -> tuple[Ints, Floats]:
    """Of every run, the nearest ones that its fold was fitted on and their similarity, shape (n, count) each.

    Similarity is exp(-distance / 2) in the space that `predict` finds its evidence in, 1 for the same job.
    """
    keys = evidence_keys(runs.table.jobs)
    rows = np.zeros((len(keys), count), dtype=np.intp)
    similarity = np.zeros((len(keys), count))
    for fold in PROTOCOLS[_PROTOCOL].split(runs.table.measurements, seed, runs.folds):
        known = keys[fold.inside]
        squares = np.square(known).sum(axis=1)
        for asked in np.array_split(fold.outside, max(len(fold.outside) // _CHUNK, 1)):
            found, similarity[asked] = nearest(known, squares, keys[asked], count)
            rows[asked] = fold.inside[found]
    return rows, similarity


def _by_similarity(runs: Runs, predicted_s: Floats, rows: Ints, similarity: Floats) -> Table:
    measured_s, analytical_s = runs.table.measured_s, runs.table.jobs.analytical_s
    ours = errors_percent(measured_s, predicted_s)
    transferred = analytical_s * measured_s[rows[:, 0]] / analytical_s[rows[:, 0]]
    alone, nearest = errors_percent(measured_s, analytical_s), errors_percent(measured_s, transferred)
    lines: list[tuple[Cell, ...]] = []
    above = np.inf
    for least in _BOUNDS:
        mask = (similarity[:, 0] >= least) & (similarity[:, 0] < above)
        title = f"{least:g} and more" if above == np.inf else f"{least:g} to {above:g}"
        above = least
        if mask.any():
            scores = (float(errors[mask].mean()) for errors in (ours, nearest, alone))
            lines.append((title, int(mask.sum()), *scores, float(np.median(ours[mask]))))
    return Table(
        title="Unseen configurations by the similarity of the nearest measured run",
        columns=(
            "similarity",
            ">rows",
            ">ours, MAPE %",
            ">nearest run's factor",
            ">formulas",
            ">ours, median %",
        ),
        rows=tuple(lines),
        note="The nearest run's factor: the formulas times measured / formulas of that run.",
    )


def _worst(runs: Runs, predicted_s: Floats, rows: Ints, similarity: Floats) -> Table:
    table = runs.table
    errors = errors_percent(table.measured_s, predicted_s)
    lines: list[tuple[Cell, ...]] = []
    for row in _one_per_pair(table.measurements, np.argsort(-errors)):
        shown = (
            f"{similarity[row, place]:.2f} {_label(table.measurements[like])}: "
            f"{table.measured_s[like] * 1e3:.4g}, {predicted_s[like] * 1e3:.4g}"
            for place, like in enumerate(rows[row])
        )
        seconds = (f"{value * 1e3:.4g}" for value in (table.measured_s[row], predicted_s[row]))
        lines.append((_label(table.measurements[row]), *seconds, float(errors[row]), "; ".join(shown)))
    return Table(
        title="Runs missed most, and the measured runs most like them",
        columns=(
            "run",
            ">measured ms",
            ">predicted ms",
            ">error %",
            "nearest: similarity run: measured, predicted",
        ),
        rows=tuple(lines),
        note="One run per model and device. Predictions of the nearest runs are out of fold as well.",
    )


def _one_per_pair(measurements: tuple[Measurement, ...], order: Ints) -> Iterator[int]:
    """The first rows of the order, none of a model and device that came before."""
    seen: set[tuple[str, str]] = set()
    for row in order.tolist():
        pair = (measurements[row].model, measurements[row].device)
        if pair not in seen:
            seen.add(pair)
            yield row
        if len(seen) == _WORST:
            return


def _label(item: Measurement) -> str:
    batch = "" if item.global_batch_size is None else f" batch {item.global_batch_size:g}"
    return f"{item.model} {item.precision}{batch} on {item.num_devices} {item.device} ({item.source})"
