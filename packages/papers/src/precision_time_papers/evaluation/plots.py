"""Plots of the report as SVG text; needs matplotlib (extra `plots`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from precision_time.render.document import Section
from precision_time.render.picture import require_matplotlib, svg_of

from ..contract import Floats
from .generalization import LEVELS

Plot = tuple[str, str]

_ORANGE, _GREY = "#f28e2b", "#888888"
_ERROR = "MAPE [%]"
_MOST_BARS = 15
_BINS = 80


def section_plots(section: Section) -> Iterator[Plot]:
    """Caption and SVG of every plot of a section.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    require_matplotlib()
    draw = _PLOTS.get(section.key)
    if draw is not None and section.tables:
        yield from draw(section)


def _spread(section: Section) -> Iterator[Plot]:
    table = section.tables[0]
    rows = table.rows[:_MOST_BARS]
    ratios = [float(row[-1]) for row in rows if row[-1] is not None]
    labels = [f"{row[0]} on {row[1]}" for row in rows]
    yield (
        "Slowest over fastest precision of a configuration",
        _bars(labels, {"": ratios}, "max / min step time"),
    )


def _cross(section: Section) -> Iterator[Plot]:
    for title, grid in section.plot.get("matrices", {}).items():
        if len(grid["names"]):
            yield f"E[p, q] in %: {title}", _heat(grid["names"], grid["values"])
    floors = section.tables[1]
    if floors.rows:
        first = floors.rows[0]
        names = ["blind floor", "blind predictor", "ours"]
        yield "Families at every precision unseen", _bars(names, {"": [first[2], first[4], first[5]]}, _ERROR)


def _predictors(section: Section) -> Iterator[Plot]:
    table = section.tables[0]
    last = table.rows[-1]
    names = [name.removeprefix(">") for name in table.columns[2:]]
    yield "All precisions, unseen configurations", _bars(names, {"": list(last[2:])}, _ERROR)
    rows = table.rows[:-1]
    ours, blind = [row[2] for row in rows], [row[3] for row in rows]
    yield "Error by precision", _bars([str(row[0]) for row in rows], {"ours": ours, names[1]: blind}, _ERROR)


def _ablations(section: Section) -> Iterator[Plot]:
    rows = section.tables[0].rows
    names = [str(row[0]) for row in rows]
    series = {
        "unseen configurations": [row[1] for row in rows],
        "unseen precisions": [row[4] for row in rows],
    }
    yield "Without each part", _bars(names, series, _ERROR)


def _generalization(section: Section) -> Iterator[Plot]:
    plot = section.plot
    if "measured_s" in plot:
        yield (
            "Unseen configurations: predicted against measured",
            _against(plot["measured_s"], plot["predicted_s"]),
        )
    if plot.get("curve"):
        yield "Calibration of the intervals", _calibration(plot["curve"])
    summary = section.tables[0]
    rows = [row for row in summary.rows if row[1] is not None]
    yield "Error by protocol", _bars([str(row[0]) for row in rows], {"": [row[2] for row in rows]}, _ERROR)
    by_precision = section.tables[1]
    names = [str(row[0]) for row in by_precision.rows]
    series = {
        by_precision.columns[place].removeprefix(">"): [row[place] for row in by_precision.rows]
        for place in range(3, min(6, len(by_precision.columns)))
    }
    yield "Error by precision", _bars(names, series, _ERROR)


def _importance(section: Section) -> Iterator[Plot]:
    rows = section.tables[0].rows
    values = [float(row[2]) for row in rows if row[2] is not None]
    yield "Unseen configurations", _bars([str(row[0]) for row in rows], {"": values}, "points of MAPE lost")


_PLOTS: Mapping[str, Callable[[Section], Iterator[Plot]]] = {
    "T1": _spread,
    "T2": _cross,
    "T3": _predictors,
    "T4": _ablations,
    "T5": _generalization,
    "T6": _importance,
}


def _bars(names: list[str], series: Mapping[str, list[Any]], label: str) -> str:
    """Horizontal bars by name; the values are written next to those of a single series."""

    def draw(axes: Any) -> None:
        places, height = np.arange(len(names))[::-1], 0.8 / len(series)
        for index, (title, values) in enumerate(series.items()):
            numbers = [np.nan if value is None else float(value) for value in values]
            axes.barh(places + 0.4 - height * (index + 0.5), numbers, height, label=title)
            for place, value in zip(places, numbers, strict=True):
                if len(series) == 1 and np.isfinite(value):
                    axes.annotate(f" {value:.1f}", (value, place), va="center", fontsize=8)
        axes.set_yticks(places, names)
        axes.set_xlabel(label)
        if len(series) > 1:
            legend_below(axes)

    return svg_on_axes(draw, height=1.0 + 0.3 * len(names))


def _heat(names: list[str], values: Floats) -> str:
    def draw(axes: Any) -> None:
        shown = np.ma.masked_invalid(np.log10(np.maximum(values, 1.0)))
        axes.imshow(shown, cmap="YlOrRd", vmin=0.0, vmax=3.0)
        places = np.arange(len(names))
        axes.set_xticks(places, names, rotation=45, ha="right")
        axes.set_yticks(places, names)
        axes.set_xlabel("predicted at q")
        axes.set_ylabel("known at p")
        for row, column in zip(*np.nonzero(np.isfinite(values)), strict=True):
            value = values[row, column]
            color = "white" if value > 100.0 else "black"
            axes.text(column, row, f"{value:.0f}", ha="center", va="center", fontsize=7, color=color)

    return svg_on_axes(draw, height=1.2 + 0.4 * len(names), width=1.6 + 0.55 * len(names))


def _against(measured_s: Floats, predicted_s: Floats) -> str:
    def draw(axes: Any) -> None:
        tested = ~np.isnan(predicted_s)
        x, y = np.log10(measured_s[tested]), np.log10(predicted_s[tested])
        low, high = float(min(x.min(), y.min())), float(max(x.max(), y.max()))
        counts, _, _ = np.histogram2d(x, y, bins=_BINS, range=[[low, high], [low, high]])
        edges = 10.0 ** np.linspace(low, high, _BINS + 1)
        shown = np.ma.masked_equal(counts.T, 0.0)
        mesh = axes.pcolormesh(edges, edges, np.ma.log10(shown), cmap="viridis", rasterized=True)
        axes.plot(edges[[0, -1]], edges[[0, -1]], color=_ORANGE, linewidth=1, label="equal")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("measured step time [s]")
        axes.set_ylabel("predicted [s]")
        axes.figure.colorbar(mesh, ax=axes, label="log10 of runs")
        legend_below(axes)

    return svg_on_axes(draw, height=4.2, width=5.2)


def _calibration(curve: Mapping[str, Floats]) -> str:
    def draw(axes: Any) -> None:
        nominal = np.array(LEVELS) * 100.0
        axes.plot([50, 100], [50, 100], color=_GREY, linewidth=1, linestyle="--", label="as stated")
        for protocol, covered in curve.items():
            axes.plot(nominal, covered, marker="o", markersize=3, label=f"unseen {protocol}s")
        axes.set_xlabel("nominal coverage [%]")
        axes.set_ylabel("runs inside [%]")
        legend_below(axes, columns=2)

    return svg_on_axes(draw, height=3.6, width=4.2)


def legend_below(axes: Any, columns: int = 3) -> None:
    """The legend outside the axes, where no data is."""
    axes.figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=8)


def svg_on_axes(draw: Callable[[Any], None], *, height: float, width: float = 6.0) -> str:
    """One drawing on one pair of axes as an `<svg>` element [inches]."""
    return svg_of(lambda figure: draw(figure.add_subplot()), height=height, width=width)
