"""How many devices: the fewest device-seconds that meet a deadline, among runs that differ only in devices.

Deadlines are quantiles of the measured times per sample of a group, so that some counts meet them and some do
not. A chooser takes, of the counts that it expects in time, the one with the least predicted cost, of equal
ones the fewest devices; where it expects none in time, its fastest. Linear scaling and Ernest must run the
job first; their runs are counted, and their choice may be one of those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from precision_time.io import packaged_toml
from precision_time.render.document import Section
from precision_time.render.table import CellValue, Table, columns_of
from precision_time_papers.contract import Floats
from precision_time_papers.ernest import Ernest
from precision_time_papers.evaluation.measured_jobs import LEAST_RUNS, MOST_RUNS, run_limit
from precision_time_papers.per_job import Configurations, MeasurementBudget

from .alternatives import Alternatives, Group, Key, but_devices, but_devices_and_share, groups_by
from .choices import WITHIN
from .choosers import BLIND, FORMULAS, OURS, OURS_SEEN, PREDICTED

LEAST_COUNTS = 3
"""Device counts of a group: with two there is little to choose."""
LEAST_FOR_ERNEST = 6
ANCHORED, LINEAR, ERNEST = "ours on unseen models scaled to one run", "linear scaling of one run", "Ernest"
_DIGITS = 9
"""Of log costs that count as equal: under linear scaling all are."""


@dataclass(frozen=True, kw_only=True, slots=True)
class InTime:
    """A choice under a deadline."""

    meets: bool
    best: bool
    """Whether it meets it at up to 5 % above the least cost that does."""
    regret: float
    """Of its cost against that; NaN where it is late."""
    late: float
    """Its time over the deadline less 1, 0 where it meets it."""


def in_time(time: Floats, cost: Floats, predicted: Floats, devices: Floats, deadline: float) -> InTime:
    """Choose by predicted times, pay measured ones.

    Args:
        time: Measured, shape (k,); at least one is within the deadline.
        cost: Measured.
        predicted: Predicted times; costs are predicted in their proportion.
        devices: Of each, for equal costs.
        deadline: Limit of time.
    """
    ratio = predicted / time
    late = predicted > deadline
    order = np.lexsort((devices, np.log(cost * ratio).round(_DIGITS), late))
    chosen = int(order[0]) if not late.all() else int(np.argmin(predicted))
    least = float(cost[time <= deadline].min())
    meets = bool(time[chosen] <= deadline)
    return InTime(
        meets=meets,
        best=meets and bool(cost[chosen] <= WITHIN * least),
        regret=float(cost[chosen] / least - 1.0) if meets else float("nan"),
        late=max(float(time[chosen] / deadline - 1.0), 0.0),
    )


def device_groups(found: Alternatives, key: Key) -> tuple[Group, ...]:
    """Groups with one alternative for each of at least LEAST_COUNTS numbers of devices.

    Where nodes are filled differently, the fastest of a count stands for it: a planner would take it.
    """
    groups = []
    for item in groups_by(found, key):
        order = item.places[np.argsort(found.per_sample_s[item.places], kind="stable")]
        first = np.unique(found.devices[order], return_index=True)[1]
        if len(first) >= LEAST_COUNTS:
            groups.append(Group(places=order[first], source=item.source))
    return tuple(groups)


def predictions(found: Alternatives, group: Group) -> tuple[Mapping[str, Floats], Mapping[str, int]]:
    """Seconds per sample that every chooser expects of the alternatives of a group, and its sample runs."""
    places = group.places
    batch, devices, time = found.batch[places], found.devices[places], found.per_sample_s[places]
    expected = {
        name: found.predicted_s[key][places] / batch
        for name, key in PREDICTED.items()
        if key in found.predicted_s
    }
    runs = dict.fromkeys(expected, 0)
    first = int(np.argmin(devices))
    expected[ANCHORED] = expected[OURS] * time[first] / expected[OURS][first]
    expected[LINEAR] = time[first] * devices[first] / devices
    runs |= {ANCHORED: 1, LINEAR: 1}
    if len(places) >= LEAST_FOR_ERNEST:
        expected[ERNEST], runs[ERNEST] = ernest(found, group, small=False)
    return expected, runs


def ernest(found: Alternatives, group: Group, *, small: bool) -> tuple[Floats, int]:
    """Seconds per sample by Ernest, fitted to runs that its experiment design picks, and how many it runs.

    Args:
        found: All alternatives.
        group: Of one job; those that were run keep their measured times.
        small: Whether only small shares of the largest batch may be run, as published.
    """
    places = group.places
    nodes = np.array([found.runs[place].num_nodes for place in places], dtype=np.float64)
    offered = Configurations(
        devices=found.devices[places], nodes=nodes, global_batch=found.batch[places],
        largest_batch=float(found.batch[places].max()),
    )  # fmt: skip
    measured_s = found.measured_s[places]
    budget = MeasurementBudget(offered=offered, step_time_s=measured_s, limit=run_limit(len(places)))
    seconds = Ernest(small=small).fit(budget, seed=0).predict(offered)
    seconds[budget.chosen] = measured_s[budget.chosen]
    return seconds / found.batch[places], len(budget.chosen)


def section(found: Alternatives) -> Section:
    """Tables for equal work per device, and for one batch over all devices."""
    quantiles = packaged_toml(__package__, "data/planning.toml")["deadline_quantiles"]
    tables, told = [], []
    for key, title in (
        (but_devices, "the same batch per device"),
        (but_devices_and_share, "one global batch, shared among the devices"),
    ):
        groups = device_groups(found, key)
        with_ernest = [item for item in groups if len(item.places) >= LEAST_FOR_ERNEST]
        for chosen, names in (
            (groups, (OURS, OURS_SEEN, BLIND, FORMULAS, ANCHORED, LINEAR)),
            (with_ernest, (OURS, OURS_SEEN, BLIND, FORMULAS, ANCHORED, LINEAR, ERNEST)),
        ):
            if chosen:
                rows = _rows(found, chosen, names, quantiles)
                tables.append(_table(title, chosen, rows, quantiles, least=ERNEST in names))
                told.append(_told(title, len(chosen), rows, least=ERNEST in names))
    return Section(
        key="devices",
        title="How many devices under a deadline",
        headline="Choices that meet the deadline, and in parentheses those that do so within 5 % of the "
        f"least cost [%]. {' '.join(told)}",
        tables=tuple(tables),
    )


def _rows(
    found: Alternatives, groups: Sequence[Group], names: Sequence[str], quantiles: Sequence[float]
) -> tuple[tuple[CellValue, ...], ...]:
    """Means over deadlines of a group, then over groups."""
    chosen: dict[str, list[list[InTime]]] = {name: [] for name in names}
    spent: dict[str, list[int]] = {name: [] for name in names}
    for item in groups:
        time, devices = found.per_sample_s[item.places], found.devices[item.places]
        expected, runs = predictions(found, item)
        for name in names:
            spent[name].append(runs[name])
            chosen[name].append(
                [
                    in_time(time, time * devices, expected[name], devices, float(deadline))
                    for deadline in np.quantile(time, quantiles)
                ]
            )
    rows: list[tuple[CellValue, ...]] = []
    for name in names:
        each = [item for found_ in chosen[name] for item in found_]
        meets, best = (
            100.0 * float(np.mean([[getattr(one, what) for one in item] for item in chosen[name]]))
            for what in ("meets", "best")
        )
        regrets = [item.regret for item in each if item.meets]
        lateness = [item.late for item in each if not item.meets]
        rows.append(
            (
                *(name, float(np.mean(spent[name])), meets, best),
                100.0 * float(np.mean(regrets)) if regrets else None,
                100.0 * float(np.percentile(regrets, 90.0)) if regrets else None,
                100.0 * float(np.mean(lateness)) if lateness else None,
            )
        )
    return tuple(rows)


def _table(
    title: str,
    groups: Sequence[Group],
    rows: tuple[tuple[CellValue, ...], ...],
    quantiles: Sequence[float],
    *,
    least: bool,
) -> Table:
    sources = len({item.source for item in groups})
    sizes = np.array([len(item.places) for item in groups])
    ernest = (
        f" Ernest runs {LEAST_RUNS} to {MOST_RUNS} of the counts, those its experiment design picks; with "
        "one batch per device its second term is a constant." * least
    )
    return Table(
        title=f"{title[0].upper()}{title[1:]}: at least {LEAST_FOR_ERNEST if least else LEAST_COUNTS} counts",
        columns=columns_of(
            "chosen by | >runs of the job | >meets the deadline % | >and within 5 % of the least cost % | "
            ">cost above the least, of those in time, mean % | >p90 % | >late by, of the others, mean %"
        ),
        rows=rows,
        note=f"{len(groups):,} groups of {sources} sources, {sizes.min()} to {sizes.max()} counts (median "
        f"{np.median(sizes):.0f}); deadlines at the quantiles {', '.join(map(str, quantiles))} of measured "
        "times. Cost: device-seconds per sample, which orders as money does within one type of device."
        + ernest,
    )


def _told(title: str, count: int, rows: tuple[tuple[CellValue, ...], ...], *, least: bool) -> str:
    by_name = {str(row[0]): row for row in rows}
    named = (OURS, ANCHORED, LINEAR, ERNEST)
    parts = [f"{name} {by_name[name][2]:.0f} ({by_name[name][3]:.0f})" for name in named if name in by_name]
    counts = LEAST_FOR_ERNEST if least else LEAST_COUNTS
    return f"With {title}, {count:,} groups of at least {counts} counts: {', '.join(parts)}."
