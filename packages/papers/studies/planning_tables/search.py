"""CherryPick and Ernest where money is minimized: both pay for runs of the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from precision_time.hardware.catalog import get_device
from precision_time.render.document import Section
from precision_time.render.table import Table
from precision_time_papers.cherrypick.replay import MOST_RUNS, expected_random_runs
from precision_time_papers.cherrypick.search import Outcome, cherry_pick
from precision_time_papers.contract import Floats
from precision_time_papers.evaluation.measured_jobs import LEAST_RUNS
from precision_time_papers.evaluation.measured_jobs import MOST_RUNS as MOST_OF_ERNEST
from precision_time_papers.evaluation.pricing import Progress, silent

from .alternatives import Alternatives, Group, Key, but_devices_and_batch, groups_by, training
from .choices import WITHIN, Chosen, choice, mean_choice
from .choosers import OURS
from .deadlines import ernest
from .regrets import COLUMNS, Regrets, chooser_rows, lower_than_ours, regrets_in

LEAST = 12
"""Alternatives of a group; below seven CherryPick runs them all."""
SEEDS = 2
SEARCH = "CherryPick, until its stop rule"
ERNEST_SMALL, ERNEST_ANY = "Ernest, own small runs", "Ernest, own runs of any size"


@dataclass(frozen=True, kw_only=True, slots=True)
class Searched:
    """CherryPick in every group."""

    chosen: list[Chosen]
    runs: list[float]
    """Until the stop rule, means over seeds as the choices."""
    random_runs: list[float]
    """Expected runs of random search until one within 5 % of the best."""


def searched_groups(found: Alternatives, key: Key = training) -> tuple[Group, ...]:
    """Groups of at least LEAST alternatives on two numbers of devices or more.

    Args:
        found: All alternatives.
        key: What the alternatives of a group share.
    """
    return tuple(
        item
        for item in groups_by(found, key)
        if len(item.places) >= LEAST and len(np.unique(found.devices[item.places])) > 1
    )


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
    """Both beside choosers that run nothing, in the same groups."""
    wide, searched = _searched(found, searched_groups(found), progress)
    jobs = searched_groups(found, but_devices_and_batch)
    narrow, of_jobs = _searched(found, jobs, progress)
    costs, fitted, spent = with_cost(found, jobs), {}, {}
    for name, small in ((ERNEST_SMALL, True), (ERNEST_ANY, False)):
        progress(name)
        scores, runs = zip(*(ernest(found, item, small=small) for item in jobs), strict=True)
        rates = (costs.usd_per_second[item.places] for item in jobs)
        pairs = zip(jobs, (score * rate for score, rate in zip(scores, rates, strict=True)), strict=True)
        fitted[name] = [choice(costs.usd_per_sample[item.places], score) for item, score in pairs]
        spent[name] = float(np.mean(runs))
    narrow = Regrets(groups=jobs, chosen={**narrow.chosen, **fitted})
    priced = sum(not np.isnan(found.usd_per_second[item.places]).any() for item in wide.groups)
    return Section(
        key="search",
        title="CherryPick and Ernest, which pay for runs",
        headline=f"Any alternatives: {_told(wide, searched)} One job on one type of device: "
        f"{_told(narrow, of_jobs)} Ernest runs {spent[ERNEST_ANY]:.1f} and is within 5 % in "
        f"{100.0 * narrow.summary(ERNEST_ANY).within:.0f} % (as published, small shares only, "
        f"{100.0 * narrow.summary(ERNEST_SMALL).within:.0f} %).",
        tables=(
            _table(
                f"Cheapest of at least {LEAST} alternatives of one source",
                wide,
                {SEARCH: float(np.mean(searched.runs))},
                f"Money per sample in the {priced} groups whose devices all have a price, device-seconds in "
                f"the others. CherryPick: no deadline, at most {MOST_RUNS} runs, {SEEDS} seeds; it knows "
                "devices, nodes, batch, micro batches, degrees of the layout, data-sheet peak, bandwidth and "
                "memory, and not the software. Its choice is the cheapest that it ran. Below seven "
                "alternatives it would run them all.",
            ),
            _table(
                f"Cheapest of at least {LEAST} numbers of devices and batches of one job",
                narrow,
                {SEARCH: float(np.mean(of_jobs.runs)), **spent},
                f"Ernest runs {LEAST_RUNS} to {MOST_OF_ERNEST} alternatives that its experiment design "
                "picks, and knows the times of those.",
            ),
        ),
    )


def _searched(found: Alternatives, groups: tuple[Group, ...], progress: Progress) -> tuple[Regrets, Searched]:
    costed = with_cost(found, groups)
    searched = search(costed, groups, progress=progress)
    chosen = regrets_in(costed, groups, money=True).chosen
    return Regrets(groups=groups, chosen={**chosen, SEARCH: searched.chosen}), searched


def _told(found: Regrets, searched: Searched) -> str:
    ours, theirs = (found.summary(name) for name in (OURS, SEARCH))
    return (
        f"CherryPick runs {np.mean(searched.runs):.1f} of a group and is then within 5 % of the best in "
        f"{100.0 * theirs.within:.0f} % of {len(found.groups)} groups (mean regret "
        f"{100.0 * theirs.mean:.1f} %, median {100.0 * theirs.median:.1f}); ours on unseen models runs none "
        f"and is in {100.0 * ours.within:.0f} % (mean {100.0 * ours.mean:.1f} %, median "
        f"{100.0 * ours.median:.1f}); "
        f"random search needs {np.mean(searched.random_runs):.1f} runs to be within 5 %. "
        f"{lower_than_ours(found)}"
    )


def _table(title: str, found: Regrets, runs: Mapping[str, float], note: str) -> Table:
    sizes = np.array([len(item.places) for item in found.groups])
    return Table(
        title=title,
        columns=(COLUMNS[0], ">runs of a group", *COLUMNS[1:]),
        rows=tuple((row[0], runs.get(str(row[0]), 0), *row[1:]) for row in chooser_rows(found)),
        note=f"{len(found.groups)} groups of {len(set(found.sources))} sources, of {sizes.min()} to "
        f"{sizes.max():,} alternatives on two numbers of devices or more (median {np.median(sizes):.0f}). "
        + note,
    )


def _cheapest_run(cost: Floats, order: Sequence[int]) -> Chosen:
    """The cheapest of those that were run."""
    ratio = float(cost[list(order)].min() / cost.min())
    return Chosen(best=float(ratio <= 1.0), within=float(ratio <= WITHIN), regret=ratio - 1.0)


def _features(found: Alternatives) -> Floats:
    """What CherryPick reads of each alternative, logarithms, shape (n, 9)."""
    devices = [get_device(item.device) for item in found.runs]
    degrees = [
        (1, 1, 1) if item.layout is None else (item.layout.tp, item.layout.pp, item.layout.num_microbatches)
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
