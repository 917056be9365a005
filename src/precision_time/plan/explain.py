"""Why one layout is faster than another: the terms in which they differ."""

from __future__ import annotations

from collections.abc import Sequence

from ..units import format_duration
from .result import RankedLayout, layout_name

_SAID = 2
"""Terms named on each side."""


def why_first(ranked: Sequence[RankedLayout]) -> str:
    """Why the first layout is faster than the second, in words; empty where there is no second."""
    if len(ranked) < 2:
        return ""
    best, other = ranked[0], ranked[1]
    gap_s = other.step_time_s - best.step_time_s
    gains = term_gains(best, other)
    said = [f"{format_duration(gain_s)} less {_words(name)}" for name, gain_s in gains[:_SAID] if gain_s > 0]
    lost = [
        f"{format_duration(-gain_s)} more {_words(name)}"
        for name, gain_s in gains[::-1][:_SAID]
        if gain_s < 0
    ]
    answer = (
        f"{layout_name(best.layout)} beats {layout_name(other.layout)} by {format_duration(gap_s)} "
        f"({gap_s / other.step_time_s:.1%}): {', '.join(said) or 'no term differs'}"
    )
    return answer + (f", against {', '.join(lost)}." if lost else ".")


def term_gains(best: RankedLayout, other: RankedLayout) -> list[tuple[str, float]]:
    """Seconds that each term of `other` is above that of `best`, largest first; they add up to the gap."""
    names = dict.fromkeys((*best.prediction.terms, *other.prediction.terms))
    gains = [
        (name, other.prediction.terms.get(name, 0.0) - best.prediction.terms.get(name, 0.0)) for name in names
    ]
    return sorted(gains, key=lambda item: -item[1])


def _words(name: str) -> str:
    return name.removesuffix("_s").replace("_", " ")
