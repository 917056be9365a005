"""Two pictures for the page: errors of all predictors, and error against what an answer costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .build import Comparison
from .protocols import QUESTIONS
from .runs import JOBS

_COLOURS = ("#4477aa", "#ee6677", "#228833")
_HIGHEST_PERCENT = 120.0


def write_pictures(comparison: Comparison, folder: Path) -> list[Path]:
    """Write predictors-errors.svg and predictors-cost.svg; needs matplotlib (extra `plots`)."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    # Without a date and with fixed ids the same figures give the same file.
    with matplotlib.rc_context({"svg.hashsalt": "predictors", "font.size": 9, "svg.fonttype": "none"}):
        made = [
            _save(pyplot, _errors(pyplot, comparison), folder / "predictors-errors.svg"),
            _save(pyplot, _against_cost(pyplot, comparison), folder / "predictors-cost.svg"),
        ]
    return made


def _errors(pyplot: Any, comparison: Comparison) -> Any:
    """Bars of the MAPE per question, on the jobs that Ernest can be fitted to."""
    found = {
        (item.question, item.name): item.mape_percent for item in comparison.scores if item.population == JOBS
    }
    titles = {item.name: item.title for item in comparison.scores if item.population == JOBS}
    names = sorted(titles, key=lambda name: -found.get(("architecture", name), 0.0))
    figure, axes = pyplot.subplots(figsize=(7.5, 0.36 * len(names) + 1.0))
    for place, (question, colour) in enumerate(zip(QUESTIONS, _COLOURS, strict=True)):
        heights = [min(found.get((question, name), 0.0), _HIGHEST_PERCENT) for name in names]
        middles = [row + 0.26 * (1 - place) for row in range(len(names))]
        axes.barh(middles, heights, height=0.25, color=colour, label=QUESTIONS[question].title)
    axes.set_yticks(range(len(names)), [titles[name] for name in names])
    axes.set_xlabel(f"MAPE [%], cut off at {_HIGHEST_PERCENT:.0f}: jobs that Ernest can be fitted to")
    axes.legend(loc="lower right", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _against_cost(pyplot: Any, comparison: Comparison) -> Any:
    """Error on unseen architectures over the seconds until one new job is answered."""
    figure, axes = pyplot.subplots(figsize=(7.5, 4.2))
    for item in comparison.scores:
        if (item.question, item.population) != ("architecture", JOBS) or item.name not in comparison.costs:
            continue
        cost = comparison.costs[item.name]
        seconds = max(cost.requests_s(1), 1e-5)
        axes.plot(seconds, item.mape_percent, "o", color=_COLOURS[1] if cost.runs else _COLOURS[0])
        axes.annotate(
            item.title, (seconds, item.mape_percent), xytext=(5, 3), textcoords="offset points", fontsize=7
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("seconds until one new job is answered, sample runs (red) counted")
    axes.set_ylabel("MAPE on unseen architectures [%]")
    axes.margins(x=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _save(pyplot: Any, figure: Any, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    # matplotlib leaves spaces at line ends, which no tracked text should have.
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(line.rstrip() for line in lines) + "\n", encoding="utf-8")
    return path
