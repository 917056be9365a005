"""Regret of the choice by chooser: the share of groups at or below it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from precision_time.render.document import Section
from precision_time.render.picture import legible_log_ticks, svg_of

from .choosers import BIGGEST_BATCH, BLIND, BLIND_PEAK, FORMULAS, MIXED, OURS, PEAK, RANDOM

_LEAST_PERCENT, _MOST_PERCENT = 0.1, 1000.0
_PER_ROW = 2
_SHARES = np.linspace(0.0, 1.0, 201)
"""A line through every group would make the file large and look the same."""
_LINES = {
    OURS: ("#4477aa", "-"),
    FORMULAS: ("#66ccee", "--"),
    BLIND_PEAK: ("#ee6677", "--"),
    BLIND: ("#ee6677", "-"),
    MIXED: ("#aa3377", ":"),
    PEAK: ("#228833", ":"),
    BIGGEST_BATCH: ("#ccbb44", ":"),
    RANDOM: ("#888888", "-"),
}


def regret_distributions(sections: Sequence[Section]) -> str:
    """One panel for each section, as an `<svg>` element.

    Args:
        sections: Sections whose `plot` has the regrets of every chooser [%].

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """

    def draw(figure: Any) -> None:
        rows = -(-len(sections) // _PER_ROW)
        panels = figure.subplots(rows, _PER_ROW, sharey=True, squeeze=False).ravel()[: len(sections)]
        for axes, section in zip(panels, sections, strict=True):
            for name, (color, style) in _LINES.items():
                if name in section.plot:
                    regret = np.quantile(np.clip(section.plot[name], _LEAST_PERCENT, None), _SHARES)
                    axes.plot(regret, 100.0 * _SHARES, color=color, linestyle=style, label=name)
            axes.set_xscale("log")
            axes.set_xlim(_LEAST_PERCENT, _MOST_PERCENT)
            axes.set_ylim(0.0, 100.0)
            legible_log_ticks(axes.xaxis, _MOST_PERCENT / _LEAST_PERCENT)
            axes.set_title(section.title, fontsize=9)
        for axes in panels[::_PER_ROW]:
            axes.set_ylabel("groups at or below it [%]")
        for axes in panels[-_PER_ROW:]:
            axes.set_xlabel("regret of the choice [%]; 0.1 and less at the left")
        handles = {
            label: line
            for axes in panels
            for line, label in zip(*axes.get_legend_handles_labels(), strict=True)
        }
        figure.legend(
            handles.values(), handles.keys(), loc="outside lower center", ncols=3, frameon=False, fontsize=8
        )

    return svg_of(draw, width=7.5, height=6.4)
