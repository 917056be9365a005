"""Plots of a study as SVG text: predicted against measured, and time against workers. Needs matplotlib."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...plotting import require_matplotlib
from .study import Study

_BLUE, _ORANGE, _GREY = "#4e79a7", "#f28e2b", "#888888"
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "precision-time", "font.size": 9,
             "axes.spines.top": False, "axes.spines.right": False}  # fmt: skip
_MOST_LINES = 4
_POINTS_OF_A_LINE = 60


def plots(study: Study) -> Mapping[str, str]:
    """File stem to SVG.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    require_matplotlib()
    made = {"predicted-against-measured": predicted_against_measured(study)}
    along = study.plan.roles.get("workers") or study.plan.columns[0]
    made[f"time-against-{along.replace('_', '-')}"] = time_against(study, along)
    return made


def predicted_against_measured(study: Study) -> str:
    """Points held out, on logarithmic axes, with the diagonal and the lines of 15 %."""
    figure, axes = _figure(4.2, 4.2)
    measured = np.concatenate([study.points.measured[item.rows] for item in study.asked])
    predicted = np.concatenate([item.best_s for item in study.asked])
    ends = np.array([min(measured.min(), predicted.min()), max(measured.max(), predicted.max())])
    axes.plot(ends, ends, color=_GREY, linewidth=0.8)
    for factor in (0.85, 1.15):
        axes.plot(ends, ends * factor, color=_GREY, linewidth=0.6, linestyle=":")
    axes.scatter(measured, predicted, s=9, color=_BLUE, alpha=0.6, linewidths=0)
    axes.set(xscale="log", yscale="log", xlabel=f"measured {study.points.target}", ylabel="predicted")
    axes.set_title(f"{len(measured)} points held out by {study.plan.validation.method}")
    return _svg(figure)


def time_against(study: Study, column: str) -> str:
    """Measured times along a column, and the kept model between and beyond them.

    The other columns stand at the values of the measured configurations with most points along the column.
    """
    figure, axes = _figure(5.2, 3.6)
    points = study.points
    others = [name for name in points.columns if name != column and name in _plain(study)]
    keys = [tuple(points.columns[name][row] for name in others) for row in range(len(points))]
    counts = {
        key: len({points.columns[column][r] for r, k in enumerate(keys) if k == key}) for key in set(keys)
    }
    shown = sorted(counts, key=lambda key: (-counts[key], str(key)))[:_MOST_LINES]
    for key, color in zip(shown, (_BLUE, _ORANGE, "#59a14f", "#b07aa1"), strict=False):
        rows = np.array([row for row, other in enumerate(keys) if other == key])
        label = ", ".join(f"{name} {value:g}" if not isinstance(value, str) else value
                          for name, value in zip(others, key, strict=True))  # fmt: skip
        along = points.columns[column][rows].astype(np.float64)
        axes.scatter(along, points.measured[rows], s=12, color=color, label=label or None)
        if study.model.grey is None:
            grid = np.linspace(along.min(), along.max() * 1.25, _POINTS_OF_A_LINE)
            fixed = {name: np.full(len(grid), value) for name, value in zip(others, key, strict=True)}
            axes.plot(grid, study.model.predict_columns({**fixed, column: grid}), color=color, linewidth=0.9)
        else:
            order = np.argsort(along)
            asked = {name: values[rows][order] for name, values in points.columns.items()}
            axes.plot(along[order], study.model.predict_columns(asked), color=color, linewidth=0.9)
    axes.set(xlabel=column, ylabel=points.target, ylim=(0, None))
    axes.legend(fontsize=7, frameon=False)
    return _svg(figure)


def _plain(study: Study) -> set[str]:
    return {*study.plan.columns, *study.plan.categories}


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_SETTINGS):
        figure = Figure(figsize=(width, height), layout="constrained")
        return figure, figure.subplots()


def _svg(figure: Any) -> str:
    from matplotlib import rc_context

    page = io.StringIO()
    with rc_context(_SETTINGS):
        figure.savefig(page, format="svg", metadata={"Date": None})
    return page.getvalue()
