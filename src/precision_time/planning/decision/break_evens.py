"""Break-even points: where the cheapest device changes along the number of devices and along the deadline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...records import dataclass
from .candidate import duration, money
from .choose import Judged


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
    """Both axes, where more than one device has a price; without those that cannot be a choice."""
    if found.apart.any():
        found = found.among(~found.apart)
    priced = np.isfinite(found.outcomes.usd)
    devices = found.rows.table["device"][found.outcomes.row]
    if len({*devices[priced].tolist()}) < 2:  # noqa: PLR2004
        return ()
    return (
        BreakEven(axis="devices", stretches=(by := tuple(_by_count(found))), words=_count_words(by)),
        BreakEven(
            axis="deadline_s", stretches=(until := tuple(_by_deadline(found))), words=_deadline_words(until)
        ),
    )


def _by_count(found: Judged) -> Iterator[Stretch]:
    """At each number of devices the cheapest device, whatever the deadline; equal neighbors joined."""
    outcomes = found.outcomes
    order = np.lexsort((outcomes.usd, outcomes.gpus))
    order = order[np.isfinite(outcomes.usd[order])]
    first = order[np.unique(outcomes.gpus[order], return_index=True)[1]]
    open_: Stretch | None = None
    for number in first.tolist():
        gpus, device = float(outcomes.gpus[number]), str(_device(found, number))
        if open_ is not None and open_.device == device:
            open_ = Stretch(start=open_.start, end=gpus, device=device, usd_at_start=open_.usd_at_start)
            continue
        if open_ is not None:
            yield open_
        open_ = Stretch(start=gpus, end=gpus, device=device, usd_at_start=float(outcomes.usd[number]))
    if open_ is not None:
        yield open_


def _by_deadline(found: Judged) -> Iterator[Stretch]:
    """The cheapest device that is done by each deadline, with the probability asked, from the shortest on."""
    outcomes = found.outcomes
    known = np.flatnonzero(np.isfinite(outcomes.usd) & np.isfinite(outcomes.sure_s))
    order = known[np.lexsort((outcomes.usd[known], outcomes.sure_s[known]))]
    usd = outcomes.usd[order]
    least = np.minimum.accumulate(usd)
    stairs = order[np.flatnonzero(np.concatenate(([True], usd[1:] < least[:-1])))]
    open_: Stretch | None = None
    for number in stairs.tolist():
        seconds, device = float(outcomes.sure_s[number]), str(_device(found, number))
        if open_ is not None and open_.device == device:
            continue
        if open_ is not None:
            yield Stretch(
                start=open_.start, end=seconds, device=open_.device, usd_at_start=open_.usd_at_start
            )
        open_ = Stretch(start=seconds, end=None, device=device, usd_at_start=float(outcomes.usd[number]))
    if open_ is not None:
        yield open_


def _device(found: Judged, number: int) -> Any:
    return found.rows.table["device"][found.outcomes.row[number]]


def _count_words(stretches: tuple[Stretch, ...]) -> str:
    parts = []
    for each in stretches:
        end = int(each.end or each.start)
        span = f"{int(each.start)}" if end == int(each.start) else f"{int(each.start)} to {end}"
        parts.append(f"{span} devices: {each.device} (from {money(each.usd_at_start)})")
    return f"Cheapest device by number of devices: {'; '.join(parts)}."


def _deadline_words(stretches: tuple[Stretch, ...]) -> str:
    parts = [f"from {duration(each.start)}: {each.device} ({money(each.usd_at_start)})" for each in stretches]
    return f"Cheapest device by deadline: {'; '.join(parts)}."
