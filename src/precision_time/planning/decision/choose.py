"""Cheapest, fastest and greenest of the candidates that keep the limits, and why."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...arrays import Bools, Floats, Ints
from ...diagnostics import EXTRAPOLATION, UNMEASURED
from ...hardware.prices.offer import Offer
from ...records import dataclass
from ...units import grouped
from ..energy.grid import grid_of_region
from .candidate import Candidate, carbon, duration, money
from .front import pareto_front
from .limits import Limits
from .outcomes import Outcomes, Rows
from .space import UNPRICED, Space
from .timing import STATED, fields_of_row

FIGURE_OF: Mapping[str, str] = {"cheapest": "usd", "fastest": "time_s", "greenest": "carbon_g"}
"""By aim what is least."""
_WORDS_OF: Mapping[str, Callable[[float], str]] = {"cheapest": money, "fastest": duration, "greenest": carbon}
AIMS = tuple(FIGURE_OF)
_TIES = ("usd", "time_s", "carbon_g")
"""What decides between equals, in this order."""
_OBJECTIVES = ("time_s", "usd", "carbon_g")
OF_OFFER = ("cloud", "instance_type", "region")
_FIGURES_OF_ROW = ("batch_size", "global_batch_size", "step_time_s", "memory_bytes_per_device")
_MAYBE_KNOWN = ("probability", "usd_per_hour", "usd", "carbon_g")


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The best candidate by one aim, and why."""

    aim: str
    candidate: Candidate
    runner_up: Candidate | None
    """The best of another device, else of another number of devices; what the reason compares with."""
    reason: str
    unmeasured: Candidate | None = None
    """The best on a device without measured runs, where its data sheet would make it the choice."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """All candidates with what the limits say of them."""

    space: Space
    rows: Rows
    outcomes: Outcomes
    limits: Limits
    feasible: Bools
    excess: Floats
    """Logarithm of how often the most broken limit is reached; 0 or less where all are kept."""
    front: Bools
    """Of the feasible ones, else of all."""

    def candidate(self, number: int) -> Candidate:
        """One of them."""
        found, row = self.outcomes, int(self.outcomes.row[number])
        table, spot = self.rows.table, self.space.spots[int(self.rows.spot[row])]
        offer = int(found.offer[number])
        of_offer = {name: "" for name in (*OF_OFFER, "market")}
        if offer != UNPRICED:
            of_offer = {name: getattr(self.space.offers[offer], name) for name in OF_OFFER}
            of_offer["market"] = self.space.markets[int(found.market[number])].value
        figures: dict[str, Any] = {
            **{name: str(table[name][row] or "") for name in ("device", "precision", "layout")},
            **{name: float(table[name][row]) for name in _FIGURES_OF_ROW},
            **{name: int(getattr(found, name)[number]) for name in ("gpus", "instances")},
            **{name: float(getattr(found, name)[number]) for name in ("time_s", "sure_s", "energy_j")},
            **{name: _known(getattr(found, name)[number]) for name in _MAYBE_KNOWN},
            **of_offer,
        }
        return Candidate(
            **figures,
            terms_s={name: float(values[number]) for name, values in found.terms_s.items()},
            mfu=_known(table["mfu"][row]),
            feasible=bool(self.feasible[number]),
            on_front=bool(self.front[number]),
            warnings=tuple(str(table["warnings"][row] or "").split()),
            request=fields_of_row(spot.fields, table, row, stated=bool(table[STATED][row])),
        )

    @property
    def apart(self) -> Bools:
        """Candidates that cannot be a choice: nobody measured their device, and another's is feasible."""
        return ~self.measured if (self.feasible & self.measured).any() else np.zeros_like(self.feasible)

    def among(self, some: Bools) -> Judged:
        """Some of the candidates."""
        kept = {name: getattr(self, name)[some] for name in ("feasible", "excess", "front")}
        return replace(self, outcomes=self.outcomes.take(np.flatnonzero(some)), **kept)

    def candidates(self, numbers: Ints | Sequence[int]) -> tuple[Candidate, ...]:
        """Some of them."""
        return tuple(self.candidate(int(number)) for number in numbers)

    def order(self, aim: str, among: Bools | None = None) -> Ints:
        """Numbers from the best to the worst: feasible first, then by how little they miss.

        Of the feasible ones those on devices that nobody measured come last: of hundreds of candidates the
        best is often the one whose data sheet promises too much.
        """
        least = dict.fromkeys((FIGURE_OF[aim], *_TIES))
        keys = [_ordered(getattr(self.outcomes, name)) for name in reversed(least)]
        miss = np.where(self.feasible, 0.0, self.excess)
        found = np.lexsort((*keys, self.feasible & ~self.measured, miss))
        return found if among is None else found[among[found]]

    @property
    def devices(self) -> Any:
        """Name of the device of each candidate."""
        return self.rows.table["device"][self.outcomes.row]

    @property
    def measured(self) -> Bools:
        """Whether measured runs have the device of each candidate, and its precision in such models."""
        doubted: Bools = np.logical_or.reduce([self._warned(code) for code in UNMEASURED])
        return ~doubted

    @property
    def inside(self) -> Bools:
        """Whether measured runs are like each candidate in model, device, number, software and precision."""
        return self.measured & ~self._warned(EXTRAPOLATION)

    def _warned(self, code: str) -> Bools:
        told = self.rows.table["warnings"].tolist()
        return np.array([code in str(codes or "").split() for codes in told], dtype=bool)[self.outcomes.row]


def judged(space: Space, rows: Rows, outcomes: Outcomes, limits: Limits) -> Judged:
    """What the limits say of every candidate."""
    excess = np.full(len(outcomes), -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        if limits.deadline_s is not None:
            excess = np.maximum(excess, np.log(outcomes.sure_s / limits.deadline_s))
        for limit, values in ((limits.budget_usd, outcomes.usd), (limits.carbon_g, outcomes.carbon_g)):
            if limit is not None:
                excess = np.maximum(excess, np.log(_ordered(values) / limit))
    feasible = (excess <= 0.0) & np.isfinite(outcomes.time_s)
    compete = feasible if feasible.any() else np.isfinite(outcomes.time_s)
    front = np.zeros(len(outcomes), dtype=bool)
    front[compete] = pareto_front(objectives(outcomes)[compete])
    return Judged(
        space=space,
        rows=rows,
        outcomes=outcomes,
        limits=limits,
        feasible=feasible,
        excess=excess,
        front=front,
    )


def objectives(outcomes: Outcomes) -> Floats:
    """Seconds, dollars and grams of every candidate, shape (N, 3)."""
    return np.stack([getattr(outcomes, name) for name in _OBJECTIVES], axis=1)


def choices_of(found: Judged) -> tuple[Choice, ...]:
    """The best feasible candidate by each aim; none where nothing is feasible."""
    choices = []
    for aim in AIMS:
        known = found.feasible & np.isfinite(_ordered(getattr(found.outcomes, FIGURE_OF[aim])))
        order = found.order(aim, known)
        if not len(order):
            continue
        best = found.candidate(order[0])
        second = _other(found, order)
        next_best = None if second is None else found.candidate(second)
        promised, least = order[~found.measured[order]], getattr(found.outcomes, FIGURE_OF[aim])
        is_better = len(promised) and found.measured[order[0]] and least[promised[0]] < least[order[0]]
        choices.append(
            Choice(
                aim=aim,
                candidate=best,
                runner_up=next_best,
                reason=_REASONS[aim](best, next_best, len(order), found) + _beyond(found, order, aim),
                unmeasured=found.candidate(promised[0]) if is_better else None,
            )
        )
    return tuple(choices)


def _beyond(found: Judged, order: Ints, aim: str) -> str:
    """What rests on measured runs like it, where the choice does not: of many the best is often too good."""
    if found.inside[order[0]]:
        return ""
    inside = order[found.inside[order]]
    if not len(inside):
        return " No candidate is like a measured run."
    values, words = getattr(found.outcomes, FIGURE_OF[aim]), _WORDS_OF[aim]
    least, more = float(values[inside[0]]), float(values[inside[0]] / values[order[0]]) - 1.0
    other = found.candidate(inside[0]).label
    return f" No measured run is like it; of those like one: {other}, {words(least)} ({more:+.0%})."


def _other(found: Judged, order: Ints) -> int | None:
    """The best of another device, else of another number of devices, else of another precision."""
    for name in ("device", "gpus", "precision"):
        values = found.rows.table[name][found.outcomes.row[order]]
        others = np.flatnonzero(values != values[0])
        if len(others):
            return int(order[others[0]])
    return None


def _cheapest(best: Candidate, other: Candidate | None, count: int, found: Judged) -> str:
    assert best.usd is not None and best.usd_per_hour is not None
    parts = [
        f"Least money of the {count:,} candidates that {_keep(found)} and have a price: {money(best.usd)} "
        f"for {duration(best.time_s)} of {best.place} at {money(best.usd_per_hour)} an hour."
    ]
    if other is not None and other.usd is not None and other.usd_per_hour is not None:
        hours = other.device_hours / best.device_hours
        price = (other.usd_per_hour / other.gpus) / (best.usd_per_hour / best.gpus)
        parts.append(
            f"{_next(best, other)}: {other.label}, {money(other.usd)} ({other.usd / best.usd - 1.0:+.0%}): "
            f"{hours:.2f} x the device-hours at {price:.2f} x the price of one."
        )
    return " ".join(parts)


def _fastest(best: Candidate, other: Candidate | None, count: int, found: Judged) -> str:
    parts = [f"Soonest done of the {count:,} candidates that {_keep(found)}: {duration(best.time_s)}."]
    if best.gpus == int(found.outcomes.gpus.max()):
        parts.append(f"It has as many devices as are allowed ({best.gpus}).")
    if other is not None:
        parts.append(
            f"{_next(best, other)}: {other.label}, {duration(other.time_s)} "
            f"({other.time_s / best.time_s - 1.0:+.0%})."
        )
    return " ".join(parts)


def _greenest(best: Candidate, other: Candidate | None, count: int, found: Judged) -> str:
    grid = grid_of_region(best.cloud, best.region)
    assert grid is not None
    parts = [
        f"Least carbon of the {count:,} candidates that {_keep(found)} and whose grid is known: "
        f"{carbon(best.carbon_g)} from {grouped(best.energy_kwh)} kWh at {grid.g_per_kwh:,.0f} g/kWh "
        f"({grid.place})."
    ]
    if other is not None and other.carbon_g is not None and best.carbon_g:
        parts.append(
            f"{_next(best, other)}: {other.label}, {carbon(other.carbon_g)} "
            f"({other.carbon_g / best.carbon_g - 1.0:+.0%}), {grouped(other.energy_kwh)} kWh in "
            f"{other.region}."
        )
    return " ".join(parts)


_REASONS: Mapping[str, Callable[[Candidate, Candidate | None, int, Judged], str]] = {
    "cheapest": _cheapest,
    "fastest": _fastest,
    "greenest": _greenest,
}


def is_offer(offer: Offer, best: Candidate) -> bool:
    """Whether it is what a candidate is rented by."""
    return all(getattr(offer, name) == getattr(best, name) for name in OF_OFFER)


def _keep(found: Judged) -> str:
    return "keep the limits" if found.limits.words else "fit in memory"


def _next(best: Candidate, other: Candidate) -> str:
    for name, words in (("device", "device"), ("gpus", "number of devices"), ("precision", "precision")):
        if getattr(best, name) != getattr(other, name):
            return f"The next {words}"
    return "The next"


def _known(value: Any) -> float | None:
    return None if value is None or not math.isfinite(value) else float(value)


def _ordered(values: Floats) -> Floats:
    """Values with what is not known last."""
    return np.where(np.isnan(values), np.inf, values)
