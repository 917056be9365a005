"""A study for people and programs: three errors per technique, what was chosen, points held out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .search import mape_percent
from .study import Study

SCORE_COLUMNS = ("technique", ">training %", ">selection %", ">validation %", ">fit s")


def score_rows(study: Study) -> list[tuple[str, ...]]:
    """Cells of the table "technique: training MAPE - selection MAPE - validation MAPE", best first."""
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
    """What the table does not say, a line each."""
    method = study.plan.validation.method
    count = len(study.asked)
    asked = sum(len(item.rows) for item in study.asked)
    yield (
        f"Validated by {method}: {asked} points in {count} split{'s' if count > 1 else ''}, "
        f"{study.validation_mape:.1f} % by the technique that was best in selection"
        + (f", {study.blend_mape:.1f} % by the mean of {study.plan.blend}." if study.plan.blend > 1 else ".")
    )
    for chosen in study.chosen:
        said = ", ".join(f"{_short(name)} {value}" for name, value in chosen.parameters.items())
        yield (
            f"Kept, fitted on all {len(study.points)} points: {chosen.technique.title}"
            + (f" ({said})" if said else "")
            + f"; best of {chosen.candidates} candidates in selection, {chosen.selection_mape:.1f} %."
        )
        if chosen.columns is not None:
            names = [item["features"] for item in study.model.card["techniques"] if item["features"]]
            yield f"Features chosen: {', '.join(names[0])}."
    yield from (f"Note: {note}." for note in study.notes)
    for name, reason in study.left_out.items():
        yield f"Left out {name}: {reason}."


def to_dict(study: Study) -> dict[str, Any]:
    """JSON-ready report: errors, choice, and every point held out with its prediction."""
    points = study.points
    held_out = [
        {
            "line": points.lines[row],
            "split": number,
            "technique": item.best,
            "measured": float(points.measured[row]),
            "predicted": float(best),
            "predicted_by_blend": float(blend),
        }
        for number, item in enumerate(study.asked)
        for row, best, blend in zip(item.rows, item.best_s, item.blend_s, strict=True)
    ]
    return {
        "target": points.target,
        "points": len(points),
        "validation": study.plan.validation.method,
        "validation_mape_percent": study.validation_mape,
        "blend_mape_percent": study.blend_mape,
        "root_mean_square_error": _root_mean_square(study),
        "r_squared": _r_squared(study),
        "fit_time_s": study.fit_time_s,
        "techniques": [
            {
                "technique": score.technique.name,
                "title": score.technique.title,
                "training_mape_percent": score.training_mape,
                "selection_mape_percent": score.selection_mape,
                "validation_mape_percent": score.validation_mape,
                "fit_time_s": score.fit_time_s,
            }
            for score in study.scores
        ],
        "left_out": dict(study.left_out),
        "notes": list(study.notes),
        "chosen": list(study.model.card["techniques"]),
        "held_out": held_out,
    }


def per_value(study: Study, column: str) -> list[tuple[float, int, float]]:
    """Value of a column, points held out there, and their error [%] by the best in selection."""
    rows = np.concatenate([item.rows for item in study.asked])
    predicted = np.concatenate([item.best_s for item in study.asked])
    values = study.points.columns[column][rows].astype(np.float64)
    return [
        (
            float(value),
            int((values == value).sum()),
            mape_percent(study.points.measured[rows[values == value]], predicted[values == value]),
        )
        for value in np.unique(values)
    ]


def _root_mean_square(study: Study) -> float:
    errors = np.concatenate([item.best_s - study.points.measured[item.rows] for item in study.asked])
    return float(np.sqrt(np.mean(np.square(errors))))


def _r_squared(study: Study) -> float | None:
    """1 - squared errors over the variance of the points held out; None where they do not differ."""
    measured = np.concatenate([study.points.measured[item.rows] for item in study.asked])
    predicted = np.concatenate([item.best_s for item in study.asked])
    spread = float(np.square(measured - measured.mean()).sum())
    return 1.0 - float(np.square(predicted - measured).sum()) / spread if spread > 0.0 else None


def _short(name: str) -> str:
    return name.rsplit("__", 1)[-1].replace("_", " ")
