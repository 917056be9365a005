"""What runs of a measured job would cost: time, price x workers x time, and the cheapest under a deadline.

For one job and one kind of worker. Comparing kinds of machines and layouts is the planner's (`plan`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from precision_time.errors import ConfigError

from .model import Answer, PerformanceModel

_SECONDS_PER_HOUR = 3600.0
_RANGE = re.compile(r"(\d+)\.\.(\d+)")
_NUMBER = re.compile(r"\d+(\.\d+)?")
_MOST = 100_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """One configuration and what it takes."""

    row: Mapping[str, Any]
    workers: float
    answer: Answer
    cost: float | None
    """Price per worker and hour x workers x time; None without a price."""

    @property
    def worker_hours(self) -> float:
        """Workers x time [h]."""
        return self.workers * self.answer.time / _SECONDS_PER_HOUR


def offers_of(
    model: PerformanceModel,
    row: Mapping[str, Any],
    grid: Mapping[str, Sequence[float]],
    *,
    price_per_hour: float | None = None,
) -> tuple[Offer, ...]:
    """The time and the cost of a row at every combination of some columns.

    Args:
        model: With a target in seconds and the role `workers`.
        row: Values of the columns that are not in the grid.
        grid: Column to the values asked.
        price_per_hour: Of one worker.

    Raises:
        ConfigError: If the model is not of seconds or names no workers; as `PerformanceModel.answers`.
    """
    if not model.target.endswith("_s"):
        raise ConfigError(
            f"A cost needs a time in seconds, but this model predicts {model.target}. "
            "To fix: fit a column whose name ends in _s."
        )
    workers = column_of(model, "workers")
    combined = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if len(combined) > _MOST:
        raise ConfigError(f"{len(combined):,} configurations; at most {_MOST:,}. To fix: ask for fewer.")
    rows = [{**row, **values} for values in combined]
    return tuple(
        Offer(
            row=asked,
            workers=float(asked[workers]),
            answer=answer,
            cost=None
            if price_per_hour is None
            else price_per_hour * float(asked[workers]) * answer.time / _SECONDS_PER_HOUR,
        )
        for asked, answer in zip(rows, model.answers(rows), strict=True)
    )


def cheapest(offers: Sequence[Offer], deadline_s: float | None = None) -> Offer | None:
    """The offer of the fewest worker hours that is done in time; None if none is. Flagged ones never win."""
    fit = [
        offer
        for offer in offers
        if not offer.answer.flags and (deadline_s is None or offer.answer.time <= deadline_s)
    ]
    return min(fit, key=lambda offer: (offer.worker_hours, offer.workers), default=None)


def column_of(model: PerformanceModel, role: str) -> str:
    """The column that plays a role.

    Raises:
        ConfigError: If none does.
    """
    if role not in model.roles:
        raise ConfigError(
            f"The model's study names no column for the role {role!r}. To fix: add "
            f"`roles: {{{role}: COLUMN}}` to the study, and fit again."
        )
    return model.roles[role]


def counts_of(text: str) -> tuple[float, ...]:
    """Numbers of a list, in which 1..4 stands for 1,2,3,4.

    >>> counts_of("1..4"), counts_of("0.5,1,8")
    ((1.0, 2.0, 3.0, 4.0), (0.5, 1.0, 8.0))
    """
    numbers: list[float] = []
    for part in map(str.strip, text.split(",")):
        match = _RANGE.fullmatch(part)
        if match and 1 <= int(match[1]) <= int(match[2]) <= _MOST:
            numbers += map(float, range(int(match[1]), int(match[2]) + 1))
        elif _NUMBER.fullmatch(part) and float(part) > 0.0:
            numbers.append(float(part))
        else:
            raise ConfigError(
                f"{text!r} is neither numbers above 0 nor a range of counts. "
                "To fix: write it like 1..16 or 1,2,4."
            )
    return tuple(numbers)
