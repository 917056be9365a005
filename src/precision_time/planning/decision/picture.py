"""A plan as files: the interactive page, a plot of money over time, all candidates as a table."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError
from ...io import check_suffix, write_atomically
from ...render.picture import legible_log_ticks, require_matplotlib, save
from ...render.table import write_columns
from .html import to_html

if TYPE_CHECKING:
    from .result import Plan

KINDS = {"html": (".html",), "plot": (".png", ".svg"), "out": (".csv", ".jsonl")}
_HOUR_S = 3600.0
_MARKERS = "osD^v<>pPX*hd"


def check_paths(*, html: Path | None, plot: Path | None, out: Path | None) -> None:
    """Refuse files that would not be written, before anything is computed.

    Raises:
        ConfigError: If a name ends in none of what its option writes.
        MissingExtraError: If matplotlib is needed and not installed.
    """
    for kind, path in (("html", html), ("plot", plot), ("out", out)):
        if path is not None:
            check_suffix("--out", path, KINDS[kind])
    if plot is not None:
        require_matplotlib()


def write_files(plan: Plan, *, html: Path | None, plot: Path | None, out: Path | None) -> Iterator[Path]:
    """Write what is asked for; the names of what was written."""
    if html is not None:
        write_atomically(html, to_html(plan))
        yield html
    if plot is not None:
        write_plot(plan, plot)
        yield plot
    if out is not None:
        write_columns(plan.columns(), out)
        yield out


def write_plot(plan: Plan, path: str | Path) -> None:
    """Draw money over time: every candidate with a price, the front as a line, the limits.

    Raises:
        ConfigError: If the name ends in neither .png nor .svg, or no candidate has a price.
        MissingExtraError: If matplotlib is not installed.
    """
    path = Path(path)
    check_paths(html=None, plot=path, out=None)
    columns = plan.columns()
    rows = [
        (time / _HOUR_S, usd, device, fits)
        for time, usd, device, fits in zip(
            columns["time_s"], columns["usd"], columns["device"], columns["feasible"], strict=True
        )
        if time is not None and usd is not None
    ]
    if not rows:
        raise ConfigError(f"--out {path}: no candidate has a price. To fix: devices that clouds rent.")

    def draw(figure: Any) -> None:
        axes = figure.subplots()
        devices = sorted({device for *_, device, _ in rows})
        for number, device in enumerate(devices):
            marker = _MARKERS[number % len(_MARKERS)]
            for fits, alpha in ((False, 0.15), (True, 0.7)):
                some = [(time, usd) for time, usd, name, keeps in rows if name == device and keeps is fits]
                label = (
                    device if fits or not any(keeps for *_, name, keeps in rows if name == device) else None
                )
                if some:
                    axes.scatter(*zip(*some, strict=True), s=18, marker=marker, color=f"C{number % 10}",
                                 alpha=alpha, linewidths=0, label=label)  # fmt: skip
        _draw_front(axes, plan)
        _draw_limits(axes, plan)
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis, values in ((axes.xaxis, [row[0] for row in rows]), (axes.yaxis, [row[1] for row in rows])):
            legible_log_ticks(axis, max(values) / min(values))
        axes.set_xlabel("hours from start to end, expected")
        axes.set_ylabel("US dollars")
        axes.set_title(f"{plan.model}, {plan.length}", loc="left", fontsize=10)
        axes.grid(visible=True, alpha=0.25)
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)

    save(draw, path, width=8.0, height=4.6)


def _draw_front(axes: Any, plan: Plan) -> None:
    """The front in time and money alone, and the choices by name."""
    stairs: list[tuple[float, float]] = []
    for each in plan.front:
        if each.usd is not None and (not stairs or each.usd < stairs[-1][1]):
            stairs.append((each.time_s / _HOUR_S, each.usd))
    if len(stairs) > 1:
        axes.step(
            *zip(*stairs, strict=True), where="post", color="black", linewidth=0.9, label="Pareto front"
        )
    said: dict[tuple[float, float], list[str]] = {}
    for choice in plan.choices:
        best = choice.candidate
        if best.usd is not None:
            said.setdefault((best.time_s / _HOUR_S, best.usd), []).append(choice.aim)
    for (hours, usd), aims in said.items():
        axes.annotate(", ".join(aims), (hours, usd), xytext=(6, 6), textcoords="offset points", fontsize=9,
                      fontweight="bold")  # fmt: skip
        axes.scatter([hours], [usd], s=70, facecolors="none", edgecolors="black", linewidths=1.2, zorder=4)


def _draw_limits(axes: Any, plan: Plan) -> None:
    limits = plan.limits
    if limits.deadline_s is not None:
        axes.axvline(limits.deadline_s / _HOUR_S, color="0.4", linestyle=":", label="deadline")
    if limits.budget_usd is not None:
        axes.axhline(limits.budget_usd, color="0.4", linestyle="--", label="budget")
