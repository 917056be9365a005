"""The multiple-choice knapsack of a schedule: one type for each group, least time under a budget of risk.

Times and risks of groups add up; a type that is used at all adds a fixed number of seconds once. Risks are
rounded up to whole cells. Dynamic programming over the groups keeps, for each risk, the least time
(Kellerer, Pferschy, Pisinger, Knapsack Problems, 2004, chapter 11.5), and the types used so far.

Optimality: of all assignments whose rounded risks fit the budget, the answer is the fastest; so no
assignment whose risk is below the budget by a cell per group is faster. Proof in one line: the least time
at a risk over the first k groups, with the types used so far, is the least over the types of group k of the
least time over the first k - 1 groups at the risk that is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from precision_time.arrays import Floats, Ints

CELL = 1e-5
"""Risks are rounded up to this: 0.001 % of the loss."""
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class Choices:
    """Seconds and risk of each of T types for each of G groups; type 0 is the reference and adds neither."""

    seconds: Floats
    """Added over the reference, shape (G, T)."""
    risk: Floats
    """Shape (G, T); infinite where a group cannot have a type."""
    fixed_s: Floats
    """Added once where a type is used at all, shape (T,)."""

    def seconds_of(self, picks: Ints) -> Floats:
        """Seconds over the reference of n assignments, shape (n, G) of types."""
        groups = np.arange(len(self.seconds))
        used = (picks[:, :, None] == np.arange(self.seconds.shape[1])).any(axis=1)
        found: Floats = self.seconds[groups, picks].sum(axis=1) + used @ self.fixed_s
        return found

    def risk_of(self, picks: Ints) -> Floats:
        """Risk of n assignments, shape (n, G) of types."""
        found: Floats = self.risk[np.arange(len(self.risk)), picks].sum(axis=1)
        return found


def frontier(choices: Choices, budget: float, *, cell: float = CELL) -> Ints:
    """The fastest assignment for each risk up to a budget, where less risk takes more time; shape (n, G).

    The first one is the least risky, the last one the fastest. A larger budget adds assignments behind them.
    """
    finite = np.isfinite(choices.risk)
    cells = np.ceil(np.where(finite, choices.risk, 0.0) / cell - _ROUNDING)
    cells = np.where(finite, cells, np.inf)
    limit = math.floor(budget / cell + _ROUNDING)
    bits = np.where(choices.fixed_s != 0.0, 1 << np.arange(len(choices.fixed_s)), 0)
    risks, seconds = np.zeros(1), np.zeros(1)
    used, picks = np.zeros(1, dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
    for group in range(len(choices.seconds)):
        risks = (risks[:, None] + cells[group]).ravel()
        seconds = (seconds[:, None] + choices.seconds[group]).ravel()
        used = (used[:, None] | bits).ravel()
        kept = _fastest_by_types(risks, seconds, used)
        kept = kept[risks[kept] <= limit]
        before, kind = np.divmod(kept, len(bits))
        picks = np.column_stack([picks[before], kind])
        risks, seconds, used = risks[kept], seconds[kept], used[kept]
    charged = seconds + ((used[:, None] & bits) != 0) @ choices.fixed_s
    found: Ints = picks[_undominated(risks, charged)]
    return found


def exhaustive(choices: Choices, budget: float) -> Iterator[tuple[int, ...]]:
    """Every assignment within a budget, risks as they are."""
    groups, types = choices.seconds.shape
    allowed = [
        [kind for kind in range(types) if choices.risk[group, kind] <= budget] for group in range(groups)
    ]
    for picks in product(*allowed):
        if sum(choices.risk[group, kind] for group, kind in enumerate(picks)) <= budget * (1 + _ROUNDING):
            yield picks


def _fastest_by_types(risks: Floats, seconds: Floats, used: Ints) -> Ints:
    """`_undominated` among what uses the same types: what a type adds once is not counted yet."""
    parts = []
    for types in np.unique(used):
        (own,) = np.nonzero(used == types)
        parts.append(own[_undominated(risks[own], seconds[own])])
    return np.concatenate(parts)


def _undominated(risks: Floats, seconds: Floats) -> Ints:
    """Indices of what is faster than everything of no more risk, in the order of risk."""
    order = np.lexsort((seconds, risks))
    least = np.minimum.accumulate(seconds[order])
    faster = np.concatenate([[True], seconds[order][1:] < least[:-1]])
    found: Ints = order[faster]
    return found
