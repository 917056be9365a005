"""What the report is held against: each target by the mean over rows and by the mean over sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from precision_time.corpus.protocols import PROTOCOLS
from precision_time.io import packaged_toml
from precision_time.render.document import Metric
from precision_time.render.table import CellValue, Table, columns_of, ratio_text

from ..contract import Floats
from .metrics import mean_over_groups, over_seeds

TARGETS: Mapping[str, Mapping[str, float]] = packaged_toml(__package__, "data/targets.toml")
"""Targets by protocol [%]."""
MISSED = "missed"


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """What has a target: errors under one protocol, or of some of its rows."""

    key: str
    """Its figures are T5.KEY.mape_percent and T5.KEY.sources_percent."""
    label: str
    target: Mapping[str, float] | None
    errors: tuple[Floats, ...]
    """Per seed, absolute errors [%], NaN where nothing was predicted, shape (n,) each."""
    sources: Sequence[str]
    """Of each row."""

    def figures(self) -> dict[str, Metric]:
        """Mean over the rows, and over the sources of each one's mean."""
        known = [errors[~np.isnan(errors)] for errors in self.errors]
        return {
            f"T5.{self.key}.mape_percent": over_seeds([float(errors.mean()) for errors in known]),
            f"T5.{self.key}.sources_percent": over_seeds(
                [mean_over_groups(errors, self.sources) for errors in self.errors]
            ),
        }


def summary_table(
    questions: Sequence[Question], figures: Mapping[str, Metric], noise: float | None
) -> tuple[Table, list[str]]:
    """The table of targets, and what missed its own.

    Args:
        questions: What has a row of its own.
        figures: Those of the questions, and T5.coverage.PROTOCOL.covered_percent and .sources_percent.
        noise: Mean deviation of repeats from their median [%].
    """
    rows: list[tuple[CellValue, ...]] = []
    misses: list[str] = []
    for item in questions:
        mean, sources = (figures[f"T5.{item.key}.{which}_percent"] for which in ("mape", "sources"))
        first = item.errors[0][~np.isnan(item.errors[0])]
        wanted, verdict = "-", "-"
        if item.target is not None:
            wanted = f"at most {item.target['at_most']:g}, reach for {item.target['reach_for']:g}"
            verdict = both_ways(*(_grade(figure.value, item.target) for figure in (mean, sources)))
        details = (float(value) for value in np.percentile(first, (50, 90, 100)))
        means = (mean.value, ratio_text(mean.spread), sources.value)
        rows.append((item.label, len(first), *means, *details, wanted, verdict))
        if MISSED in verdict:
            misses.append(f"{item.label} ({mean.value:.1f} %, over sources {sources.value:.1f} %)")
    low, high = TARGETS["coverage"]["at_least"], TARGETS["coverage"]["at_most"]
    for name, protocol in PROTOCOLS.items():
        covered = figures.get(f"T5.coverage.{name}.covered_percent")
        if covered is None:
            continue
        sources = figures[f"T5.coverage.{name}.sources_percent"]
        label = f"Coverage of the 90 % interval, {protocol.title[0].lower()}{protocol.title[1:]}"
        inside = ["met" if low <= figure.value <= high else MISSED for figure in (covered, sources)]
        verdict = both_ways(*inside)
        if MISSED in verdict:
            misses.append(f"{label} ({covered.value:.1f} %, over sources {sources.value:.1f} %)")
        shown = (label, None, covered.value, ratio_text(covered.spread), sources.value, None, None, None)
        rows.append((*shown, f"{low:.0f}-{high:.0f}", verdict))
    repeats = "" if noise is None else f"Repeats differ by {noise:.1f} % from their median on average. "
    table = Table(
        title="Protocols and targets, MAPE [%]",
        columns=columns_of(
            "protocol | >rows | >MAPE % | >spread | >mean over sources | >median % | >p90 % | >max % | "
            "target | verdict"
        ),
        rows=tuple(rows),
        note=f"{repeats}Spread is the standard deviation over the seeds. Mean over sources: of each source's "
        "MAPE, however many rows it has. A target is met where both means meet it. Columns other than the "
        "means are of the first seed.",
    )
    return table, misses


def _grade(value: float, target: Mapping[str, float]) -> str:
    """How a mean stands to its target."""
    if value > target["at_most"]:
        return MISSED
    return "reached" if value <= target["reach_for"] else "met"


def both_ways(by_rows: str, by_sources: str) -> str:
    """One verdict where both means agree, both where they do not.

    >>> both_ways("met", "met"), both_ways("met", "missed")
    ('met', 'met by rows, missed by sources')
    """
    return by_rows if by_rows == by_sources else f"{by_rows} by rows, {by_sources} by sources"


def targets_headline(summary: Table, misses: Sequence[str], noise: float | None) -> str:
    """How many targets are met, and which are not."""
    targeted = sum(row[-1] != "-" for row in summary.rows)
    verdict = f"{targeted - len(misses)} of {targeted} targets met."
    if misses:
        verdict += f" Missed: {'; '.join(misses)}."
    return verdict if noise is None else f"{verdict} Repeat noise of the corpus: {noise:.1f} %."
