"""What is said of the remaining time of a run."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from precision_time.predict.headline import Interval
from precision_time.units import format_duration


@dataclass(frozen=True, kw_only=True, slots=True)
class Eta:
    """The remaining time of a run, in seconds."""

    step: int
    """Optimizer steps done."""
    total_steps: int | None
    elapsed_s: float
    """Since the run, or its continuation, began."""
    remaining_s: float | None
    """Expected; None where the number of steps is not known, or nothing is known of their time."""
    interval: Interval | None
    """Of the remaining time."""
    step_time_s: float | None
    """Expected of the steps to come, without pauses."""
    pause_s: float
    """Of the remaining time: evaluation, checkpoints and other pauses."""
    basis: str
    """What it rests on: "prediction", "prediction and 12 steps" or "12 steps"."""

    @property
    def total_s(self) -> float | None:
        """Expected of the whole run, or of its continuation."""
        return None if self.remaining_s is None else self.elapsed_s + self.remaining_s

    @property
    def text(self) -> str:
        """As a progress bar shows it."""
        if self.remaining_s is None:
            return "" if self.step_time_s is None else f"{format_duration(self.step_time_s)} per step"
        left = f"{format_duration(self.remaining_s)} left"
        if self.interval is None or self.remaining_s == 0.0:
            return left
        low, high = format_duration(self.interval.low_s), format_duration(self.interval.high_s)
        return left if low == high else f"{left} ({low} to {high})"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary; keys are the field names."""
        return asdict(self)

    def metrics(self) -> dict[str, float]:
        """What a logger takes: flat names, numbers only; what is not known is left out."""
        found = {
            "eta/remaining_s": self.remaining_s,
            "eta/low_s": self.interval.low_s if self.interval else None,
            "eta/high_s": self.interval.high_s if self.interval else None,
            "eta/step_time_s": self.step_time_s,
            "eta/total_s": self.total_s,
        }
        return {name: value for name, value in found.items() if value is not None}
