"""What limits each protocol: where its error lies, by what likely causes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from ...learn.table import MeasuredTable
from .contract import Cell, Table
from .protocols import PROTOCOLS
from .scores import LIMITS, scored_groups

Floats = NDArray[np.float64]

_WORST = 10


def limits_table(table: MeasuredTable, predicted: Mapping[str, Floats], noise: Floats) -> Table:
    """Share of the summed error of each protocol in groups of each limit, and in its ten worst groups.

    Args:
        table: Measured runs.
        predicted: Protocol to held-out seconds, shape (n,) each, NaN where nothing was predicted.
        noise: What `repeat_deviations` says.
    """
    rows = [
        (PROTOCOLS[name].title, *_shares(table, name, seconds, noise)) for name, seconds in predicted.items()
    ]
    return Table(
        title="Where the error lies: share of the summed error [%] in groups with each likely limit",
        columns=("protocol", *(f">{limit}" for limit in LIMITS), ">groups", f">in the {_WORST} heaviest"),
        rows=tuple(rows),
        note="Limits by the rule of thumb of the tables of worst groups; heaviest: most error in sum.",
    )


def _shares(table: MeasuredTable, protocol: str, predicted_s: Floats, noise: Floats) -> Sequence[Cell]:
    groups = scored_groups(table, predicted_s, PROTOCOLS[protocol].group, noise=noise)
    mass = np.array([item.n * item.mape_percent for item in groups])
    total = max(float(mass.sum()), 1e-12)
    found = np.array([item.limit for item in groups])
    by_limit = [float(mass[found == limit].sum()) / total * 100.0 for limit in LIMITS]
    heaviest = float(np.sort(mass)[-_WORST:].sum()) / total * 100.0
    return (*by_limit, len(groups), heaviest)
