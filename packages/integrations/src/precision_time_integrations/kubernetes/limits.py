"""How a limit of time follows from a prediction, and what a manifest says of that itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from precision_time.errors import ConfigError, shown

PREFIX = "precision-time.dev/"
"""Before the names of all our annotations."""
MOST_S = 2**31 - 1
"""Some of the fields hold no more."""
_ROUND_S = 60
_MOST_MARGIN = 100.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LimitRule:
    """Which limit of time a job gets."""

    quantile: float = 0.95
    """Share of the runs that end before it, without the margin."""
    margin: float = 0.1
    """Added for good measure, as a share."""
    sets: bool = True
    """Whether it is written at all."""

    def __post_init__(self) -> None:
        if not 0.0 < self.quantile < 1.0:
            raise ConfigError(
                f"quantile={self.quantile!r} must lie between 0 and 1. To fix: give one such as 0.95."
            )
        if not 0.0 <= self.margin <= _MOST_MARGIN:
            raise ConfigError(
                f"margin={self.margin!r} must lie between 0 and {_MOST_MARGIN:g}. To fix: give one such as "
                "0.1 (10 %)."
            )

    def limit_s(self, seconds: float) -> int:
        """The limit for a job of which that share ends within some seconds: whole minutes, rounded up."""
        return math.ceil(seconds * (1.0 + self.margin) / _ROUND_S) * _ROUND_S

    def as_stated(self, annotations: Mapping[str, Any]) -> LimitRule:
        """The rule with what a manifest says in its place.

        Args:
            annotations: `precision-time.dev/quantile` and `/margin` are numbers, `/limit` is "none" for none.

        Raises:
            ConfigError: If one of them is something else.
        """
        stated: dict[str, Any] = {}
        for name in ("quantile", "margin"):
            given = annotations.get(f"{PREFIX}{name}")
            if given is not None:
                try:
                    stated[name] = float(given)
                except (TypeError, ValueError):
                    raise ConfigError(
                        f"The annotation {PREFIX}{name} is {shown(given)}. The rule: a number as a text. To "
                        'fix: such as "0.9".'
                    ) from None
        limit = annotations.get(f"{PREFIX}limit")
        if limit not in (None, "none", "set"):
            raise ConfigError(
                f"The annotation {PREFIX}limit is {shown(limit)}. The rule: none or set. To fix: one of them."
            )
        return replace(self, **stated, sets=self.sets and limit != "none")
