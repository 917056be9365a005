"""What a run turned out to take, as a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from precision_time.predict.anchors import NOT_OF_A_STEP
from precision_time.request.schema import STEP_TIME_S


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRecord:
    """A run that ended, or the part of it that was watched."""

    request: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the request that describe it; empty where it could not be described."""
    steps: int
    """Watched."""
    steady_steps: int
    """Those that `step_time_s` is of: without warm-up, stalls and pauses."""
    step_time_s: float | None
    """Of the steady steps; None where there are none."""
    log_spread: float
    """Standard deviation of the logarithm of the steady step times."""
    elapsed_s: float
    pauses_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of announced pauses by name."""
    waited_s: float | None = None
    """Of the mean steady step: spent waiting for input; None where nobody measured it."""
    warnings: tuple[str, ...] = ()

    def to_row(self) -> dict[str, Any]:
        """A row of a table of measured steps: the fields of the step and `step_time_s`; empty without."""
        if not self.request or self.step_time_s is None:
            return {}
        step = {name: value for name, value in self.request.items() if name not in NOT_OF_A_STEP}
        return {**step, STEP_TIME_S: self.step_time_s}
