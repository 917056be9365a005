"""T1: how far the precision alone moves the step time of a measured configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...learn.table import MeasuredTable
from .contract import Cell, Figure, Section, Table
from .families import Family

PAPER_SPREAD = 2.4
"""arXiv 2604.16145, abstract: training time varies by about 2.4x over the minimum with the precision."""
LEFT_OUT = ("fp64",)
"""Nobody trains in it to save time: shown, and left out of the figure set beside the paper's."""
_MOST_ROWS = 25


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """One family with its measured medians."""

    family: Family
    times_s: dict[str, float]

    @property
    def ratio(self) -> float:
        """Slowest over fastest precision."""
        return max(self.times_s.values()) / min(self.times_s.values())


def spreads(
    table: MeasuredTable, families: Sequence[Family], *, left_out: Sequence[str] = ()
) -> list[Spread]:
    """Families with at least two precisions, the widest first."""
    found = []
    for family in families:
        times = {name: s for name, s in family.median(table.measured_s).items() if name not in left_out}
        if len(times) > 1:
            found.append(Spread(family=family, times_s=times))
    return sorted(found, key=lambda item: -item.ratio)


def spread_section(table: MeasuredTable, families: Sequence[Family]) -> Section:
    """T1 of measured runs; nothing is predicted."""
    usual = spreads(table, families, left_out=LEFT_OUT)
    everything = spreads(table, families)
    if not everything:
        return Section(key="T1", title=_TITLE, headline="No configuration ran at two precisions.", tables=())
    ratios = np.array([item.ratio for item in usual] or [1.0])
    widest = everything[0].ratio
    headline = (
        f"{len(everything)} measured configurations ran at two or more precisions. "
        f"Max spread {ratios.max():.1f}x (paper: about {PAPER_SPREAD}x), median {np.median(ratios):.2f}x, "
        f"{(ratios >= PAPER_SPREAD).mean():.0%} at or above the paper's; with fp64 up to {widest:.0f}x."
    )
    return Section(
        key="T1",
        title=_TITLE,
        headline=headline,
        tables=(_by_model_and_device(table, usual), _by_pair(everything)),
        figures={
            "T1.max_spread": Figure(value=float(ratios.max()), spread=None),
            "T1.median_spread": Figure(value=float(np.median(ratios)), spread=None),
            "T1.configurations": Figure(value=float(len(everything)), spread=None),
        },
    )


def _by_model_and_device(table: MeasuredTable, found: Sequence[Spread]) -> Table:
    """The widest family of each model and device."""
    widest: dict[tuple[str, str, int], Spread] = {}
    for item in found:
        run = table.measurements[next(iter(item.family.rows.values()))[0]]
        widest.setdefault((run.model, run.device, run.num_devices), item)
    chosen = list(widest.items())[:_MOST_ROWS]
    precisions = sorted({name for _, item in chosen for name in item.times_s})
    rows: list[tuple[Cell, ...]] = []
    for (model, device, devices), item in chosen:
        run = table.measurements[next(iter(item.family.rows.values()))[0]]
        batch = None if run.layout is None else run.layout.micro_batch_size
        times = (None if name not in item.times_s else item.times_s[name] * 1e3 for name in precisions)
        rows.append((model, f"{devices} x {device}", batch, *times, f"{item.ratio:.2f}"))
    return Table(
        title=f"Widest spreads by model and cluster ({len(rows)} of {len(widest)}), step times [ms]",
        columns=("model", "cluster", ">batch", *(f">{name}" for name in precisions), ">max/min"),
        rows=tuple(rows),
        note=f"Measured medians of runs equal in all but precision; {', '.join(LEFT_OUT)} left out.",
    )


def _by_pair(found: Sequence[Spread]) -> Table:
    """Speed of one precision over another, over all families that ran at both."""
    ratios: dict[tuple[str, str], list[float]] = {}
    for item in found:
        names = sorted(item.times_s)
        for index, slow in enumerate(names):
            for fast in names[index + 1 :]:
                pair = (slow, fast) if item.times_s[slow] >= item.times_s[fast] else (fast, slow)
                ratios.setdefault(pair, []).append(item.times_s[pair[0]] / item.times_s[pair[1]])
    rows: list[tuple[Cell, ...]] = [
        (slow, fast, len(values), *(f"{value:.2f}" for value in np.percentile(values, (0, 50, 90, 100))))
        for (slow, fast), values in sorted(ratios.items(), key=lambda entry: -len(entry[1]))
    ]
    return Table(
        title="Spread by pair of precisions",
        columns=("slower", "faster", ">configurations", ">least", ">median", ">p90", ">most"),
        rows=tuple(rows),
    )


_TITLE = "Precision spread: what the precision alone does to the step time"
