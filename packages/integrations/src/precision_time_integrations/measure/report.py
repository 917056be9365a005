"""Where a run over many trials stands, and what became of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .trial import KernelTrial, Trial


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """Where a run stands."""

    done: int
    """Trials settled by this run: measured, failed, or passed over for want of time."""
    total: int
    """Trials that this run is to settle."""
    trial: str
    """What is being measured now; empty while workers are started."""
    left_s: float | None = None
    """Expected seconds until the last of them; None without an estimate."""


ProgressCallback = Callable[[Progress], None]


@dataclass(kw_only=True, slots=True)
class TrialReport:
    """What became of every trial of a run."""

    about: Mapping[str, Any]
    """What was run and where the results are: the first fields of the JSON answer."""
    by_kind: bool = False
    """Whether the JSON answer counts operators and steps apart."""
    measured: list[Trial] = field(default_factory=list)
    skipped: int = 0
    """Trials that the store already held."""
    refused: dict[str, int] = field(default_factory=dict)
    """Trials that the device has no hardware, or this machine no library for, by reason."""
    failed: dict[str, str] = field(default_factory=dict)
    """Trial -> why it could not be measured."""
    left: int = 0
    """Trials for which no time was left."""
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        answer: dict[str, Any] = dict(self.about)
        if self.by_kind:
            ops = sum(isinstance(trial, KernelTrial) for trial in self.measured)
            answer |= {"measured_ops": ops, "measured_steps": len(self.measured) - ops}
            answer |= {"skipped": self.skipped, "refused": self.refused}
        else:
            answer |= {"skipped": self.skipped, "measured": len(self.measured)}
        return {**answer, "failed": self.failed, "left": self.left, "seconds": round(self.seconds, 1)}
