"""CherryPick where money is minimized: it pays for runs, and may choose only what it has run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...hardware.catalog import get_device
from ...papers.cherrypick.replay import MOST_RUNS, expected_random_runs
from ...papers.cherrypick.search import Outcome, cherry_pick
from ...papers.contract import Floats
from ..pricing import Progress, silent
from ..tables import ReportTable, Section
from .alternatives import Alternatives, Group, groups_by, training
from .choices import WITHIN, Chosen, mean_choice
from .choosers import OURS
from .regrets import COLUMNS, Regrets, chooser_rows, regrets_in

LEAST = 12
"""Alternatives of a group; below seven CherryPick runs them all."""
SEEDS = 2
SEARCH = "CherryPick, until its stop rule"


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """CherryPick in every group."""

    chosen: list[Chosen]
    runs: list[float]
    """Until the stop rule, means over seeds as the choices."""
    random_runs: list[float]
    """Expected runs of random search until one within 5 % of the best."""


def searched_groups(found: Alternatives) -> tuple[Group, ...]:
    """Groups of at least LEAST alternatives."""
    return tuple(item for item in groups_by(found, training) if len(item.places) >= LEAST)


def with_cost(found: Alternatives, groups: Sequence[Group]) -> Alternatives:
    """Device-seconds in the place of money in groups with an alternative whose device has no price."""
    rate = found.usd_per_second.copy()
    for item in groups:
        if np.isnan(rate[item.places]).any():
            rate[item.places] = found.devices[item.places]
    return replace(found, usd_per_second=rate)


def search(found: Alternatives, groups: Sequence[Group], *, progress: Progress = silent) -> Searched:
    """Run CherryPick in every group until its stop rule; it minimizes money per sample.

    Args:
        found: All alternatives.
        groups: Of them.
        progress: Called with a line on what is being done.
    """
    features, costs = _features(found), found.usd_per_sample
    chosen, runs, random_runs = [], [], []
    for number, item in enumerate(groups):
        progress(f"CherryPick, group {number + 1} of {len(groups)}")
        cost = costs[item.places]
        outcomes = [Outcome(cost=float(value), time=1.0) for value in cost]
        ended = [
            cherry_pick(features[item.places], outcomes.__getitem__, seed=seed, most_runs=MOST_RUNS).order
            for seed in range(SEEDS)
        ]
        good = int((cost <= WITHIN * cost.min()).sum())
        chosen.append(mean_choice([_cheapest_run(cost, order) for order in ended]))
        runs.append(float(np.mean([len(order) for order in ended])))
        random_runs.append(expected_random_runs(len(cost), good))
    return Searched(chosen=chosen, runs=runs, random_runs=random_runs)


def section(found: Alternatives, *, progress: Progress = silent) -> Section:
    """CherryPick beside choosers that run nothing, in the same groups."""
    groups = searched_groups(found)
    costed = with_cost(found, groups)
    plain = regrets_in(costed, groups, money=True)
    searched = search(costed, groups, progress=progress)
    within = Regrets(groups=groups, chosen={**plain.chosen, SEARCH: searched.chosen})
    runs = {SEARCH: float(np.mean(searched.runs))}
    ours, theirs = (within.summary(name) for name in (OURS, SEARCH))
    sizes = np.array([len(item.places) for item in groups])
    money = sum(not np.isnan(found.usd_per_second[item.places]).any() for item in groups)
    return Section(
        key="search",
        title="CherryPick, which pays for runs",
        headline=f"CherryPick runs {runs[SEARCH]:.1f} alternatives of a group before it stops and is then "
        f"within 5 % of the best in {100.0 * theirs.within:.0f} % of {len(groups)} groups (mean regret "
        f"{100.0 * theirs.mean:.1f} %, median {100.0 * theirs.median:.1f}); ours on unseen models runs none "
        f"and is in {100.0 * ours.within:.0f} % ({100.0 * ours.mean:.1f} %, median "
        f"{100.0 * ours.median:.1f}). Random search needs {np.mean(searched.random_runs):.1f} runs to be "
        "within 5 %.",
        tables=(
            ReportTable(
                title=f"Cheapest of at least {LEAST} alternatives of one source",
                columns=(COLUMNS[0], ">runs of a group", *COLUMNS[1:]),
                rows=tuple((row[0], runs.get(str(row[0]), 0), *row[1:]) for row in chooser_rows(within)),
                note=f"{len(groups)} groups of {sizes.min()} to {sizes.max():,} alternatives (median "
                f"{np.median(sizes):.0f}). Money per sample in the {money} groups whose devices all have a "
                f"price, device-seconds in the others. CherryPick: no deadline, at most {MOST_RUNS} runs, "
                f"{SEEDS} seeds; it knows devices, nodes, batch, micro batches, degrees of the layout, "
                "data-sheet peak, bandwidth and memory, and not the software. Its choice is the cheapest "
                "that it ran. Below seven alternatives it would run them all.",
            ),
        ),
    )


def _cheapest_run(cost: Floats, order: Sequence[int]) -> Chosen:
    """The cheapest of those that were run."""
    ratio = float(cost[list(order)].min() / cost.min())
    return Chosen(best=float(ratio <= 1.0), within=float(ratio <= WITHIN), regret=ratio - 1.0)


def _features(found: Alternatives) -> Floats:
    """What CherryPick reads of each alternative, logarithms, shape (n, 9)."""
    devices = [get_device(item.device) for item in found.runs]
    degrees = [
        (1, 1, 1) if item.layout is None else (item.layout.tp, item.layout.pp, item.layout.num_micro_batches)
        for item in found.runs
    ]
    columns = (
        found.devices,
        [item.num_nodes for item in found.runs],
        found.batch,
        found.peak_flops_per_s / found.devices,
        [item.memory_bandwidth_bytes_per_s for item in devices],
        [item.memory_bytes for item in devices],
        *zip(*degrees, strict=True),
    )
    features: Floats = np.log(np.stack([np.asarray(values, dtype=np.float64) for values in columns], axis=1))
    return features
