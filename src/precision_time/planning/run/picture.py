"""A whole run as a picture: its phases and terms over time, and how sure the total is; needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ...io import write_atomically
from ...render.blocks import Drawing, Text
from ...render.html import page_of_blocks
from ...render.picture import check_picture, save, svg_of
from ...units import plain_name
from .prediction import RunPrediction, answer_lines

KINDS = (".svg", ".png", ".html")
_SIZE = {"width": 9.5, "height": 4.6}
_UNITS = ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes"), (1.0, "seconds"))
_COLORS = ("#bab0ac", "#9c755f", "#edc948", "#4e79a7", "#76b7b2", "#59a14f", "#e15759", "#f28e2b")
"""Of the terms, in their order."""
_PHASE_COLORS = ("#a0cbe8", "#d4e4f1")
_LABELED = 0.012
"""Share of the run that a phase needs for every character of its name."""


def write_picture(run: RunPrediction, path: Path) -> None:
    """Draw a run to a file.

    Raises:
        ConfigError: If its name ends in none of .svg, .png and .html.
        MissingExtraError: If matplotlib is not installed.
    """
    check_picture(path, kinds=KINDS)
    kind = path.suffix.lower().removeprefix(".")

    def draw(figure: Any) -> None:
        above, below = figure.subplots(2, 1, height_ratios=(1.0, 1.6))
        unit_s, unit = next((item for item in _UNITS if run.interval.high_s >= 2.0 * item[0]), _UNITS[-1])
        _draw_terms(above, run, unit_s)
        _draw_distribution(below, run, unit_s, unit)

    if kind != "html":
        save(draw, path, **_SIZE)
        return
    svg = Drawing(svg_of(draw, **_SIZE))
    write_atomically(path, page_of_blocks(run.model, [*map(Text, answer_lines(run)), svg]))


def _draw_terms(panel: Any, run: RunPrediction, unit_s: float) -> None:
    """Phases one after the other, and below them the terms of the run end to end."""
    start_s = 0.0
    for number, phase in enumerate(run.phases):
        color = _PHASE_COLORS[number % 2]
        panel.barh(1.0, phase.total_s / unit_s, left=start_s / unit_s, height=0.7, color=color)
        name = phase.name or run.model
        if phase.total_s >= _LABELED * len(name) * run.total_s:
            middle = (start_s + phase.total_s / 2.0) / unit_s
            panel.text(middle, 1.0, name, ha="center", va="center", fontsize="small")
        start_s += phase.total_s
    start_s = 0.0
    for (name, seconds), color in zip(run.terms.items(), _COLORS, strict=True):
        if seconds > 0.0:
            label = f"{plain_name(name)} {seconds / run.total_s:.1%}"
            panel.barh(0.0, seconds / unit_s, left=start_s / unit_s, height=0.7, color=color, label=label)
            start_s += seconds
    panel.set_yticks([1.0, 0.0], ["phases", "terms"])
    panel.tick_params(left=False)
    panel.set_xlim(0.0, run.total_s / unit_s)
    panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
    panel.set_title(f"{run.model} on {run.gpus} x {run.device}", loc="left")


def _draw_distribution(panel: Any, run: RunPrediction, unit_s: float, unit: str) -> None:
    """Share of the simulated runs that are done by a time."""
    times = np.array(run.quantiles_s) / unit_s
    shares = np.linspace(0.0, 100.0, times.size)
    inside = (times >= run.interval.low_s / unit_s) & (times <= run.interval.high_s / unit_s)
    # The ends of the simulation are single draws.
    panel.plot(times[1:-1], shares[1:-1], color="#4e79a7")
    panel.fill_between(
        times, shares, where=inside, color="#4e79a7", alpha=0.15, linewidth=0,
        label=f"{run.interval.coverage:.0%} interval",
    )  # fmt: skip
    for share, seconds in ((10, run.p10_s), (50, run.p50_s), (90, run.p90_s)):
        panel.plot([seconds / unit_s] * 2, [0, share], color="#555555", linewidth=0.8, linestyle=":")
        panel.annotate(
            f"P{share}", (seconds / unit_s, share), textcoords="offset points", xytext=(-4, 4), ha="right"
        )
    panel.axvline(run.total_s / unit_s, color="#e15759", linewidth=1.0, label="expected")
    panel.set_xlim(0.0, times[-2] * 1.02)
    panel.set_ylim(0.0, 102.0)
    panel.set_ylabel("runs done [%]")
    panel.set_xlabel(f"time since the start of the job [{unit}]")
    panel.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False, fontsize="small")
