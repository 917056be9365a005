"""Whether chosen alternatives keep the times that were promised, before and after near ties are weighed."""

from __future__ import annotations

import numpy as np

from precision_time.planning.decision.outcomes import excess_by_ties
from precision_time.planning.decision.space import defaults
from precision_time.render.document import Metric, Section
from precision_time.render.table import CellValue, Table, columns_of
from precision_time_papers.contract import Floats

from .alternatives import Alternatives, groups_by, training
from .choosers import OURS, PREDICTED

PROMISED = (0.5, 0.75, 0.9, 0.95)
LEAST = (2, 5, 10)
"""Alternatives of a group."""
_TO_DEVIATION = 1.4826
"""Of a median distance, where errors are normal."""


def section(found: Alternatives) -> Section:
    """The fastest and the cheapest of each training, on unseen models."""
    predicted_s = found.predicted_s[PREDICTED[OURS]]
    errors = np.log(found.measured_s / predicted_s)
    groups = [group.places for group in groups_by(found, training)]
    apart = np.concatenate([errors[places] - np.median(errors[places]) for places in groups])
    own, whole = (_TO_DEVIATION * float(np.median(np.abs(each))) for each in (apart, errors))
    used = float(defaults()["chosen"]["own_error"])
    rows: list[tuple[CellValue, ...]] = []
    for title, rate in (("fastest", 1.0), ("cheapest", found.usd_per_second)):
        values: Floats = np.log(predicted_s / found.batch * rate)
        known = [places[np.isfinite(values[places])] for places in groups]
        for least in LEAST:
            some = [places for places in known if len(places) >= least]
            best = np.array([places[np.argmin(values[places])] for places in some])
            excess = np.array([_of_least(values[places], used) for places in some])
            late = np.quantile(errors[np.concatenate(some)], PROMISED)
            kept = [(np.mean(errors[best] <= z), np.mean(errors[best] <= z + excess)) for z in late]
            mean = np.mean([np.mean(errors[places]) for places in some])
            rows.append((
                title, least, len(some), 100.0 * float(np.expm1(np.mean(errors[best]) - mean)),
                100.0 * float(np.expm1(np.mean(excess))),
                *(f"{100.0 * before:.0f} -> {100.0 * after:.0f}" for before, after in kept),
            ))  # fmt: skip
    shares = " | ".join(f">kept of {100 * promised:g}" for promised in PROMISED)
    return Section(
        key="promises",
        title="Promised times of the chosen",
        headline=f"Of the error of a predicted time {own:.3f} in the logarithm is not shared by the "
        f"alternatives ({whole:.3f} in all; `plan` reckons with {used:g}).",
        tables=(
            Table(
                title="How often the chosen one keeps its promise [%]: as predicted -> with its near ties",
                columns=columns_of(
                    f"chosen | >of at least | >groups | >longer than all % | >expected by ties % | {shares}"
                ),
                rows=tuple(rows),
                note="Promised: a time within which that share of all alternatives ends, by the quantiles of "
                "their errors. Errors of ours on unseen models.",
            ),
        ),
        figures={"promises.own_error": Metric(value=own)},
    )


def _of_least(values: Floats, own_error: float) -> float:
    """What near ties say of the least of some values."""
    return float(excess_by_ties(values, own_error)[np.argmin(values)])
