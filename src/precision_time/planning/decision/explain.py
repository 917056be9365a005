"""What would change a plan: break-even points, what-ifs, what moves the choice, and the nearest miss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np

from ...arrays import Floats, Ints
from ...hardware.catalog import Custom
from ...hardware.prices.offer import Market
from ...precision.support import supported_precisions
from ...records import dataclass
from .candidate import Candidate, carbon, chance, duration, money
from .choose import AIMS, Choice, Judged, choices_of, is_offer, judged, objectives
from .front import pareto_front
from .limits import Limits
from .outcomes import Outcomes, Scenario
from .space import UNPRICED, Space, Spot, defaults, near_batch

_PERCENT = 0.005
_MANY = 20_000
"""Candidates beyond which only those of the front of each device are looked at again."""
_MORE, _HALF, _TWICE = 1.2, 0.5, 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Stretch:
    """A stretch of an axis on which one device is the cheapest."""

    start: float
    end: float | None
    """None: from there on."""
    device: str
    usd_at_start: float


@dataclass(frozen=True, kw_only=True, slots=True)
class BreakEven:
    """Which device is the cheapest along an axis."""

    axis: str
    """devices or deadline_s."""
    stretches: tuple[Stretch, ...]
    words: str


def break_evens(found: Judged) -> tuple[BreakEven, ...]:
    """Where the cheapest device changes along the number of devices and the deadline.

    Only where more than one device has a price; without those that cannot be a choice.
    """
    if found.apart.any():
        found = found.among(~found.apart)
    outcomes, priced = found.outcomes, np.isfinite(found.outcomes.usd)
    if len({*found.devices[priced].tolist()}) < 2:
        return ()
    order = np.lexsort((outcomes.usd, outcomes.gpus))
    order = order[priced[order]]
    cheapest = order[np.unique(outcomes.gpus[order], return_index=True)[1]]  # at each number of devices
    by_count = [(run[0], run[-1][0]) for run in _runs(found, cheapest, outcomes.gpus)]
    known = np.flatnonzero(priced & np.isfinite(outcomes.sure_s))
    order = known[np.lexsort((outcomes.usd[known], outcomes.sure_s[known]))]
    usd = outcomes.usd[order]
    least = np.concatenate(([np.inf], np.minimum.accumulate(usd)))[: len(usd)]
    stairs = order[usd < least]  # less, if later
    starts = [run[0] for run in _runs(found, stairs, outcomes.sure_s)]
    by_deadline = zip(starts, [*(start[0] for start in starts[1:]), None], strict=True)
    found_by = {"devices": by_count, "deadline_s": by_deadline}
    stretches = {
        axis: tuple(
            Stretch(start=start, end=end, device=device, usd_at_start=usd)
            for (start, usd, device), end in spans
        )
        for axis, spans in found_by.items()
    }
    return tuple(
        BreakEven(axis=axis, stretches=some, words=_STRETCH_WORDS[axis](some))
        for axis, some in stretches.items()
    )


def _runs(found: Judged, numbers: Ints, at: Floats | Ints) -> list[list[tuple[float, float, str]]]:
    """Place, dollars and device of some candidates, those of equal neighbors together."""
    values = (at[numbers], found.outcomes.usd[numbers], found.devices[numbers])
    points = ((float(place), float(usd), str(device)) for place, usd, device in zip(*values, strict=True))
    return [[*run] for _, run in groupby(points, key=lambda point: point[2])]


def _count_words(stretches: Sequence[Stretch]) -> str:
    parts = []
    for each in stretches:
        start, end = int(each.start), int(each.end or each.start)
        span = f"{start}" if end == start else f"{start} to {end}"
        parts.append(f"{span} devices: {each.device} (from {money(each.usd_at_start)})")
    return f"Cheapest device by number of devices: {'; '.join(parts)}."


def _deadline_words(stretches: Sequence[Stretch]) -> str:
    parts = [f"from {duration(each.start)}: {each.device} ({money(each.usd_at_start)})" for each in stretches]
    return f"Cheapest device by deadline: {'; '.join(parts)}."


_STRETCH_WORDS: Mapping[str, Callable[[Sequence[Stretch]], str]] = {
    "devices": _count_words,
    "deadline_s": _deadline_words,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Miss:
    """The candidate that breaks the limits least, by how much, and what would be enough."""

    candidate: Candidate
    by: str
    """Which limits it breaks, and by how much."""
    remedies: tuple[str, ...]
    """What it would take, each alone."""


def nearest_miss(found: Judged, beyond: Judged | None = None) -> Miss | None:
    """The nearest miss; None where something keeps the limits, or nothing has an answer."""
    compete = np.isfinite(found.outcomes.time_s)
    if found.feasible.any() or not compete.any():
        return None
    best = found.candidate(int(found.order("cheapest", compete)[0]))
    broken = [*_broken(best, found.limits)]
    remedies = (*_looser(found, best, len(broken)), *_more_devices(beyond))
    return Miss(candidate=best, by=" and ".join(broken), remedies=remedies)


_LimitWords = tuple[float | None, str, Callable[[float], str]]


def _broken(best: Candidate, limits: Limits) -> Iterator[str]:
    sure = f"it takes {{}} to be done with probability {limits.confidence:.0%}"
    for limit, value, unknown, said, whose, words in (
        (limits.deadline_s, best.sure_s, "", sure, "the deadline of", duration),
        (limits.budget_usd, best.usd, "nobody in the list of prices rents it", "it costs {}", "the budget of",
         money),
        (limits.carbon_g, best.carbon_g, "its grid is not known", "it emits {}", "the limit of", carbon),
    ):  # fmt: skip
        if limit is not None and value is None:
            yield unknown
        elif limit is not None and value is not None and not value <= limit:
            ratio = value / limit
            times = f"{ratio:.2f} x" if ratio < 10.0 else f"{ratio:,.0f} x"
            yield f"{said.format(words(value))}, {times} {whose} {words(limit)}"


def _looser(found: Judged, best: Candidate, broken: int) -> Iterator[str]:
    """The least of each limit that would do while the others stay, all together, and a smaller chance."""
    limits, outcomes = found.limits, found.outcomes
    asked: dict[str, _LimitWords] = {
        "sure_s": (limits.deadline_s, "a deadline of {}", duration),
        "usd": (limits.budget_usd, "a budget of {}", money),
        "carbon_g": (limits.carbon_g, "{} of CO2", carbon),
    }
    kept = {  # NaN is not known to be within
        name: np.full(len(outcomes), True) if limit is None else getattr(outcomes, name) <= limit
        for name, (limit, *_) in asked.items()
    }
    for name, (limit, said, words) in asked.items():
        others = np.all([mask for other, mask in kept.items() if other != name], axis=0)
        known = np.where(others, getattr(outcomes, name), np.nan)
        known = np.where(np.isfinite(known), known, np.nan)
        if limit is None or np.isnan(known).all():
            continue
        number = int(np.nanargmin(known))
        yield f"{said.format(words(float(known[number])))} would do: {found.candidate(number).label}."
    if broken > 1:
        parts = [
            said.format(words(getattr(best, name)))
            for name, (limit, said, words) in asked.items()
            if limit is not None
        ]
        yield f"{' and '.join(parts)} together would do: {best.label}."
    if limits.deadline_s is not None and limits.confidence > 0.5:
        even = kept["usd"] & kept["carbon_g"] & (outcomes.time_s <= limits.deadline_s)
        if even.any():
            number = int(np.argmax(np.where(even, outcomes.probability, -1.0)))
            percent = math.floor(100 * float(outcomes.probability[number]))
            yield f"a probability of {percent}% would do: {found.candidate(number).label}."


def _more_devices(beyond: Judged | None) -> Iterator[str]:
    if beyond is None or not len(beyond.outcomes):
        return
    if not beyond.feasible.any():
        yield f"more devices alone would not do: up to {int(beyond.outcomes.gpus.max()):,} were tried."
        return
    few = np.where(beyond.feasible, beyond.outcomes.gpus, np.inf)
    best = beyond.candidate(int(np.lexsort((beyond.outcomes.usd, few))[0]))
    yield (
        f"more devices would do: {best.label}, {duration(best.time_s)}, {money(best.usd)} "
        f"(--max-gpus {best.gpus})."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """What a change of one number that nobody knows exactly does to a choice."""

    name: str
    words: str
    """The change."""
    time_change: float
    """Of the choice, relative."""
    usd_change: float | None
    carbon_change: float | None
    still_chosen: bool
    instead: Candidate | None
    """What would be chosen; None where it stays, or nothing keeps the limits."""

    @property
    def size(self) -> float:
        """The largest of the changes."""
        return max(abs(self.time_change), abs(self.usd_change or 0.0), abs(self.carbon_change or 0.0))

    def __str__(self) -> str:
        moved = {"time": self.time_change, "money": self.usd_change, "carbon": self.carbon_change}
        parts = [f"{name} {change:+.0%}" for name, change in moved.items() if change is not None]
        then = "the choice stays" if self.still_chosen else "nothing keeps the limits"
        if self.instead is not None:
            then = f"then {self.instead.label} for {money(self.instead.usd)}"
        return f"{self.words}: {', '.join(parts)}; {then}"


Again = Callable[[Scenario, Outcomes], Outcomes]
"""The outcomes of some candidates in a scenario."""


def moves_of(found: Judged, choice: Choice, again: Again) -> tuple[Move, ...]:
    """Each change alone, what changes the choice first, then what moves it most."""
    own = _contenders(found)
    some, base = found.outcomes.take(own), choice.candidate
    chosen = int(found.order(choice.aim, found.feasible)[0])
    place = int(np.flatnonzero(own == chosen)[0])
    moves = []
    for name, words, scenario in _scenarios(base):
        changed = judged(found.space, found.rows, again(scenario, some), found.limits)
        after = next((each.candidate for each in choices_of(changed) if each.aim == choice.aim), None)
        same, now = after is not None and _key(after) == _key(base), changed.candidate(place)
        moves.append(
            Move(
                name=name,
                words=words,
                time_change=now.time_s / base.time_s - 1.0,
                usd_change=_change(now.usd, base.usd),
                carbon_change=_change(now.carbon_g, base.carbon_g),
                still_chosen=same,
                instead=None if same else after,
            )
        )
    return tuple(sorted(moves, key=lambda move: (move.still_chosen, -move.size)))


def _scenarios(base: Candidate) -> Iterator[tuple[str, str, Scenario]]:
    device, more = base.device, f"{_MORE - 1.0:.0%}"
    yield "step_time", f"steps of {device} {more} longer", Scenario(step={device: _MORE})
    if base.usd is not None:
        yield "price", f"{device} {more} dearer", Scenario(price={device: _MORE})
    yield "mtbf", "failures twice as often", Scenario(mtbf=_HALF)
    if base.market == Market.SPOT.value:
        yield "reclaims", "spot hosts reclaimed twice as often", Scenario(reclaims=_TWICE)
    yield "start_up", "start-up twice as long", Scenario(start_up=_TWICE)
    yield "power", f"{more} more power", Scenario(power=_MORE)


def _contenders(found: Judged) -> Ints:
    """Candidates that can be chosen when numbers change for a device: all, or those on its front."""
    if len(found.outcomes) <= _MANY:
        return np.arange(len(found.outcomes))
    device, points = found.devices, objectives(found.outcomes)
    points[:, 0] = found.outcomes.sure_s
    kept = found.front.copy()
    for name in dict.fromkeys(device.tolist()):
        for market in range(len(found.space.markets)):
            here = np.flatnonzero((device == name) & (found.outcomes.market == market))
            kept[here[pareto_front(points[here])]] = True
    for aim in AIMS:
        kept[found.order(aim)[0]] = True
    return np.flatnonzero(kept)


def _key(candidate: Candidate) -> tuple[Any, ...]:
    names = ("device", "gpus", "precision", "layout", "market", "global_batch_size")
    return tuple(getattr(candidate, name) for name in names)


def _change(new: float | None, old: float | None) -> float | None:
    return None if new is None or not old else new / old - 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class WhatIf:
    """What one change of a choice would do."""

    question: str
    candidate: Candidate | None
    """None where there is no such run."""
    answer: str


Evaluate = Callable[[Space], tuple[Judged, Mapping[int, str]]]
"""Answers a space; with the reasons of spots that have no answer."""


def what_ifs(found: Judged, best: Candidate, evaluate: Evaluate) -> tuple[WhatIf, ...]:
    """A node more or less, a precision lower or higher, another market, another device, each alone."""
    own = next(
        (
            (spot, offer)
            for spot in found.space.spots
            for offer in spot.offers
            if (spot.device, spot.gpus, spot.instances) == (best.device, best.gpus, best.instances)
            and (offer == UNPRICED or is_offer(found.space.offers[offer], best))
        ),
        None,
    )
    if own is None:
        return ()
    asked = [*_changed(found, best, *own)]
    markets = tuple(dict.fromkeys((*found.space.markets, *Market)))
    space = replace(found.space, spots=tuple(spot for *_, spot in asked), markets=markets)
    changed, refused = evaluate(space)
    answers = []
    for number, (question, market, spot) in enumerate(asked):
        candidate = _best_of(changed, number, market or best.market)
        if candidate is not None:
            answer = _compared(best, candidate, spot)
        elif market:
            continue  # the offer has no price there
        else:
            answer = refused.get(number, "it has no answer")
        answers.append(WhatIf(question=question, candidate=candidate, answer=answer))
    return (*answers, *_other_devices(found, best))


def _changed(found: Judged, best: Candidate, spot: Spot, offer: int) -> Iterator[tuple[str, str, Spot]]:
    """Each question, the market where that changes, and the spot that answers it, with the same offer."""
    alone = replace(spot, offers=(offer,))
    # A layout that was found for the choice is not that of another number or precision.
    asked = {name: best.request[name] for name in spot.fields if name in best.request}
    for words, instances in (("one more node", best.instances + 1), ("one node less", best.instances - 1)):
        if instances < 1:
            continue
        gpus, over = instances * max(best.gpus // best.instances, 1), ""
        fields = {**asked, "gpus": gpus, "nodes": instances}
        if instances > 1 and not {"node_type", "inter_node"} & {*fields} and offer != UNPRICED:
            fields["inter_node"] = defaults()["network"]["assumed"]
            over = f" (network not known, {fields['inter_node']})"
        if fields.get("global_batch_size"):
            fields["global_batch_size"] = near_batch(int(fields["global_batch_size"]), gpus)
        yield words + over, "", replace(alone, instances=instances, gpus=gpus, fields=fields)
    for words, precision in precision_neighbors(best.precision, best.device, found.space.own).items():
        yield f"{words} ({precision})", "", replace(alone, fields={**asked, "precision": precision})
    for market in Market:
        if market.value != best.market and offer != UNPRICED:
            yield f"on the {market} market", market, replace(alone, fields=dict(best.request))


def precision_neighbors(precision: str, device: str, own: Custom | None = None) -> dict[str, str]:
    """The next narrower and wider precision that a device has units for, by what to call the step.

    >>> precision_neighbors("bf16-mixed", "H100-SXM5-80GB")
    {'one precision lower': 'fp8-mixed', 'one precision higher': 'tf32'}
    """
    rows = defaults()["precisions"]
    able = set(supported_precisions((own or Custom()).device(device)))
    ladder = [name for name in rows["ladder"] if name in able or name == rows["equal"].get(precision)]
    here = rows["equal"].get(precision, precision)
    if here not in ladder:
        return {}
    at = ladder.index(here)
    found = {}
    if at + 1 < len(ladder):
        found["one precision lower"] = ladder[at + 1]
    if at:
        found["one precision higher"] = ladder[at - 1]
    return found


def _best_of(found: Judged, spot: int, market: str) -> Candidate | None:
    """The cheapest candidate of a spot in a market."""
    outcomes = found.outcomes
    own = found.rows.spot[outcomes.row] == spot
    numbers = [place for place, each in enumerate(found.space.markets) if each.value == market]
    if numbers and not (outcomes.offer[own] == UNPRICED).all():
        own &= outcomes.market == numbers[0]
    order = found.order("cheapest", own)
    return found.candidate(order[0]) if len(order) else None


def _other_devices(found: Judged, best: Candidate) -> Iterator[WhatIf]:
    """The next faster and the next slower device at the same number, each as cheap as it is rented."""
    outcomes, devices = found.outcomes, found.devices
    same = (outcomes.gpus == best.gpus) & np.isfinite(outcomes.time_s)
    fastest = {each: float(outcomes.time_s[same & (devices == each)].min()) for each in {*devices[same]}}
    names = sorted(fastest, key=lambda each: (fastest[each], each))
    if best.device not in names:
        return
    at = names.index(best.device)
    for words, place in (("one device type up", at - 1), ("one device type down", at + 1)):
        if 0 <= place < len(names):
            order = found.order("cheapest", same & (devices == names[place]))
            other = found.candidate(order[0])
            yield WhatIf(
                question=f"{words} ({names[place]}{', unmeasured' if other.unmeasured else ''})",
                candidate=other,
                answer=_compared(best, other, None),
            )


def _compared(best: Candidate, other: Candidate, spot: Spot | None) -> str:
    """Time, money and carbon of a change beside those of the choice."""
    parts = [f"{duration(other.time_s)}{_moved(other.time_s, best.time_s)}"]
    if other.usd is not None:
        parts.append(f"{money(other.usd)}{_moved(other.usd, best.usd)}")
    if other.carbon_g is not None:
        parts.append(f"{carbon(other.carbon_g)}{_moved(other.carbon_g, best.carbon_g)}")
    if other.probability is not None:
        parts.append(f"in time with {chance(other.probability)}")
    if spot is not None and other.global_batch_size != best.global_batch_size:
        parts.append(f"at a global batch of {other.global_batch_size:,.0f}")
    return ", ".join(parts) + ("" if other.feasible or not best.feasible else "; breaks a limit")


def _moved(new: float, old: float | None) -> str:
    if old is None or not old > 0.0 or not np.isfinite(new / old):
        return ""
    change = new / old - 1.0
    return " (the same)" if abs(change) < _PERCENT else f" ({change:+.0%})"
