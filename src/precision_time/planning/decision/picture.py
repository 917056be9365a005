"""Money over time of the candidates of a plan, as a picture; needs matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError
from ...render.picture import check_picture, legible_log_ticks, save

if TYPE_CHECKING:
    from .result import Plan

PICTURES = (".png", ".svg")
_HOUR_S = 3600.0
_MARKERS = "osD^v<>pPX*hd"


def write_plot(plan: Plan, path: str | Path) -> None:
    """Draw money over time: every candidate with a price, the front as a line, the limits.

    Raises:
        ConfigError: If the name ends in neither .png nor .svg, or no candidate has a price.
        MissingExtraError: If matplotlib is not installed.
    """
    path = Path(path)
    check_picture(path, kinds=PICTURES)
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
