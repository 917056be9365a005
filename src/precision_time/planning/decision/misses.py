"""Where nothing keeps the limits: the nearest miss, and what it would take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...arrays import Bools, Floats
from ...records import dataclass
from .candidate import Candidate, carbon, duration, money
from .choose import Judged
from .limits import Limits


@dataclass(frozen=True, kw_only=True, slots=True)
class Miss:
    """The candidate that breaks the limits least, by how much, and what would be enough."""

    candidate: Candidate
    by: str
    """Which limits it breaks, and by how much."""
    remedies: tuple[str, ...]
    """What it would take, each alone."""


def nearest_miss(found: Judged, beyond: Judged | None = None) -> Miss | None:
    """The nearest miss; None where something keeps the limits, or nothing has an answer.

    Args:
        found: What was asked.
        beyond: The same with more devices than are allowed.
    """
    compete = np.isfinite(found.outcomes.time_s)
    if found.feasible.any() or not compete.any():
        return None
    best = found.candidate(_nearest(found))
    return Miss(
        candidate=best,
        by=" and ".join(_broken(best, found.limits)),
        remedies=tuple(_remedies(found, beyond)),
    )


def _nearest(found: Judged) -> int:
    return int(found.order("cheapest", np.isfinite(found.outcomes.time_s))[0])


def _broken(best: Candidate, limits: Limits) -> Iterator[str]:
    if limits.deadline_s is not None and best.sure_s > limits.deadline_s:
        yield (
            f"it takes {duration(best.sure_s)} to be done with probability {limits.confidence:.0%}, "
            f"{_times(best.sure_s / limits.deadline_s)} the deadline of {duration(limits.deadline_s)}"
        )
    if limits.budget_usd is not None and not (best.usd is not None and best.usd <= limits.budget_usd):
        if best.usd is None:
            yield "nobody in the list of prices rents it"
        else:
            yield (
                f"it costs {money(best.usd)}, {_times(best.usd / limits.budget_usd)} the budget of "
                f"{money(limits.budget_usd)}"
            )
    if limits.carbon_g is not None and not (best.carbon_g is not None and best.carbon_g <= limits.carbon_g):
        if best.carbon_g is None:
            yield "its grid is not known"
        else:
            yield (
                f"it emits {carbon(best.carbon_g)}, {_times(best.carbon_g / limits.carbon_g)} the limit of "
                f"{carbon(limits.carbon_g)}"
            )


def _times(ratio: float) -> str:
    return f"{ratio:.2f} x" if ratio < 10.0 else f"{ratio:,.0f} x"  # noqa: PLR2004


def _remedies(found: Judged, beyond: Judged | None) -> Iterator[str]:
    """The least of each limit that would do while the others stay, and more devices."""
    limits, outcomes = found.limits, found.outcomes
    kept = {
        "deadline": _within(outcomes.sure_s, limits.deadline_s),
        "budget": _within(outcomes.usd, limits.budget_usd),
        "carbon": _within(outcomes.carbon_g, limits.carbon_g),
    }
    asked: dict[str, tuple[float | None, Floats, Callable[[float], str]]] = {
        "deadline": (limits.deadline_s, outcomes.sure_s, lambda value: f"a deadline of {duration(value)}"),
        "budget": (limits.budget_usd, outcomes.usd, lambda value: f"a budget of {money(value)}"),
        "carbon": (limits.carbon_g, outcomes.carbon_g, lambda value: f"{carbon(value)} of CO2"),
    }
    for name, (limit, values, words) in asked.items():
        others = np.all([mask for other, mask in kept.items() if other != name], axis=0)
        known = np.where(others, values, np.nan)
        if limit is None or not np.isfinite(known).any():
            continue
        number = int(np.nanargmin(np.where(np.isfinite(known), known, np.nan)))
        yield f"{words(float(known[number]))} would do: {found.candidate(number).label}."
    if len([*_broken(found.candidate(_nearest(found)), limits)]) > 1:
        best = found.candidate(_nearest(found))
        parts = [
            words
            for limit, words in (
                (limits.deadline_s, f"a deadline of {duration(best.sure_s)}"),
                (limits.budget_usd, f"a budget of {money(best.usd)}"),
                (limits.carbon_g, f"{carbon(best.carbon_g)} of CO2"),
            )
            if limit is not None
        ]
        yield f"{' and '.join(parts)} together would do: {best.label}."
    if limits.deadline_s is not None and limits.confidence > 0.5:  # noqa: PLR2004
        even = kept["budget"] & kept["carbon"] & (outcomes.time_s <= limits.deadline_s)
        if even.any():
            number = int(np.argmax(np.where(even, outcomes.probability, -1.0)))
            chance = float(outcomes.probability[number])
            yield f"a probability of {math.floor(100 * chance)}% would do: {found.candidate(number).label}."
    if beyond is not None and beyond.feasible.any():
        few = np.where(beyond.feasible, beyond.outcomes.gpus, np.inf)
        number = int(np.lexsort((beyond.outcomes.usd, few))[0])
        best = beyond.candidate(number)
        yield (
            f"more devices would do: {best.label}, {duration(best.time_s)}, {money(best.usd)} "
            f"(--max-gpus {best.gpus})."
        )
    elif beyond is not None and len(beyond.outcomes):
        most = int(beyond.outcomes.gpus.max())
        yield f"more devices alone would not do: up to {most:,} were tried."


def _within(values: Any, limit: float | None) -> Bools:
    if limit is None:
        return np.ones(len(values), dtype=bool)
    return np.asarray(values <= limit)  # NaN is not known to be within
