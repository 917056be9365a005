"""T2: what it costs not to know the precision.

E[p, q] is the mean error, over families that ran at both, of what a predictor of p says where q ran.
The blind floor is the least mean error that any answer without the precision can have on a family: the one
answer c that minimises mean |c - t_q| / t_q is the median of the times weighted by 1 / t (papers.md 1.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .contract import Cell, Figure, Section, Table
from .families import Family
from .runs import Runs
from .scores import errors_percent, over_seeds
from .spread import LEFT_OUT

Floats = NDArray[np.float64]
Cells = dict[tuple[str, str], float]

PAPER_WORST_PERCENT = 147.85
"""arXiv 2604.16145, abstract: error of predictions that ignore the precision, at worst."""
PAPER_OURS_PERCENT = 9.8
"""The same: error of the precision-aware predictor over its precision settings."""
LEAST_FAMILIES = 5
"""A cell over fewer families is not printed."""
_LEAST_TRAINING = 100
"""Runs at a precision that a predictor of it is fitted on."""
_LEAST_OF_EACH = 20
"""Of these, runs with and without communication: there are stages for both."""


def blind_floor(times_s: Sequence[float]) -> tuple[float, float]:
    """Best answer without the precision [s], and its mean error.

    >>> answer, error = blind_floor([1.0, 2.4])
    >>> answer, round(error, 3)
    (1.0, 0.292)
    """
    times = np.sort(np.asarray(times_s, dtype=np.float64))
    weights = np.cumsum(1.0 / times)
    answer = float(times[np.searchsorted(weights, weights[-1] / 2.0)])
    return answer, float(np.mean(np.abs(answer / times - 1.0)))


def cross_section(runs: Runs, seeds: Sequence[int]) -> Section:
    """T2 with all its predictors."""
    counts = _counts(runs.families)
    if not counts:
        return Section(
            key="T2",
            title=_TITLE,
            headline=f"Fewer than {LEAST_FAMILIES} families ran at any two precisions: nothing to compare.",
            tables=(),
        )
    measured = _measured_cells(runs, counts)
    fitted = {kind: _fitted_cells(runs, seeds, counts, blind=kind == "blind") for kind in ("blind", "ours")}
    everything = _cells_of([runs.ours("family", seed).step_time_s for seed in seeds], runs, counts)
    matrices = {
        "measured time at p, taken for q": measured,
        "blind predictor, fitted on p": fitted["blind"],
        "ours, fitted on p": fitted["ours"],
        "ours, fitted on all precisions": everything,
    }
    usual = {cell: error for cell, error in fitted["blind"].items() if not set(cell) & set(LEFT_OUT)}
    worst = max(
        usual or fitted["blind"] or measured, key=lambda cell: (usual or fitted["blind"] or measured)[cell]
    )
    floor = _floor(runs, seeds)
    return Section(
        key="T2",
        title=_TITLE,
        headline=_headline(worst, matrices, floor),
        tables=(
            _worst_table(worst, matrices, counts),
            floor.table,
            *(_matrix(title, cells, counts) for title, cells in matrices.items()),
        ),
        figures={
            **floor.figures,
            **{
                f"T2.worst_cell.{name}_percent": Figure(value=cells[worst], spread=None)
                for name, cells in zip(
                    ("measured", "blind", "ours_same_data", "ours"), matrices.values(), strict=True
                )
                if worst in cells
            },
        },
        plot={"matrices": {title: _grid(cells) for title, cells in matrices.items()}},
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Floor:
    """Blind floor, the blind predictor and ours on the same runs."""

    table: Table
    figures: Mapping[str, Figure]


def _floor(runs: Runs, seeds: Sequence[int]) -> _Floor:
    """Over families, every one counting alike; with and without fp64."""
    blind = [runs.baseline("blind", "family", seed) for seed in seeds]
    ours = [runs.ours("family", seed).step_time_s for seed in seeds]
    rows: list[tuple[Cell, ...]] = []
    figures: dict[str, Figure] = {}
    for label, left_out, key in (("all precisions", (), ""), ("without fp64", LEFT_OUT, "_without_fp64")):
        chosen = [[name for name in family.rows if name not in left_out] for family in runs.families]
        pairs = [
            (family, names) for family, names in zip(runs.families, chosen, strict=True) if len(names) > 1
        ]
        if not pairs:
            continue
        measured_s = runs.table.measured_s
        floors = [
            blind_floor([family.median(measured_s)[name] for name in names])[1] * 100.0
            for family, names in pairs
        ]
        floor = float(np.mean(floors))
        scores = {
            name: over_seeds([_over_families(pairs, errors_percent(measured_s, s)) for s in predicted])
            for name, predicted in (("blind", blind), ("ours", ours))
        }
        rows.append(
            (label, len(pairs), floor, float(max(floors)), scores["blind"].value, scores["ours"].value)
        )
        figures |= {f"T2.{name}{key}.mape_percent": score for name, score in scores.items()}
        figures[f"T2.blind_floor{key}_percent"] = Figure(value=floor, spread=None)
    table = Table(
        title="Blind floor: no answer without the precision can do better, MAPE [%]",
        columns=("families", ">n", ">blind floor", ">its worst family", ">blind predictor", ">ours"),
        rows=tuple(rows),
        note="Families held out with all their precisions; every family counts alike.",
    )
    return _Floor(table=table, figures=figures)


def _over_families(pairs: Sequence[tuple[Family, list[str]]], errors: Floats) -> float:
    each = [np.mean([np.nanmean(errors[family.rows[name]]) for name in names]) for family, names in pairs]
    return float(np.nanmean(each))


def _counts(families: Sequence[Family]) -> dict[tuple[str, str], int]:
    counts: dict[tuple[str, str], int] = {}
    for family in families:
        for p in family.rows:
            for q in family.rows:
                counts[p, q] = counts.get((p, q), 0) + 1
    return {cell: n for cell, n in counts.items() if n >= LEAST_FAMILIES and cell[0] != cell[1]}


def _measured_cells(runs: Runs, counts: Mapping[tuple[str, str], int]) -> Cells:
    errors: dict[tuple[str, str], list[float]] = {cell: [] for cell in counts}
    for family in runs.families:
        times = family.median(runs.table.measured_s)
        for (p, q), found in errors.items():
            if p in times and q in times:
                found.append(abs(times[p] / times[q] - 1.0) * 100.0)
    return {cell: float(np.mean(found)) for cell, found in errors.items()}


def _fitted_cells(
    runs: Runs, seeds: Sequence[int], counts: Mapping[tuple[str, str], int], *, blind: bool
) -> Cells:
    cells: Cells = {}
    for p in sorted({p for p, _ in counts}):
        at_it = np.array([item.precision == p for item in runs.table.measurements])
        talks = (runs.table.jobs.exposed_s > 0.0)[at_it]
        if len(talks) >= _LEAST_TRAINING and min(talks.sum(), (~talks).sum()) >= _LEAST_OF_EACH:
            predicted = [runs.trained_at(p, seed, blind=blind) for seed in seeds]
            own = {cell: n for cell, n in counts.items() if cell[0] == p}
            cells |= _cells_of(predicted, runs, own)
    return cells


def _cells_of(predicted: Sequence[Floats], runs: Runs, counts: Mapping[tuple[str, str], int]) -> Cells:
    """Error at q of some predictions, over the families of each cell; seeds are averaged."""
    errors = np.mean([errors_percent(runs.table.measured_s, seconds) for seconds in predicted], axis=0)
    cells: Cells = {}
    for p, q in counts:
        each = [errors[family.rows[q]] for family in runs.families if p in family.rows and q in family.rows]
        asked = [float(values[~np.isnan(values)].mean()) for values in each if (~np.isnan(values)).any()]
        if len(asked) >= LEAST_FAMILIES:
            cells[p, q] = float(np.mean(asked))
    return cells


def _matrix(title: str, cells: Cells, counts: Mapping[tuple[str, str], int]) -> Table:
    names = sorted({name for cell in counts for name in cell})
    rows = [(p, *(cells.get((p, q)) for q in names)) for p in names if any((p, q) in cells for q in names)]
    return Table(
        title=f"E[p, q], {title}: MAPE [%], a row for each p",
        columns=("p \\ q", *(f">{name}" for name in names)),
        rows=tuple(rows),
        note=f"Cells of at least {LEAST_FAMILIES} families that ran at both. Fitted only where "
        f"{_LEAST_TRAINING} runs at p are known, {_LEAST_OF_EACH} on one device, as many on several.",
    )


def _grid(cells: Cells) -> dict[str, object]:
    names = sorted({name for cell in cells for name in cell})
    values = np.array([[cells.get((p, q), np.nan) for q in names] for p in names])
    return {"names": names, "values": values}


def _worst_table(
    worst: tuple[str, str], matrices: Mapping[str, Cells], counts: Mapping[tuple[str, str], int]
) -> Table:
    rows = [(title, cells.get(worst)) for title, cells in matrices.items()]
    return Table(
        title=f"The blind predictor's worst cell: fitted on {worst[0]}, asked at {worst[1]} "
        f"({counts[worst]} families)",
        columns=("predictor", ">MAPE %"),
        rows=(
            *rows,
            ("paper: precision-blind, at worst", PAPER_WORST_PERCENT),
            ("paper: precision-aware, over all settings", PAPER_OURS_PERCENT),
        ),
    )


def _headline(worst: tuple[str, str], matrices: Mapping[str, Cells], floor: _Floor) -> str:
    measured, blind, same, ours = (cells.get(worst) for cells in matrices.values())
    parts = [f"Fitted on {worst[0]} and asked at {worst[1]}"]
    if blind is not None:
        parts.append(f"a blind predictor errs by {blind:.1f} % (paper: up to {PAPER_WORST_PERCENT} %)")
    elif measured is not None:
        parts.append(
            f"the measured time itself errs by {measured:.1f} % (paper: up to {PAPER_WORST_PERCENT} %)"
        )
    if same is not None:
        parts.append(f"ours on the same data by {same:.1f} %")
    if ours is not None:
        parts.append(f"ours on all data by {ours:.1f} %")
    figure = floor.figures.get("T2.blind_floor_percent")
    end = "" if figure is None else f" No blind answer can be below {figure.value:.1f} % on these families."
    return ", ".join(parts) + "." + end


_TITLE = "Cross-precision errors and the blind floor"
