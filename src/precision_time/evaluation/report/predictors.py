"""T3: ours beside what the literature offers, by precision."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...corpus.measurement import Measurement
from ...corpus.splits import model_group
from ...papers.baselines import baselines
from .contract import Cell, Figure, Section, Table
from .cross import PAPER_OURS_PERCENT
from .runs import Runs
from .scores import errors_percent, mape, over_seeds, ranking_tau

Floats = NDArray[np.float64]

PROTOCOLS = ("configuration", "model")
_LEAST_ROWS = 20
_FULL = "ours"


def precision_label(item: Measurement) -> str:
    """Precision with its variant, as T3 lists them."""
    return f"{item.precision} ({item.precision_variant})" if item.precision_variant else item.precision


def predictors_section(runs: Runs, seeds: Sequence[int]) -> Section:
    """T3: errors of rows held out by configuration, and overall by model."""
    titles = {_FULL: "ours"} | {name: item.title for name, item in baselines().items()}
    predicted = {
        protocol: {name: _predictions(runs, name, protocol, seeds) for name in titles}
        for protocol in PROTOCOLS
    }
    by_name = predicted["configuration"]
    overall = {
        protocol: {name: _overall(runs, seconds) for name, seconds in found.items()}
        for protocol, found in predicted.items()
    }
    ours = overall["configuration"][_FULL]
    best = min(
        (name for name in titles if name not in (_FULL, "formulas")),
        key=lambda n: overall["configuration"][n].value,
    )
    return Section(
        key="T3",
        title="Predictors by precision",
        headline=(
            f"Over all precisions, configurations held out: ours {ours.value:.1f} % "
            f"(paper: {PAPER_OURS_PERCENT} %), "
            f"the best of the others ({titles[best]}) {overall['configuration'][best].value:.1f} %."
        ),
        tables=(
            _by(
                runs,
                by_name,
                titles,
                precision_label,
                "precision",
                "Unseen configurations: MAPE [%] by precision and variant",
            ),
            _summary(runs, predicted, titles),
        ),
        figures={
            f"T3.{protocol}.{name}.mape_percent": figure
            for protocol, found in overall.items()
            for name, figure in found.items()
        },
    )


def _predictions(runs: Runs, name: str, protocol: str, seeds: Sequence[int]) -> list[Floats]:
    if name == _FULL:
        return [runs.ours(protocol, seed).step_time_s for seed in seeds]
    return [runs.baseline(name, protocol, seed) for seed in seeds]


def _overall(runs: Runs, predicted: Sequence[Floats]) -> Figure:
    return over_seeds([mape(runs.table.measured_s, seconds) or 0.0 for seconds in predicted])


def _by(
    runs: Runs,
    predicted: Mapping[str, Sequence[Floats]],
    titles: Mapping[str, str],
    label: Callable[[Measurement], str],
    column: str,
    title: str,
) -> Table:
    errors = {
        name: np.mean([errors_percent(runs.table.measured_s, seconds) for seconds in found], axis=0)
        for name, found in predicted.items()
    }
    labels = np.array([label(item) for item in runs.table.measurements])
    kinds, counts = np.unique(labels, return_counts=True)
    parts = {str(kind): labels == kind for kind, n in zip(kinds, counts, strict=True) if n >= _LEAST_ROWS}
    few = np.isin(labels, kinds[counts < _LEAST_ROWS])
    if few.any():
        parts[f"fewer than {_LEAST_ROWS} rows each"] = few
    parts["all"] = np.ones(len(labels), dtype=bool)
    rows: list[tuple[Cell, ...]] = [
        (name, int(mask.sum()), *(float(np.nanmean(errors[key][mask])) for key in titles))
        for name, mask in parts.items()
    ]
    return Table(
        title=title, columns=(column, ">rows", *(f">{text}" for text in titles.values())), rows=tuple(rows)
    )


def _summary(
    runs: Runs, predicted: Mapping[str, Mapping[str, Sequence[Floats]]], titles: Mapping[str, str]
) -> Table:
    measured_s = runs.table.measured_s
    groups = [f"{model_group(item.model)} {item.source}" for item in runs.table.measurements]
    rows: list[tuple[Cell, ...]] = []
    for protocol, found in predicted.items():
        for name, title in titles.items():
            seconds = found[name][0]
            errors = errors_percent(measured_s, seconds)
            asked = ~np.isnan(errors)
            ratio = (seconds / measured_s)[asked]
            rows.append(
                (
                    protocol,
                    title,
                    int(asked.sum()),
                    _overall(runs, found[name]).value,
                    float(np.median(errors[asked])),
                    float(np.percentile(errors[asked], 90)),
                    float(errors[asked].max()),
                    f"{np.median(ratio):.3f}",
                    _rounded(ranking_tau(groups, measured_s, seconds)),
                )
            )
    return Table(
        title="All errors of all predictors",
        columns=(
            "held out by",
            "predictor",
            ">rows",
            ">MAPE %",
            ">median %",
            ">p90 %",
            ">max %",
            ">median ratio",
            ">Kendall tau",
        ),  # fmt: skip
        rows=tuple(rows),
        note="Ratio is predicted / measured. Tau ranks runs of one model and source against each other.",
    )


def _rounded(value: float | None) -> str | None:
    return None if value is None else f"{value:.3f}"
