"""A study for people and programs: three errors per technique, what was chosen, test points, plots as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from precision_time.render.picture import drawn, legible_log_ticks

from .features import Column
from .study import Study

SCORE_COLUMNS = ("technique", ">training %", ">selection %", ">validation %", ">fit s")
_BLUE, _ORANGE, _GREY = "#4e79a7", "#f28e2b", "#888888"
_MOST_LINES = 4
_POINTS_OF_A_LINE = 60


def score_rows(study: Study) -> list[tuple[str, ...]]:
    """Cells of the table of SCORE_COLUMNS, best in selection first."""
    return [
        (
            score.technique.name,
            f"{score.training_mape:.1f}",
            f"{score.selection_mape:.1f}",
            f"{score.validation_mape:.1f}",
            f"{score.fit_time_s:.1f}",
        )
        for score in study.scores
    ]


def remarks(study: Study) -> Iterator[str]:
    """What the table does not state, a line each."""
    splits = len(study.test)
    count = sum(len(item.rows) for item in study.test)
    blend = f", {study.blend_mape:.1f} % by the mean of {study.plan.blend}" if study.plan.blend > 1 else ""
    yield (
        f"Validated by {study.plan.validation.method}: {count} points in {splits} "
        f"split{'s' if splits > 1 else ''}, {study.validation_mape:.1f} % by the technique that was best in "
        f"selection{blend}."
    )
    for chosen, card in zip(study.chosen, study.model.card["techniques"], strict=True):
        listed = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in chosen.parameters.items())
        yield (
            f"Kept, fitted on all {len(study.points)} points: {chosen.technique.title}"
            + (f" ({listed})" if listed else "")
            + f"; best of {chosen.candidates} candidates in selection, {chosen.selection_mape:.1f} %."
        )
        if card["features"]:
            yield f"Features chosen: {', '.join(card['features'])}."
    yield from (f"Note: {note}." for note in study.notes)
    for name, reason in study.left_out.items():
        yield f"Left out {name}: {reason}."


def to_dict(study: Study) -> dict[str, Any]:
    """JSON-ready report: errors, choice, and every test point with its prediction."""
    points = study.points
    rows = np.concatenate([item.rows for item in study.test])
    measured, predicted = points.measured[rows], np.concatenate([item.best_s for item in study.test])
    squared_error = float(np.square(predicted - measured).sum())
    deviation = float(np.square(measured - measured.mean()).sum())
    held_out = [
        {
            "line": points.lines[row],
            "split": number,
            "technique": item.best,
            "measured": float(points.measured[row]),
            "predicted": float(best),
            "predicted_by_blend": float(blend),
        }
        for number, item in enumerate(study.test)
        for row, best, blend in zip(item.rows, item.best_s, item.blend_s, strict=True)
    ]
    return {
        "target": points.target,
        "points": len(points),
        "validation": study.plan.validation.method,
        "validation_mape_percent": study.validation_mape,
        "blend_mape_percent": study.blend_mape,
        "root_mean_square_error": float(np.sqrt(squared_error / len(rows))),
        "r_squared": 1.0 - squared_error / deviation if deviation > 0.0 else None,
        "fit_time_s": study.fit_time_s,
        "techniques": [score.to_dict() for score in study.scores],
        "left_out": dict(study.left_out),
        "notes": list(study.notes),
        "chosen": list(study.model.card["techniques"]),
        "held_out": held_out,
    }


def plots(study: Study) -> Mapping[str, str]:
    """File stem to SVG.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    along = study.plan.roles.get("workers") or study.plan.columns[0]
    return {
        "predicted-against-measured": predicted_against_measured(study),
        f"time-against-{along.replace('_', '-')}": time_against(study, along),
    }


def predicted_against_measured(study: Study) -> str:
    """Test points on logarithmic axes, with the diagonal and the lines of 15 %."""

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        measured = np.concatenate([study.points.measured[item.rows] for item in study.test])
        predicted = np.concatenate([item.best_s for item in study.test])
        ends = np.array([min(measured.min(), predicted.min()), max(measured.max(), predicted.max())])
        axes.plot(ends, ends, color=_GREY, linewidth=0.8, label="equal")
        for factor, label in ((0.85, "15 % less or more"), (1.15, None)):
            axes.plot(ends, ends * factor, color=_GREY, linewidth=0.6, linestyle=":", label=label)
        axes.scatter(measured, predicted, s=9, color=_BLUE, alpha=0.6, linewidths=0, label="test points")
        axes.set(xscale="log", yscale="log", xlabel=f"measured {study.points.target}", ylabel="predicted")
        for axis in (axes.xaxis, axes.yaxis):
            legible_log_ticks(axis, float(ends[1] / ends[0]))
        axes.set_title(f"{len(measured)} points held out by {study.plan.validation.method}")
        figure.legend(loc="outside lower center", ncols=3, fontsize=7, frameon=False)

    return drawn(draw, width=4.2, height=4.6).decode("utf-8")


def time_against(study: Study, column: str) -> str:
    """Measured times along a column, and the kept model between and beyond them.

    The other columns have the values of the measured configurations with most points along the column.
    """

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        points, model = study.points, study.model
        others = [name for name in (*study.plan.columns, *study.plan.categories) if name != column]
        keys = [tuple(points.columns[name][row] for name in others) for row in range(len(points))]
        counts = {
            key: len({points.columns[column][r] for r, k in enumerate(keys) if k == key}) for key in set(keys)
        }
        shown = sorted(counts, key=lambda key: (-counts[key], str(key)))[:_MOST_LINES]
        for key, color in zip(shown, (_BLUE, _ORANGE, "#59a14f", "#b07aa1"), strict=False):
            rows = np.array([row for row, other in enumerate(keys) if other == key])
            label = ", ".join(value if isinstance(value, str) else f"{name.replace('_', ' ')} {value:g}"
                              for name, value in zip(others, key, strict=True))  # fmt: skip
            along = points.columns[column][rows].astype(np.float64)
            axes.scatter(along, points.measured[rows], s=12, color=color, label=label or None)
            x = np.sort(along)
            asked = {name: values[rows][np.argsort(along)] for name, values in points.columns.items()}
            if model.grey is None:
                x = np.linspace(along.min(), along.max() * 1.25, _POINTS_OF_A_LINE)
                asked = {name: _constant(values[0], len(x)) for name, values in asked.items()} | {column: x}
            axes.plot(x, model.predict_columns(asked), color=color, linewidth=0.9)
        axes.set(xlabel=column, ylabel=points.target, ylim=(0, None))
        values = points.columns[column].astype(np.float64)
        if np.array_equal(values, values.round()):
            axes.xaxis.get_major_locator().set_params(integer=True)
        figure.legend(
            loc="outside lower center",
            ncols=2,
            fontsize=7,
            frameon=False,
            title="points: measured, lines: kept model",
        )

    return drawn(draw, width=5.2, height=4.2).decode("utf-8")


def _constant(value: Any, count: int) -> Column:
    return np.full(count, value, dtype=object if isinstance(value, str) else np.float64)
