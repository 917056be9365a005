"""matplotlib, where it is installed, and what plots share: drawing needs no display."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

from .errors import required_module

_FEW_DECADES = 100.0
_SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "precision-time", "font.size": 9,
             "axes.spines.top": False, "axes.spines.right": False}  # fmt: skip


def require_matplotlib() -> tuple[Any, Any]:
    """The module of figures and the context of settings.

    Raises:
        MissingExtraError: If it is not installed.
    """
    figure = required_module("matplotlib.figure", package="matplotlib", extra="plots", purpose="draw plots")
    from matplotlib import rc_context

    return figure, rc_context


def legible_log_ticks(axis: Any, span: float) -> None:
    """Plain numbers on a logarithmic axis, few enough to stand side by side.

    Args:
        axis: The x or y axis of matplotlib axes.
        span: Largest over smallest value shown.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    subs = (1.0, 2.0, 5.0) if span < _FEW_DECADES else (1.0,)
    axis.set_major_locator(LogLocator(base=10.0, subs=subs))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def svg_of(draw: Callable[[Any], None], *, height: float, width: float) -> str:
    """One drawing on a figure as an `<svg>` element, the same on every run [inches].

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    figure_module, rc_context = require_matplotlib()
    with rc_context(_SETTINGS):
        figure = figure_module.Figure(figsize=(width, height), layout="constrained")
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue()
    return svg[svg.index("<svg") :]
