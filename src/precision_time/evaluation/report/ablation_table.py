"""T4: ours without each of its parts, on the same folds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from .ablations import ABLATIONS
from .contract import Cell, Figure, Section, Table
from .runs import Runs
from .scores import mape, over_seeds

Floats = NDArray[np.float64]

PROTOCOLS = ("configuration", "precision")
STAGES = {
    "detail": ("minus detail stage", "stage 4 is left out of the answer: no deep trees near measured runs"),
    "overlap": ("minus overlap and detail stages", "stages 3 and 4 are left out of the answer"),
}
"""Upper stages that a predictor can answer without, with their titles and what is left out."""
FOLDS = 2
"""Of this table: what a part brings shows on half of the corpus as well, at two fifths of the time."""


def ablations_section(runs: Runs, seeds: Sequence[int]) -> Section:
    """T4 under two protocols, with the errors of runs in reduced precision apart."""
    narrow = np.array([item.precision not in ("fp64", "fp32", "tf32") for item in runs.table.measurements])
    several = np.array([item.num_devices > 1 for item in runs.table.measurements])
    everything = np.ones(len(narrow), dtype=bool)
    columns: list[tuple[str, str, NDArray[np.bool_]]] = [
        ("configuration", "unseen configurations", everything),
        ("configuration", "reduced precision", narrow),
        ("configuration", "several devices", several),
        ("precision", "unseen precisions", everything),
    ]
    predictors: list[tuple[str, str, str, Callable[[str, int], Floats]]] = [
        ("full", "ours", "nothing left out", lambda p, s: runs.ours(p, s, folds=FOLDS).step_time_s),
        *((name, item.title, item.explains, _without(runs, name)) for name, item in ABLATIONS.items()),
        *(
            (f"{name}-stage", title, explains, _without_stage(runs, name))
            for name, (title, explains) in STAGES.items()
        ),
        ("stages", "minus all stages", "the formulas alone", lambda p, s: _formulas(runs, p, s)),
    ]
    rows: list[tuple[Cell, ...]] = []
    figures: dict[str, Figure] = {}
    for name, title, explains, predict in predictors:
        scores: list[float | None] = []
        for protocol, _, mask in columns:
            each = [mape(runs.table.measured_s[mask], predict(protocol, seed)[mask]) for seed in seeds]
            known = [value for value in each if value is not None]
            scores.append(over_seeds(known).value if known else None)
            if mask is everything and known:
                figures[f"T4.{protocol}.{name}.mape_percent"] = over_seeds(known)
        rows.append((title, *scores, explains))
    return Section(
        key="T4",
        title="Ablations",
        headline=_headline(figures),
        tables=(
            Table(
                title=f"MAPE [%] without each part, {FOLDS} folds",
                columns=("predictor", *(f">{title}" for _, title, _ in columns), "what is left out"),
                rows=tuple(rows),
                note="Fitted anew for every row, on the same folds. Fewer folds than T5: compare rows only.",
            ),
        ),
        figures=figures,
    )


def _without(runs: Runs, name: str) -> Callable[[str, int], Floats]:
    return lambda protocol, seed: runs.ablated(name, protocol, seed, folds=FOLDS)


def _without_stage(runs: Runs, name: str) -> Callable[[str, int], Floats]:
    return lambda protocol, seed: runs.without_stage(name, protocol, seed, folds=FOLDS)


def _formulas(runs: Runs, protocol: str, seed: int) -> Floats:
    """The cost model, on the rows that the protocol asks."""
    asked = ~np.isnan(runs.ours(protocol, seed, folds=FOLDS).step_time_s)
    return np.where(asked, runs.table.jobs.analytical_s, np.nan)


def _headline(figures: dict[str, Figure]) -> str:
    full = figures.get("T4.precision.full.mape_percent")
    losses = {
        name.split(".")[2]: figure.value - full.value
        for name, figure in figures.items()
        if full is not None and name.startswith("T4.precision.") and not name.startswith("T4.precision.full")
    }
    if full is None or not losses:
        return "No row could be asked."
    titles = {name: item.title for name, item in ABLATIONS.items()}
    titles |= {f"{name}-stage": title for name, (title, _) in STAGES.items()}
    titles |= {"stages": "minus all stages"}
    worst = sorted(losses, key=lambda name: -losses[name])[:3]
    return (
        f"On unseen precisions ours errs by {full.value:.1f} %; what costs most: "
        + ", ".join(f"{titles[name]} ({losses[name]:+.1f} points)" for name in worst)
        + "."
    )
