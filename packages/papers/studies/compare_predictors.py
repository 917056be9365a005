"""Compare all predictors on the whole corpus and write docs/reference/predictors.md with its plots.

Priced rows and out-of-fold predictions are kept in the user's cache: a second call computes what is new.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from precision_time.render.picture import require_matplotlib
from precision_time_papers.evaluation.comparison import compare, comparison_page
from precision_time_papers.evaluation.comparison_sections import QUESTIONS
from precision_time_papers.evaluation.costs import AnswerCost
from precision_time_papers.evaluation.cross_validation import JOBS
from precision_time_papers.evaluation.metrics import PredictorScore
from precision_time_papers.evaluation.plots import legend_below, svg_on_axes
from repository import write_page

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference"
PICTURES = (
    "![Errors of all predictors](predictors-errors.svg)",
    "![Error against the cost of an answer](predictors-cost.svg)",
)


_QUESTION_COLORS = ("#4477aa", "#ee6677", "#228833")
_HIGHEST_PERCENT = 120.0
_LABEL_WIDTH, _LABEL_HEIGHT = 95.0, 8.0
"""Of the name of a predictor beside its point [points]."""


def comparison_plots(scores: Iterable[PredictorScore], costs: Mapping[str, AnswerCost]) -> dict[str, str]:
    """Name and SVG: errors of all predictors, and error against what an answer costs.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    require_matplotlib()
    own = [item for item in scores if item.population == JOBS]
    found = {(item.question, item.name): item.mape_percent for item in own}
    titles = {item.name: item.title for item in own}
    names = sorted(titles, key=lambda name: -found.get(("architecture", name), 0.0))

    def errors(axes: Any) -> None:
        for place, (question, color) in enumerate(zip(QUESTIONS, _QUESTION_COLORS, strict=True)):
            heights = [min(found.get((question, name), 0.0), _HIGHEST_PERCENT) for name in names]
            middles = [row + 0.26 * (1 - place) for row in range(len(names))]
            axes.barh(middles, heights, height=0.25, color=color, label=QUESTIONS[question].title)
        axes.set_yticks(range(len(names)), [titles[name] for name in names])
        axes.set_xlabel(f"MAPE [%], cut off at {_HIGHEST_PERCENT:.0f}: jobs that Ernest can be fitted to")
        legend_below(axes)

    def against_cost(axes: Any) -> None:
        shown = {
            name: (max(cost.requests_s(1), 1e-5), found["architecture", name])
            for name, cost in costs.items()
            if ("architecture", name) in found
        }
        axes.set_xscale("log")
        axes.set_yscale("log")
        for sampled, label in (
            (False, "no runs of the new job"),
            (True, "sample runs of the new job counted"),
        ):
            points = [point for name, point in shown.items() if bool(costs[name].runs) is sampled]
            if points:
                axes.plot(*zip(*points, strict=True), "o", color=_QUESTION_COLORS[sampled], label=label)
        axes.set_xlabel("seconds until one new job is answered")
        axes.set_ylabel("MAPE on unseen architectures [%]")
        axes.margins(x=0.3)
        axes.autoscale_view()
        _label_apart(axes, {titles[name]: point for name, point in shown.items()})
        legend_below(axes)

    return {
        "predictors-errors": svg_on_axes(errors, height=0.36 * len(names) + 1.0, width=7.5),
        "predictors-cost": svg_on_axes(against_cost, height=4.2, width=7.5),
    }


def _label_apart(axes: Any, points: Mapping[str, tuple[float, float]]) -> None:
    """Names beside points, moved up where they would cover one another."""
    placed: list[tuple[float, float]] = []
    scale = 72.0 / axes.figure.dpi
    for name, point in sorted(points.items(), key=lambda item: item[1][1]):
        x, y = axes.transData.transform(point) * scale
        height = y
        while any(abs(x - other) < _LABEL_WIDTH and abs(height - up) < _LABEL_HEIGHT for other, up in placed):
            height += 1.0
        placed.append((x, height))
        axes.annotate(
            name, point, xytext=(6, height - y - 2.5), textcoords="offset points", fontsize=7,
            arrowprops={"arrowstyle": "-", "color": "#888888", "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2},
        )  # fmt: skip


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=1, help="of folds and fits")
    parser.add_argument("--rows", type=int, help="compare on about so many runs, whole jobs; left out: all")
    options = parser.parse_args()
    shown = ""

    def progress(text: str) -> None:
        nonlocal shown
        # One line per fold, not one per job.
        line = text.split(" | ", maxsplit=1)[0].split(", job ", maxsplit=1)[0]
        if line != shown and not line.startswith(("pricing", "embedding")):
            shown = line
            print(line, file=sys.stderr, flush=True)

    comparison = compare(seeds=options.seeds, sample=options.rows, progress=progress)
    for name, svg in comparison_plots(comparison.scores, comparison.costs).items():
        # matplotlib leaves spaces at line ends, which no tracked text should have.
        lines = [line.rstrip() for line in svg.splitlines()]
        (DOCS / f"{name}.svg").write_text("\n".join(lines) + "\n", encoding="utf-8")
    write_page(DOCS / "predictors.md", comparison_page(comparison, pictures=PICTURES))


if __name__ == "__main__":
    main()
