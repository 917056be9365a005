"""T1 and T2: how far the precision alone moves the step time, and what it costs not to know it.

T1 is of measured runs. In T2, E[p, q] is the mean error, over families that ran at both, of what a predictor
of p says where q ran. The blind floor is the least mean error that any answer without the precision can have
on a family: the one answer c that minimizes mean |c - t_q| / t_q is the median of the times weighted by 1 / t
(papers.md 1.3).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from precision_time.corpus.families import PrecisionFamily
from precision_time.learn.measured import MeasuredTable
from precision_time.learn.metrics import errors_percent
from precision_time.render.document import Metric, Section
from precision_time.render.table import CellValue, Table

from ..contract import Floats
from .cross_validation import Runs
from .metrics import over_seeds

Pair = tuple[str, str]
Cells = dict[Pair, float]

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
PAPER_SPREAD = 2.4
"""arXiv 2604.16145, abstract: training time varies by about 2.4x over the minimum with the precision."""
LEFT_OUT = ("fp64",)
"""Not chosen to save time: shown, and left out of the figure that is compared with the paper's."""
_MOST_ROWS = 25
_SPREAD_TITLE = "Precision spread: what the precision alone does to the step time"
_CROSS_TITLE = "Cross-precision errors and the blind floor"


@dataclass(frozen=True, kw_only=True, slots=True)
class PrecisionSpread:
    """One family with its measured medians."""

    family: PrecisionFamily
    times_s: dict[str, float]

    @property
    def ratio(self) -> float:
        """Slowest over fastest precision."""
        return max(self.times_s.values()) / min(self.times_s.values())


def spreads(
    measured_s: Floats, families: Sequence[PrecisionFamily], *, left_out: Sequence[str] = ()
) -> list[PrecisionSpread]:
    """Families with at least two precisions, the widest first."""
    found = []
    for family in families:
        times = {name: s for name, s in family.median(measured_s).items() if name not in left_out}
        if len(times) > 1:
            found.append(PrecisionSpread(family=family, times_s=times))
    return sorted(found, key=lambda item: -item.ratio)


def spread_section(runs: Runs, seeds: Sequence[int]) -> Section:
    """T1 of measured runs; nothing is predicted."""
    del seeds
    table, families = runs.table, runs.families
    usual = spreads(table.measured_s, families, left_out=LEFT_OUT)
    everything = spreads(table.measured_s, families)
    if not everything:
        return Section(
            key="T1", title=_SPREAD_TITLE, headline="No configuration ran at two precisions.", tables=()
        )
    ratios = np.array([item.ratio for item in usual] or [1.0])
    widest = everything[0].ratio
    headline = (
        f"{len(everything)} measured configurations ran at two or more precisions. "
        f"Max spread {ratios.max():.1f}x (paper: about {PAPER_SPREAD}x), median {np.median(ratios):.2f}x, "
        f"{(ratios >= PAPER_SPREAD).mean():.0%} at or above the paper's; with fp64 up to {widest:.0f}x."
    )
    return Section(
        key="T1",
        title=_SPREAD_TITLE,
        headline=headline,
        tables=(_by_model_and_device(table, usual), _by_pair(everything)),
        figures={
            "T1.max_spread": Metric(value=float(ratios.max())),
            "T1.median_spread": Metric(value=float(np.median(ratios))),
            "T1.configurations": Metric(value=float(len(everything))),
        },
    )


def _by_model_and_device(table: MeasuredTable, found: Sequence[PrecisionSpread]) -> Table:
    """The widest family of each model and device."""
    widest: dict[tuple[str, str, int], PrecisionSpread] = {}
    for item in found:
        run = table.measurements[next(iter(item.family.rows.values()))[0]]
        widest.setdefault((run.model, run.device, run.num_devices), item)
    chosen = list(widest.items())[:_MOST_ROWS]
    precisions = sorted({name for _, item in chosen for name in item.times_s})
    rows: list[tuple[CellValue, ...]] = []
    for (model, device, devices), item in chosen:
        run = table.measurements[next(iter(item.family.rows.values()))[0]]
        batch = None if run.layout is None else run.layout.micro_batch_size
        times = (None if name not in item.times_s else item.times_s[name] * 1e3 for name in precisions)
        rows.append((model, f"{devices} x {device}", batch, *times, f"{item.ratio:.2f}"))
    return Table(
        title=f"Widest spreads by model and cluster ({len(rows)} of {len(widest)}), step times [ms]",
        columns=("model", "cluster", ">batch", *(f">{name}" for name in precisions), ">max/min"),
        rows=tuple(rows),
        note=f"Measured medians of runs equal in all but precision; {', '.join(LEFT_OUT)} left out.",
    )


def _by_pair(found: Sequence[PrecisionSpread]) -> Table:
    """Speed of one precision over another, over all families that ran at both."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for item in found:
        names = sorted(item.times_s)
        for index, slow in enumerate(names):
            for fast in names[index + 1 :]:
                pair = (slow, fast) if item.times_s[slow] >= item.times_s[fast] else (fast, slow)
                ratios.setdefault(pair, []).append(item.times_s[pair[0]] / item.times_s[pair[1]])
    rows: list[tuple[CellValue, ...]] = [
        (slow, fast, len(values), *(f"{value:.2f}" for value in np.percentile(values, (0, 50, 90, 100))))
        for (slow, fast), values in sorted(ratios.items(), key=lambda entry: -len(entry[1]))
    ]
    return Table(
        title="Spread by pair of precisions",
        columns=("slower", "faster", ">configurations", ">least", ">median", ">p90", ">most"),
        rows=tuple(rows),
    )


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
            title=_CROSS_TITLE,
            headline=f"Fewer than {LEAST_FAMILIES} families ran at any two precisions: nothing to compare.",
            tables=(),
        )
    errors = measured_cells(runs.families, runs.table.measured_s)
    measured = {cell: float(np.mean(errors[cell])) for cell in counts}
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
    floor_table, floor_figures = _floor(runs, seeds)
    return Section(
        key="T2",
        title=_CROSS_TITLE,
        headline=_headline(worst, matrices, floor_figures),
        tables=(
            _worst_table(worst, matrices, counts),
            floor_table,
            *(_matrix(title, cells, counts) for title, cells in matrices.items()),
        ),
        figures={
            **floor_figures,
            **{
                f"T2.worst_cell.{name}_percent": Metric(value=cells[worst])
                for name, cells in zip(
                    ("measured", "blind", "ours_same_data", "ours"), matrices.values(), strict=True
                )
                if worst in cells
            },
        },
        plot={"matrices": {title: _grid(cells) for title, cells in matrices.items()}},
    )


def _floor(runs: Runs, seeds: Sequence[int]) -> tuple[Table, dict[str, Metric]]:
    """Over families, each with the same weight; with and without fp64."""
    blind = [runs.predict("blind", "family", seed).step_time_s for seed in seeds]
    ours = [runs.ours("family", seed).step_time_s for seed in seeds]
    rows: list[tuple[CellValue, ...]] = []
    figures: dict[str, Metric] = {}
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
        figures[f"T2.blind_floor{key}_percent"] = Metric(value=floor)
    table = Table(
        title="Blind floor: no answer without the precision can do better, MAPE [%]",
        columns=("families", ">n", ">blind floor", ">its worst family", ">blind predictor", ">ours"),
        rows=tuple(rows),
        note="Families held out with all their precisions; every family has the same weight.",
    )
    return table, figures


def _over_families(pairs: Sequence[tuple[PrecisionFamily, list[str]]], errors: Floats) -> float:
    each = [np.mean([np.nanmean(errors[family.rows[name]]) for name in names]) for family, names in pairs]
    return float(np.nanmean(each))


def _counts(families: Sequence[PrecisionFamily]) -> dict[Pair, int]:
    counts: dict[Pair, int] = {}
    for family in families:
        for p in family.rows:
            for q in family.rows:
                counts[p, q] = counts.get((p, q), 0) + 1
    return {cell: n for cell, n in counts.items() if n >= LEAST_FAMILIES and cell[0] != cell[1]}


def measured_cells(families: Sequence[PrecisionFamily], measured_s: Floats) -> dict[Pair, list[float]]:
    """Errors [%] of the measured time at p, taken for that at q: one per family that ran at both."""
    errors: dict[Pair, list[float]] = defaultdict(list)
    for family in families:
        times = family.median(measured_s)
        for p, q in permutations(times, 2):
            errors[p, q].append(abs(times[p] / times[q] - 1.0) * 100.0)
    return errors


def _fitted_cells(runs: Runs, seeds: Sequence[int], counts: Mapping[Pair, int], *, blind: bool) -> Cells:
    cells: Cells = {}
    for p in sorted({p for p, _ in counts}):
        at_it = np.array([item.precision == p for item in runs.table.measurements])
        talks = (runs.table.jobs.exposed_s > 0.0)[at_it]
        if len(talks) >= _LEAST_TRAINING and min(talks.sum(), (~talks).sum()) >= _LEAST_OF_EACH:
            predicted = [runs.trained_at(p, seed, blind=blind) for seed in seeds]
            own = {cell: n for cell, n in counts.items() if cell[0] == p}
            cells |= _cells_of(predicted, runs, own)
    return cells


def _cells_of(predicted: Sequence[Floats], runs: Runs, counts: Mapping[Pair, int]) -> Cells:
    """Error at q of some predictions, over the families of each cell; seeds are averaged."""
    errors = np.mean([errors_percent(runs.table.measured_s, seconds) for seconds in predicted], axis=0)
    cells: Cells = {}
    for p, q in counts:
        each = [errors[family.rows[q]] for family in runs.families if p in family.rows and q in family.rows]
        tested = [float(values[~np.isnan(values)].mean()) for values in each if (~np.isnan(values)).any()]
        if len(tested) >= LEAST_FAMILIES:
            cells[p, q] = float(np.mean(tested))
    return cells


def _matrix(title: str, cells: Cells, counts: Mapping[Pair, int]) -> Table:
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


def _worst_table(worst: Pair, matrices: Mapping[str, Cells], counts: Mapping[Pair, int]) -> Table:
    rows = [(title, cells.get(worst)) for title, cells in matrices.items()]
    return Table(
        title=f"The blind predictor's worst cell: fitted on {worst[0]}, predicting {worst[1]} "
        f"({counts[worst]} families)",
        columns=("predictor", ">MAPE %"),
        rows=(
            *rows,
            ("paper: precision-blind, at worst", PAPER_WORST_PERCENT),
            ("paper: precision-aware, over all settings", PAPER_OURS_PERCENT),
        ),
    )


def _headline(worst: Pair, matrices: Mapping[str, Cells], floor: Mapping[str, Metric]) -> str:
    measured, blind, same, ours = (cells.get(worst) for cells in matrices.values())
    parts = [f"Fitted on {worst[0]} and predicting {worst[1]}"]
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
    figure = floor.get("T2.blind_floor_percent")
    end = "" if figure is None else f" No blind answer can be below {figure.value:.1f} % on these families."
    return ", ".join(parts) + "." + end
