"""Whole searches for a layout where they can change the cheapest choice: branch and bound.

The sweep takes the fastest of some usual layouts; `find_layouts` prices all, which takes seconds. A row can
become the cheapest only if its products at the peak of its devices, at its lowest price, cost less than the
best so far, and end before the deadline. Rows are searched best first until none such is left: then the
choice is that of a search of every row (tests/planning/decision/test_refine.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ...arrays import Floats
from ...predict.remedies import at_layout
from ...records import dataclass
from ...request.request import Request
from ..layouts.api import SEARCHED_FIELDS, find_layouts
from .choose import Judged
from .outcomes import Outcomes, Rows
from .timing import Timing, least_seconds


@dataclass(frozen=True, kw_only=True, slots=True)
class Refined:
    """What whole searches made of the rows."""

    rows: Rows
    searched: int
    open: int
    """Rows not searched that could still become the cheapest."""

    @property
    def words(self) -> str:
        """What was searched, and whether anything is left."""
        done = f"All layouts searched of {self.searched} combinations"
        if not self.open:
            return f"{done}; no other one can be cheaper, even at the peak of its devices."
        more = f"{self.open} more could be cheaper if they ran at their peak"
        return f"{done}; {more} (--layouts {4 * self.searched})."


def best_first(
    known: Floats, bound: Floats, search: Callable[[int], float], most: int
) -> tuple[list[int], int]:
    """Search what may become the least, the most promising first.

    Args:
        known: What each costs as far as it is known, shape (n,); infinite where it breaks a limit.
        bound: What each costs at least after its search.
        search: What the search of one finds.
        most: Searches.

    Returns:
        Those that were searched, and how many are left that could be less than the least that is known.
    """
    known = known.copy()
    searched: list[int] = []
    done = np.zeros(len(known), dtype=bool)
    while True:
        left = np.flatnonzero(~done & (bound < known.min(initial=np.inf)))
        if not len(left) or len(searched) >= most:
            return searched, len(left)
        number = int(left[np.lexsort((bound[left], known[left]))[0]])
        known[number] = min(known[number], search(number))
        done[number] = True
        searched.append(number)


def refined(found: Judged, timing: Timing, most: int, again: Callable[[Rows, Outcomes], Judged]) -> Refined:
    """The rows with better layouts where they can change the cheapest choice.

    Args:
        found: What the sweep found.
        timing: Of the request.
        most: Searches at most.
        again: Judges some candidates with other rows.
    """
    state = {"rows": found.rows}

    def search(row: int) -> float:
        state["rows"] = _searched(state["rows"], row, found, timing)
        now = again(state["rows"], found.outcomes.take(np.flatnonzero(found.outcomes.row == row)))
        return float(np.min(now.outcomes.usd[now.feasible], initial=np.inf))

    own, usd = found.feasible & ~found.apart & np.isfinite(found.outcomes.usd), found.outcomes.usd
    places = [own & (found.outcomes.row == row) for row in range(len(found.rows))]
    known = np.array([float(np.min(usd[place], initial=np.inf)) for place in places])
    searched, left = best_first(known, _bounds(found, timing), search, most)
    return Refined(rows=state["rows"], searched=len(searched), open=left)


def _bounds(found: Judged, timing: Timing) -> Floats:
    """Dollars of the products of each row at its peak; infinite where those alone are too late."""
    bounds = np.full(len(found.rows), np.inf)
    outcomes, deadline_s = found.outcomes, found.limits.deadline_s
    usd_per_hour = np.where(found.apart, np.nan, outcomes.usd_per_hour)
    for number, spot in enumerate(found.space.spots):
        least_s = least_seconds(spot, timing)
        if deadline_s is not None and least_s > deadline_s:
            continue
        for row in np.flatnonzero(found.rows.spot == number).tolist():
            hourly = usd_per_hour[(outcomes.row == row) & np.isfinite(usd_per_hour)]
            if len(hourly):
                bounds[row] = hourly.min() * least_s / 3600.0
    return bounds


def _searched(rows: Rows, row: int, found: Judged, timing: Timing) -> Rows:
    """The rows, one of them under the fastest of all its layouts where that is faster."""
    request = Request.of(found.candidate(int(np.flatnonzero(found.outcomes.row == row)[0])).request)
    given = {name: value for name, value in request.given().items() if name in (*SEARCHED_FIELDS, "model")}
    asked = Request.of({**given, "global_batch_size": int(rows.table["global_batch_size"][row])})
    ranked = find_layouts(asked, top=1)
    if not ranked.ranked:
        return rows
    better = timing.row(at_layout(asked, ranked.jobs[0]).given())
    if better["error"][0] is not None or better["step_time_s"][0] >= rows.table["step_time_s"][row]:
        return rows
    table = dict(rows.table)
    for name in {*table} & {*better} - {"job"}:
        table[name] = table[name].copy()
        table[name][row] = better[name][0]
    return replace(rows, table=table)
