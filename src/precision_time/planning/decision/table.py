"""All candidates of a plan as columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from .choose import Judged
from .space import UNPRICED

_OF_ROW = (
    *("device", "gpus", "precision", "layout", "batch_size", "global_batch_size", "step_time_s"),
    *("interval_low_s", "interval_high_s", "mfu", "memory_bytes_per_device", "warnings"),
)
_OF_CANDIDATE = (
    *("instances", "time_s", "sure_s", "probability", "usd_per_hour", "usd", "energy_j", "carbon_g"),
)


def columns_of(found: Judged) -> dict[str, list[Any]]:
    """One list for each column; None where nothing is known."""
    order = found.order("cheapest")
    outcomes, table, space = found.outcomes, found.rows.table, found.space
    columns: dict[str, list[Any]] = {name: _plain(table[name][outcomes.row[order]]) for name in _OF_ROW}
    rented = [None if number == UNPRICED else space.offers[number] for number in outcomes.offer[order]]
    for name in ("cloud", "instance_type", "region"):
        columns[name] = [None if offer is None else getattr(offer, name) for offer in rented]
    columns["market"] = [
        None if offer is None else space.markets[number].value
        for offer, number in zip(rented, outcomes.market[order], strict=True)
    ]
    columns |= {name: _plain(getattr(outcomes, name)[order]) for name in _OF_CANDIDATE}
    columns |= {f"terms_s.{name}": _plain(values[order]) for name, values in outcomes.terms_s.items()}
    return columns | {"feasible": found.feasible[order].tolist(), "on_front": found.front[order].tolist()}


def _plain(values: Any) -> list[Any]:
    listed = values.tolist()
    if values.dtype.kind != "f":
        return list(listed)
    return [value if known else None for value, known in zip(listed, np.isfinite(values), strict=True)]
