"""A plan of a queue as a Gantt chart: time along, devices of every pool down; needs matplotlib."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from precision_time.io import write_atomically
from precision_time.render.blocks import Block, Drawing, Text
from precision_time.render.html import page_of_blocks
from precision_time.render.picture import SETTINGS, check_picture, require_matplotlib
from precision_time.render.table import Table
from precision_time.units import format_duration

if TYPE_CHECKING:
    from .result import Schedule, ScheduledJob

_TIME_UNITS = ((2 * 86_400.0, 86_400.0, "days"), (2 * 3600.0, 3600.0, "hours"), (120.0, 60.0, "minutes"))
_INCH_PER_DEVICE, _MOST_INCHES, _WIDTH_INCHES = 0.16, 11.0, 10.0
_NARROW, _LOW = 0.055, 2
"""A bar narrower than this share of the chart has its name upright; on no more devices it has no deadline."""


def write_gantt(plan: Schedule, path: Path) -> None:
    """Draw a plan to an .svg or .png file.

    Raises:
        ConfigError: If the name ends in neither, or the file cannot be written.
        MissingExtraError: If matplotlib is not installed.
    """
    check_picture(path)
    write_atomically(path, _drawn(plan, path.suffix.lower()[1:]))


def write_page(plan: Schedule, path: Path) -> None:
    """Write a plan as one page that needs nothing else: chart, what it is worth, table, reasons.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    svg = _drawn(plan, "svg").decode("utf-8")
    heads = ("job", "runs on", "precision", "start", "end", "deadline", "P(met)", "why")
    table = Table(columns=heads, rows=tuple(_cells(plan, job) for job in plan.in_order))
    blocks: list[Block] = [Drawing(svg[svg.index("<svg") :]), *map(Text, plan.headline()), table]
    write_atomically(path, page_of_blocks("Plan of a queue", blocks))


def _cells(plan: Schedule, job: ScheduledJob) -> tuple[str, ...]:
    due = "" if job.deadline_s is None else plan.when(job.deadline_s)
    met = "" if job.on_time_probability is None else f"{job.on_time_probability:.0%}"
    runs = (job.name, f"{job.gpus} x {job.pool}", job.precision)
    return (*runs, plan.when(job.start_s), plan.when(job.end_s), due, met, job.reason)


def _drawn(plan: Schedule, kind: str) -> bytes:
    _, rc_context = require_matplotlib()
    content = io.BytesIO()
    with rc_context(SETTINGS):
        gantt_figure(plan).savefig(
            content, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None
        )
    return content.getvalue()


def gantt_figure(plan: Schedule) -> Any:
    """A row for each device of each pool, a block for each job, with a red frame where it ends too late.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    figures, rc_context = require_matplotlib()
    from matplotlib import colormaps

    devices = sum(pool.devices for pool in plan.pools)
    height = min(max(devices * _INCH_PER_DEVICE, 2.0) + 1.2, _MOST_INCHES)
    unit_s, unit = next(
        ((scale, word) for above, scale, word in _TIME_UNITS if plan.makespan_s >= above), (1.0, "seconds")
    )
    with rc_context(SETTINGS):
        figure = figures.Figure(figsize=(_WIDTH_INCHES, height), layout="constrained")
        grid = figure.subplots(
            len(plan.pools),
            1,
            sharex=True,
            squeeze=False,
            height_ratios=[pool.devices for pool in plan.pools],
        )[:, 0]
        colors = colormaps["Set3"](np.arange(12))
        precisions = {
            name: place for place, name in enumerate(dict.fromkeys(job.precision for job in plan.jobs))
        }
        hatches = ("", "///", "...", "xxx", "\\\\\\")
        for axes, pool in zip(grid, plan.pools, strict=True):
            for number, job in enumerate(plan.jobs):
                if job.pool == pool.name:
                    color = colors[number % 12]
                    _block(axes, plan, job, color, hatches[precisions[job.precision] % 5], unit_s)
            for host in range(1, pool.nodes):
                axes.axhline(host * pool.devices_per_node - 0.5, color="#bbbbbb", linewidth=0.7, zorder=0)
            axes.set_ylim(pool.devices - 0.5, -0.5)
            axes.set_ylabel(f"{pool.devices} x {pool.name}", fontsize=8)
            axes.set_yticks([])
        grid[-1].set_xlim(0.0, plan.makespan_s / unit_s)
        grid[-1].set_xlabel(f"{unit} from the start of the plan")
        shown = ", ".join(
            f"{name}: {'plain' if not hatches[place % 5] else hatches[place % 5]}"
            for name, place in precisions.items()
        )
        late = "; red frame: ends after its deadline" if plan.late else ""
        title = f"Last job ends after {format_duration(plan.makespan_s)} ({shown}{late})"
        figure.suptitle(title, fontsize=10)
    return figure


def _block(axes: Any, plan: Schedule, job: ScheduledJob, color: Any, hatch: str, unit_s: float) -> None:
    """The devices of a job over its time; neighbors are one rectangle, the largest has the name."""
    rows = sorted(job.slots)
    runs: list[list[int]] = []
    for row in rows:
        if runs and row == runs[-1][-1] + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    left, width = job.start_s / unit_s, (job.end_s - job.start_s) / unit_s
    for run in runs:
        axes.barh(
            (run[0] + run[-1]) / 2, width, left=left, height=len(run) - 0.08, color=color, hatch=hatch,
            edgecolor="#d62728" if job.lateness_s else "white", linewidth=2.5 if job.lateness_s else 0.8,
        )  # fmt: skip
    widest = max(runs, key=len)
    middle = (widest[0] + widest[-1]) / 2
    narrow = job.planned_s < _NARROW * plan.makespan_s
    axes.text(
        left + width / 2, middle, _label(plan, job), ha="center", va="center", fontsize=7, clip_on=True,
        rotation=90 if narrow and len(widest) > _LOW else 0,
        bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none", "alpha": 0.75},
    )  # fmt: skip


def _label(plan: Schedule, job: ScheduledJob) -> str:
    due = "" if job.deadline_s is None else f"due {plan.when(job.deadline_s)}"
    return f"{job.name}\n{due}" if due and len(job.slots) > _LOW else job.name
