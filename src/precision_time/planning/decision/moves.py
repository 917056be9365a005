"""What moves the answer: each number that nobody knows exactly is changed alone, and chosen again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ...arrays import Ints
from ...records import dataclass
from ..money.offer import Market
from .candidate import Candidate, money
from .choose import Choice, Judged, choices_of, judged, objectives
from .front import pareto_front
from .outcomes import Outcomes, Scenario

_MANY = 20_000
"""Candidates beyond which only those of the front of each device are looked at again."""
_MORE, _HALF, _TWICE = 1.2, 0.5, 2.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """What a change of one number does to a choice."""

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
    some = found.outcomes.take(own)
    base = choice.candidate
    moves = []
    for name, words, scenario in _scenarios(base):
        outcomes = again(scenario, some)
        changed = judged(found.space, found.rows, outcomes, found.limits)
        place = int(np.flatnonzero(own == _number(found, choice))[0])
        after = next((each for each in choices_of(changed) if each.aim == choice.aim), None)
        same = after is not None and _key(after.candidate) == _key(base)
        now = changed.candidate(place)
        moves.append(
            Move(
                name=name,
                words=words,
                time_change=now.time_s / base.time_s - 1.0,
                usd_change=_change(now.usd, base.usd),
                carbon_change=_change(now.carbon_g, base.carbon_g),
                still_chosen=same,
                instead=None if same or after is None else after.candidate,
            )
        )
    return tuple(sorted(moves, key=lambda move: (move.still_chosen, -move.size)))


def _scenarios(base: Candidate) -> Iterator[tuple[str, str, Scenario]]:
    device = base.device
    more = f"{_MORE - 1.0:.0%}"
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
    device, points = found.rows.table["device"][found.outcomes.row], objectives(found.outcomes)
    points[:, 0] = found.outcomes.sure_s
    kept = found.front.copy()
    for name in dict.fromkeys(device.tolist()):
        for market in range(len(found.space.markets)):
            here = np.flatnonzero((device == name) & (found.outcomes.market == market))
            kept[here[pareto_front(points[here])]] = True
    for aim in ("cheapest", "fastest", "greenest"):
        kept[found.order(aim)[0]] = True
    return np.flatnonzero(kept)


def _number(found: Judged, choice: Choice) -> int:
    """The number of a choice."""
    return int(found.order(choice.aim, found.feasible)[0])


def _key(candidate: Candidate) -> tuple[Any, ...]:
    return (
        candidate.device,
        candidate.gpus,
        candidate.precision,
        candidate.layout,
        candidate.market,
        candidate.global_batch_size,
    )


def _change(new: float | None, old: float | None) -> float | None:
    return None if new is None or not old else new / old - 1.0
