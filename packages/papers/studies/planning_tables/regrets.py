"""Choices against the corpus, for four objectives: tables, and how wide they spread over sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from precision_time.corpus.measurement import Measurement
from precision_time.render.document import Metric, Section
from precision_time.render.table import CellValue, Table, columns_of
from precision_time_papers.contract import Floats

from .alternatives import Alternatives, Group, Key, groups_by, part_of, training, training_anywhere
from .choices import Chosen, Summary, accuracy_by_distance, pairs_of, summarized
from .choosers import (
    BIGGEST_BATCH,
    BLIND,
    BLIND_PEAK,
    CHOOSERS,
    EASIER,
    FORMULAS,
    OURS,
    RANDOM,
    choices,
    scores,
)

DRAWS = 2000
"""Of sources, for the interval of a difference."""
_SOURCES_SHOWN = 15
DISTANCES = (1.0, 1.05, 1.1, 1.25, 1.5, 2.0)
COLUMNS = columns_of(
    "chosen by | >groups | >best % | >within 5 % of it % | >mean regret % | >median % | >p90 % | "
    ">mean over sources % | >above ours by (90 % over sources) [points]"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Objective:
    """What is minimized, among which alternatives."""

    title: str
    what: str
    """In words, for the note."""
    money: bool = False
    capped: bool = False
    equal_devices: bool = False

    def key(self, trained: Key) -> Key:
        """What alternatives share, given when two runs are of one training."""
        if not self.equal_devices:
            return trained

        def key(item: Measurement) -> Hashable:
            return trained(item), item.num_devices

        return key


OBJECTIVES: Mapping[str, Objective] = {
    "time": Objective(
        title="Fastest on an equal number of devices",
        what="least time per sample among alternatives on the same number of devices",
        equal_devices=True,
    ),
    "cost": Objective(
        title="Cheapest",
        what="least money per sample at on-demand prices, of alternatives whose device has a price",
        money=True,
    ),
    "cap": Objective(
        title="Fastest under a cap on devices",
        what="least time per sample within a cap on the number of devices; every number that was measured is "
        "the cap once, the mean over caps is one group",
        capped=True,
    ),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Regrets:
    """What every chooser chose in some groups."""

    groups: tuple[Group, ...]
    chosen: Mapping[str, list[Chosen]]

    @property
    def sources(self) -> list[str]:
        """Of each group."""
        return [item.source for item in self.groups]

    def summary(self, name: str) -> Summary:
        """Of one chooser."""
        return summarized(self.chosen[name], self.sources)

    def regret_percent(self, name: str) -> Floats:
        """Of one chooser in every group."""
        return 100.0 * np.array([item.regret for item in self.chosen[name]])


def regrets(found: Alternatives, objective: Objective, *, anywhere: bool = False) -> Regrets:
    """Every chooser in every group.

    Args:
        found: All alternatives.
        objective: What is minimized.
        anywhere: Groups of several sources, in the place of groups of one.
    """
    key = objective.key(training_anywhere if anywhere else training)
    groups = list(groups_by(found, key, several_sources=anywhere))
    if objective.money:
        priced = (part_of(item, lambda places: ~np.isnan(found.usd_per_second[places])) for item in groups)
        groups = [item for item in priced if item is not None]
    if objective.capped:
        groups = [item for item in groups if len(np.unique(found.devices[item.places])) > 1]
    return regrets_in(found, groups, money=objective.money, capped=objective.capped)


def regrets_in(
    found: Alternatives,
    groups: Sequence[Group],
    *,
    money: bool = False,
    capped: bool = False,
    further: Mapping[str, Floats] = MappingProxyType({}),
) -> Regrets:
    """Every chooser in some groups.

    Args:
        found: All alternatives.
        groups: Of them.
        money: Whether dollars per sample are minimized, otherwise seconds.
        capped: Whether choices are made under every cap on the devices.
        further: Scores of other choosers, shape (n,).
    """
    values = found.usd_per_sample if money else found.per_sample_s
    devices = found.devices if capped else None
    scored = {**scores(found, money=money), **further}
    chosen = {name: choices(values, score, groups, devices) for name, score in scored.items()}
    return Regrets(groups=tuple(groups), chosen=chosen)


def section(found: Alternatives, name: str) -> Section:
    """Tables of one objective: within sources, across them, and by source."""
    objective = OBJECTIVES[name]
    within, across = regrets(found, objective), regrets(found, objective, anywhere=True)
    sizes = np.array([len(item.places) for item in within.groups])
    note = (
        f"Objective: {objective.what}. {len(within.groups):,} groups of {len(set(within.sources))} sources, "
        f"of 2 to {sizes.max():,} alternatives (median {np.median(sizes):.0f}). Regret: how far the measured "
        "value of the choice is above the least measured one."
    )
    tables = (
        Table(
            title=f"{objective.title}: alternatives of one source",
            columns=COLUMNS,
            rows=chooser_rows(within),
            note=note,
        ),
        Table(
            title=f"{objective.title}: alternatives of several sources",
            columns=COLUMNS,
            rows=chooser_rows(across),
            note=f"{len(across.groups):,} groups, each of at least two sources: software, hosts and what is "
            "timed differ beside what a planner can choose.",
        ),
        by_source(within, objective.title),
    )
    figures = {
        f"{name}.{title}.{what}": Metric(value=100.0 * getattr(within.summary(title), field))
        for title in within.chosen
        for what, field in (("mean_regret_percent", "mean"), ("within_5_percent", "within"))
    }
    return Section(
        key=name, title=objective.title, headline=verdict(within), tables=tables, figures=figures,
        plot=picture_data(within),
    )  # fmt: skip


def chooser_rows(found: Regrets) -> tuple[tuple[CellValue, ...], ...]:
    """A row for each chooser."""
    ours = found.regret_percent(OURS)
    rows: list[tuple[CellValue, ...]] = []
    for name in sorted(found.chosen, key=_place):
        item = found.summary(name)
        above = None if name == OURS else difference_text(found.regret_percent(name) - ours, found.sources)
        rows.append(
            (
                *(name, item.groups, 100.0 * item.best, 100.0 * item.within, 100.0 * item.mean),
                *(100.0 * item.median, 100.0 * item.p90, 100.0 * item.over_sources, above),
            )
        )
    return tuple(rows)


def _place(name: str) -> int:
    return CHOOSERS.index(name) if name in CHOOSERS else len(CHOOSERS)


def difference_text(differences: Floats, sources: Sequence[str]) -> str:
    """Mean difference and its 90 % interval over draws of sources."""
    low, high = interval_over_sources(differences, sources)
    return f"{differences.mean():+.1f} ({low:+.1f} to {high:+.1f})"


def interval_over_sources(values: Floats, sources: Sequence[str]) -> tuple[float, float]:
    """90 % of the means over as many sources drawn with replacement; groups of one source stay together."""
    names, place = np.unique(sources, return_inverse=True)
    sums, counts = np.bincount(place, values), np.bincount(place)
    drawn = np.random.default_rng(0).integers(len(names), size=(DRAWS, len(names)))
    low, high = np.quantile(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1), (0.05, 0.95))
    return float(low), float(high)


def verdict(found: Regrets) -> str:
    """What the table says, in sentences computed from it."""
    ours = found.summary(OURS)
    others = {name: found.summary(name) for name in found.chosen if name != OURS and name not in EASIER}
    named = (BLIND, BLIND_PEAK, FORMULAS, BIGGEST_BATCH, RANDOM)
    told = ", ".join(f"{name} {100.0 * others[name].mean:.1f} %" for name in named if name in others)
    return (
        f"Of {ours.groups:,} groups the choice of {OURS} is the best measured in {100.0 * ours.best:.0f} % "
        f"and within 5 % of it in {100.0 * ours.within:.0f} %; mean regret {100.0 * ours.mean:.1f} % "
        f"({told}). {lower_than_ours(found)}"
    )


def lower_than_ours(found: Regrets) -> str:
    """Who has a lower mean regret on unseen models, in a sentence."""
    names = [name for name in found.chosen if name not in EASIER]
    mean = {name: found.summary(name).mean for name in names}
    lower = [name for name in names if mean[name] < mean[OURS]]
    return f"Lower mean regret: {', '.join(lower)}." if lower else "No other has a lower one."


def by_source(found: Regrets, title: str) -> Table:
    """The sources with most groups, the others together."""
    counts = Counter(found.sources)
    shown = [name for name, _ in counts.most_common(_SOURCES_SHOWN)]
    names = np.array(found.sources)
    parts = [(name, names == name) for name in shown]
    if len(counts) > len(shown):
        parts.append((f"{len(counts) - len(shown)} others", ~np.isin(names, shown)))
    compared = [name for name in (OURS, BLIND, FORMULAS, RANDOM) if name in found.chosen]
    rows: list[tuple[CellValue, ...]] = []
    for name, mask in parts:
        sizes = [len(item.places) for item, chosen in zip(found.groups, mask, strict=True) if chosen]
        within = np.array([item.within for item in found.chosen[OURS]])[mask].mean()
        means = [float(found.regret_percent(item)[mask].mean()) for item in compared]
        rows.append((name, int(mask.sum()), float(np.median(sizes)), 100.0 * float(within), *means))
    return Table(
        title=f"{title}: by source",
        columns=columns_of(
            "source | >groups | >median size | >ours within 5 % [%] | "
            + " | ".join(f">{name}: mean regret %" for name in compared)
        ),
        rows=tuple(rows),
    )


def picture_data(found: Regrets) -> Mapping[str, Any]:
    """Regrets of every chooser, for the picture."""
    return {name: found.regret_percent(name) for name in found.chosen}


def ranking(found: Alternatives) -> Section:
    """How well the whole order is predicted, not only its first."""
    groups = groups_by(found, OBJECTIVES["time"].key(training))
    values = found.per_sample_s
    rows: list[tuple[CellValue, ...]] = []
    taus: dict[str, float] = {}
    counts: list[int] = []
    for name, score in scores(found, money=False).items():
        pairs = [
            pairs_of(values[item.places], score[item.places], found.spread[item.places]) for item in groups
        ]
        each = [item.tau for item in pairs if item.tau is not None]
        taus[name] = float(np.mean(each))
        shares, counts = accuracy_by_distance(pairs, DISTANCES)
        cells = [None if share is None else 100.0 * share for share in shares]
        rows.append((name, len(each), f"{taus[name]:.2f}", f"{np.median(each):.2f}", *cells))
    ends = [f"to {high:g}x" for high in DISTANCES[1:]] + [f"above {DISTANCES[-1]:g}x"]
    return Section(
        key="ranking",
        title="The order of all alternatives",
        headline=f"Kendall's tau, mean over groups: ours on unseen models {taus[OURS]:.2f}, blind "
        f"{taus[BLIND]:.2f}, formulas alone {taus[FORMULAS]:.2f}; 0 is random order. Of pairs up to 5 % "
        f"apart ours orders {rows[0][4]:.0f} % rightly, of pairs above twice apart {rows[0][-1]:.1f} %.",
        tables=(
            Table(
                title="Tau, and pairs in the measured order [%] by the ratio of their measured times",
                columns=("ordered by", ">groups", ">tau, mean", ">tau, median", *(f">{end}" for end in ends)),
                rows=tuple(rows),
                note="Groups of the first objective. Pairs closer than their repeats spread are ties and "
                "left out; a configuration without repeats has the median spread of those with. Equal scores "
                f"count as half a pair. Shares are means over groups (in order of the columns: {counts}).",
            ),
        ),
        figures={f"ranking.{name}.tau": Metric(value=value) for name, value in taus.items()},
    )
