"""Pictures by matplotlib, where it is installed: SVG and PNG, the same on every run, without a display."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..errors import required_module
from ..io import check_suffix, write_atomically
from .blocks import BandedLine, Bars

_FEW_DECADES = 100.0
_LEAST_STEPS = 1.5
"""Where the largest value is more than so many times the smallest, an axis is logarithmic."""
SETTINGS = {"svg.fonttype": "none", "svg.hashsalt": "precision-time", "font.size": 9,
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


def drawn(
    draw: Callable[[Any], None],
    *,
    kind: str = "svg",
    width: float,
    height: float,
    layout: str | None = "constrained",
    font_size: float = 9.0,
    dpi: int = 150,
) -> bytes:
    """What `draw` draws on an empty figure, as a file.

    Args:
        draw: Takes a figure of matplotlib.
        kind: "svg" or "png".
        width: Of the figure [inches].
        height: Likewise.
        layout: Engine that places the parts of the figure.
        font_size: [points].
        dpi: Resolution of a PNG.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    figure_module, rc_context = require_matplotlib()
    page = io.BytesIO()
    with rc_context({**SETTINGS, "font.size": font_size}):
        figure = figure_module.Figure(figsize=(width, height), layout=layout)
        draw(figure)
        undated = {"Date": None, "Creator": None} if kind == "svg" else None
        figure.savefig(page, format=kind, dpi=dpi, metadata=undated)
    return page.getvalue()


def svg_of(draw: Callable[[Any], None], *, height: float, width: float) -> str:
    """One drawing as an `<svg>` element for a page [inches].

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    svg = drawn(draw, width=width, height=height).decode("utf-8")
    return svg[svg.index("<svg") :]


def save(draw: Callable[[Any], None], path: Path, **figure: Any) -> None:
    """Draw to a file; the end of its name says whether SVG or PNG.

    Raises:
        OutputError: If it cannot be written.
        MissingExtraError: If matplotlib is not installed.
    """
    write_atomically(path, drawn(draw, kind=path.suffix.lower().removeprefix("."), **figure))


def check_picture(path: Path, kinds: Sequence[str] = (".svg", ".png")) -> None:
    """Refuse a file that would be no picture, before anything is computed for it.

    Raises:
        ConfigError: If its name ends otherwise.
        MissingExtraError: If matplotlib is not installed.
    """
    check_suffix("--out", path, kinds)
    require_matplotlib()


_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))
_BAR_INCHES, _FRAME_INCHES, _WIDTH_INCHES = 0.5, 1.6, 8.0


def plot_bars(block: Bars, *, axes: Any = None) -> Any:
    """The sums as bars of their parts, the black line is what each may be.

    Returns:
        The matplotlib axes.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    pyplot = required_module("matplotlib.pyplot", package="matplotlib", extra="plots", purpose="draw plots")
    if axes is None:
        height = _FRAME_INCHES + _BAR_INCHES * len(block.labels)
        _, axes = pyplot.subplots(figsize=(_WIDTH_INCHES, height), layout="constrained")
    longest_s = max(high for _, high in block.ranges)
    unit_s, unit = next((step for step in _TIME_UNITS if longest_s >= step[0]), _TIME_UNITS[-1])
    places = range(len(block.labels))[::-1]
    starts = [0.0] * len(block.labels)
    for name, values in block.parts.items():
        widths = [value / unit_s for value in values]
        axes.barh(places, widths, 0.6, left=starts, label=name, color=block.color(name))
        starts = [start + width for start, width in zip(starts, widths, strict=True)]
    ends = [*zip(block.sums, block.ranges, strict=True)]
    below = [(middle_s - low_s) / unit_s for middle_s, (low_s, _) in ends]
    above = [(high_s - middle_s) / unit_s for middle_s, (_, high_s) in ends]
    axes.errorbar(starts, places, xerr=[below, above], fmt="none", ecolor="black", capsize=4, linewidth=1,
                  label=block.range_title)  # fmt: skip
    axes.set_yticks(places, block.labels)
    axes.set_xlabel(f"step time [{unit}]")
    axes.set_xlim(left=0.0)
    axes.set_title(block.about, fontsize="medium", loc="left")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, fontsize="small")
    return axes


def draw_curves(
    figure: Any, curves: Sequence[BandedLine], *, x_title: str, titles: Sequence[str], note: str
) -> None:
    """Curves in panels side by side: logarithmic where values spread, ticks where there are points."""
    from matplotlib.ticker import LogLocator

    panels = figure.subplots(1, len(titles))
    values = sorted({x for curve in curves for x in curve.x})
    for number, curve in enumerate(curves):
        color = f"C{number % 10}"
        faces = ["white" if hollow else color for hollow in curve.hollow]
        for panel, (middle, low, high) in zip(panels, curve.panels, strict=True):
            style = "--" if number >= 10 else "-"
            panel.fill_between(curve.x, low, high, color=color, alpha=0.12, linewidth=0)
            panel.plot(curve.x, middle, color=color, linewidth=1.2, linestyle=style, label=curve.label)
            panel.scatter(curve.x, middle, s=16, c=faces, edgecolors=color, zorder=3)
    for panel, title in zip(panels, titles, strict=True):
        if values[-1] > values[0] * _LEAST_STEPS > 0:
            panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        every = max(len(values) // 8, 1)
        panel.set_xticks(values[::every], [f"{value:,g}" for value in values[::every]])
        panel.minorticks_off()
        panel.yaxis.set_major_locator(LogLocator(base=10.0, subs=(1.0, 2.0, 5.0)))
        panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.3g}" if value < 1000 else f"{value:,.0f}")
        panel.set_xlabel(x_title)
        panel.set_ylabel(title)
        panel.grid(visible=True, axis="y", alpha=0.3)
    handles = panels[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside right upper", frameon=False, title=note, title_fontsize="small")
