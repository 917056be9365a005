"""The page and the picture of the study of remaining times (`eta_study.py`)."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from eta_baselines import SHARES
from eta_series import read_series
from eta_study import FOLDS, OURS, Row, all_moments, fold_numbers, fold_of
from precision_time.render.picture import legible_log_ticks, svg_of

PLAIN_RULES = ("elapsed / step", "median of last 100")
_DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE, PICTURE = _DOCS / "reference" / "online-eta.md", _DOCS / "images" / "online-eta.svg"
_HEAD = """\
# Remaining time of running jobs, measured

<!-- Written by packages/integrations/studies/eta_study.py --write; a minute on one core. -->

{count} recorded runs of {projects} projects, each to its true end ({kinds}), are shown event by event to the
estimate of the [remaining time](../guides/running.md) and to the progress bars of tqdm, the HF Trainer,
Keras and Lightning: their own classes, with a clock that shows the recorded times. A bar that counts one
epoch is taken at its rate for the rest of the run. The numbers of the estimate are fitted on other projects
than those it is measured on ({folds} folds of projects).

What is in the series: {features}.

![Median and mean error of the remaining time](../images/{picture})

## Error of the remaining time

|told - true| / true, in %, median and mean over the series, at shares of the steps done. The last two rows
are no progress bar's: plain rules, for comparison.
"""
_AGAINST = """\
## Against the progress bars

Their median and mean error over ours, on the series for which the bar gives a time. Target at 1 %: 2 for the
best of them.
"""
_COVERAGE = """\
## Coverage

Share of the series whose true remaining time lies in the 90 % interval. Target: 88 to 92 % over all.
"""


def page(ours: Sequence[Row], coverage: Mapping[float, float], bars: Sequence[Row]) -> str:
    """The page of the study.

    What it says is recomputed by packages/integrations/tests/online/test_study.py.
    """
    series = read_series()
    kinds = Counter(each.kind for each in series)
    features = Counter(name for each in series for name in each.features)
    rows = [*ours, *bars]
    head = _HEAD.format(
        count=len(series),
        projects=len({each.project for each in series}),
        kinds=", ".join(f"{count} {kind}" for kind, count in kinds.most_common()),
        folds=FOLDS,
        features=", ".join(f"{name} ({count})" for name, count in features.most_common()),
        picture=PICTURE.name,
    )
    lines = [
        head,
        "| told by | " + _header(),
        "|---|" + "---:|" * 2 * len(SHARES),
    ]
    for method in dict.fromkeys(row.method for row in rows):
        cells = (f"{row.median * 100:.1f} | {row.mean * 100:.1f}" for row in rows if row.method == method)
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    lines += ["", _AGAINST, "| over ours | " + _header(), "|---|" + "---:|" * 2 * len(SHARES)]
    least = {share: [math.inf, math.inf] for share in SHARES}
    for method in dict.fromkeys(row.method for row in bars if row.method not in PLAIN_RULES):
        ratios_of = []
        for share in SHARES:
            row = next(row for row in bars if (row.share, row.method) == (share, method))
            ratios = row.over(next(row for row in ours if row.share == share))
            least[share] = [min(pair) for pair in zip(least[share], ratios, strict=True)]
            ratios_of.append("{:.2f} | {:.2f}".format(*ratios))
        lines.append(f"| {method} ({len(row.errors)} series) | " + " | ".join(ratios_of) + " |")
    lines.append(
        "| the best of them | "
        + " | ".join("{:.2f} | {:.2f}".format(*pair) for pair in least.values())
        + " |"
    )
    lines += [
        "",
        _COVERAGE,
        "| " + " | ".join(f"{share:.0%}" for share in SHARES) + " | all |",
        "|" + "---:|" * (len(SHARES) + 1),
        "| " + " | ".join(f"{value * 100:.1f}" for value in (*coverage.values(), _over_all(coverage))) + " |",
        "",
        "## Series",
        "",
        "| series | source | steps | events | duration [s] | 1 % [%] | 5 % [%] | 20 % [%] | 50 % [%] |",
        "|---|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    by_fold = fold_numbers()
    for each in series:
        moments = {moment.share: moment for moment in all_moments() if moment.series is each}
        numbers = by_fold[fold_of(each.project)]
        told = (
            f"{(moments[share].told(numbers).remaining_s / moments[share].true_s - 1.0) * 100:+.1f}"
            if share in moments
            else "-"
            for share in SHARES
        )
        lines.append(
            f"| {each.name} | {each.source_ref.split(':')[0]} | {each.total_steps} | {len(each.events)} | "
            f"{each.duration_s:.0f} | {' | '.join(told)} |"
        )
    return "\n".join(lines) + "\n"


def _header() -> str:
    return " | ".join(f"{share:.0%} median | {share:.0%} mean" for share in SHARES) + " |"


def _over_all(coverage: Mapping[float, float]) -> float:
    return statistics.fmean(coverage.values())


def picture(rows: Sequence[Row]) -> str:
    """Errors of each method at each share, as SVG."""
    methods = list(dict.fromkeys(row.method for row in rows))[::-1]

    def draw(figure: Any) -> None:
        axes = figure.subplots(1, len(SHARES), sharey=True)
        for share, ax in zip(SHARES, axes, strict=True):
            for place, method in enumerate(methods):
                row = next(each for each in rows if each.share == share and each.method == method)
                color = "#4c78a8" if method == OURS else "#9a9a9a"
                quartiles = np.quantile(row.errors, (0.25, 0.75)) * 100.0
                ax.plot(quartiles, (place, place), color=color, linewidth=5, alpha=0.4)
                ax.plot(row.median * 100.0, place, "o", color=color)
                ax.plot(row.mean * 100.0, place, "x", color=color)
            ax.set_xscale("log")
            legible_log_ticks(ax.xaxis, 1000.0)
            ax.set_title(f"at {share:.0%} of the steps", fontsize=9)
            ax.set_xlabel("error [%]")
            ax.set_yticks(range(len(methods)), methods)
            ax.grid(axis="x", alpha=0.3)
        figure.suptitle("Remaining time: median (dot), mean (cross), quartiles (bar)", fontsize=9)

    return svg_of(draw, height=3.0, width=10.0)
