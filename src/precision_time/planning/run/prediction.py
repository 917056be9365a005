"""The answer to how long a whole run takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from ...diagnostics import Diagnostic, Severity, texts_of
from ...predict.prediction import Interval, Prediction
from ...records import dataclass
from ...render.blocks import TEXT_WIDTH, Block
from ...render.result import Result

JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True, kw_only=True, slots=True)
class RunPhase:
    """One part of a run."""

    name: str
    """Empty where the run is one part."""
    prediction: Prediction
    """Of its step."""
    steps: int
    terms: Mapping[str, float]
    """Expected seconds by name; they add up to `total_s`."""
    total_s: float
    checkpoints: int
    checkpoint_interval_s: float
    """Of work between checkpoints."""
    failures: float
    """Expected number."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TimeToTarget:
    """A run at another batch, to the same loss by the model of the critical batch size."""

    global_batch_size: float
    steps: int
    samples: float
    step_time_s: float
    steps_s: float
    """Of all steps."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class RunPrediction(Result):
    """How long a whole training takes, in SI units."""

    DERIVED = (
        "cost_usd",
        "cost_interval_usd",
        "cost_per_usd",
        "energy_kwh",
        "energy_interval_kwh",
        "carbon_g",
    )

    model: str
    device: str
    gpus: int
    nodes: int
    phases: tuple[RunPhase, ...]
    terms: Mapping[str, float]
    """Expected seconds of the run by name; they add up to `total_s` exactly."""
    total_s: float
    """Expected, at the predicted step and the usual rate of failures."""
    interval: Interval
    """Of the run's seconds, simulated."""
    p10_s: float
    """One run in ten is done by then."""
    p50_s: float
    p90_s: float
    quantiles_s: tuple[float, ...]
    """Of the simulated runs at 0, 1 ... 100 %."""
    goodput: float
    """Share of the run that is steps, 0..1."""
    failures: float
    """Expected interruptions."""
    mtbf_s: float | None
    """Mean time between interruptions of the whole job; None where there are none."""
    checkpoint_bytes: float
    """Of the largest checkpoint."""
    device_hours: float
    """Expected, over all devices (GPU-hours)."""
    fits: bool
    cost_terms_usd: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Money by name; empty where no price is known. `diagnostics` say which price was taken."""
    energy_terms_j: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Energy by name, cooling among it; empty where the device's power is not known."""
    carbon_terms_g: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """CO2 equivalent by name; empty where no region was given."""
    energy_log_spread: float = 0.0
    """Standard deviation of the logarithm of the power."""
    codecarbon: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The fields of codecarbon's output (kWh, kg, W, s); empty where no region was given."""
    targets: tuple[TimeToTarget, ...] = ()
    """Batches side by side, where a critical batch size is stated."""
    request: Mapping[str, Any] = dataclasses.field(default_factory=dict, compare=False)
    """What was asked, without the phases."""
    diagnostics: tuple[Diagnostic, ...] = ()

    @property
    def cost_usd(self) -> float | None:
        """Sum of `cost_terms_usd`; None where no price is known."""
        return math.fsum(self.cost_terms_usd.values()) if self.cost_terms_usd else None

    @property
    def energy_kwh(self) -> float | None:
        """Sum of `energy_terms_j`; None where the device's power is not known."""
        return math.fsum(self.energy_terms_j.values()) / JOULES_PER_KWH if self.energy_terms_j else None

    @property
    def carbon_g(self) -> float | None:
        """Sum of `carbon_terms_g`; None where no region was given."""
        return math.fsum(self.carbon_terms_g.values()) if self.carbon_terms_g else None

    @property
    def cost_interval_usd(self) -> tuple[float, float] | None:
        """Of the money, by the interval of the time at the same prices; None where no price is known."""
        if self.cost_usd is None:
            return None
        low, high = (end / self.total_s for end in (self.interval.low_s, self.interval.high_s))
        return self.cost_usd * low, self.cost_usd * high

    @property
    def energy_interval_kwh(self) -> tuple[float, float] | None:
        """Of the energy, by those of time and power, which are independent; None where it is not known."""
        if self.energy_kwh is None:
            return None
        power = NormalDist().inv_cdf((1.0 + self.interval.coverage) / 2.0) * self.energy_log_spread
        low, high = (math.log(end / self.total_s) for end in (self.interval.low_s, self.interval.high_s))
        kwh = self.energy_kwh
        return kwh * math.exp(-math.hypot(power, low)), kwh * math.exp(math.hypot(power, high))

    @property
    def cost_per_usd(self) -> dict[str, float]:
        """Money for a token, image or other unit, and for an epoch; empty where no price is known."""
        if self.cost_usd is None:
            return {}
        first = self.phases[0].prediction
        units = math.fsum(
            phase.steps * phase.prediction.step_time_s * phase.prediction.throughput for phase in self.phases
        )
        found = {first.throughput_unit.partition("/")[0].removesuffix("s"): self.cost_usd / units}
        if len(self.phases) == 1 and first.steps_per_epoch:
            found["epoch"] = self.cost_usd / self.phases[0].steps * first.steps_per_epoch
        return found

    def probability_within(self, deadline_s: float) -> float:
        """Share of the simulated runs that end within so many seconds."""
        shares = np.linspace(0.0, 1.0, len(self.quantiles_s))
        return float(np.interp(deadline_s, self.quantiles_s, shares, left=0.0, right=1.0))

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was filled in, in words."""
        return texts_of(self.diagnostics, Severity.ASSUMPTION)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to act on, in words."""
        return texts_of(self.diagnostics, Severity.WARNING)

    def in_one_line(self) -> str:
        """Model, devices, total with its interval, and whether it fits."""
        from .page import in_one_line

        return in_one_line(self)

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """The page that `precision-time predict --whole-run` prints."""
        from .page import blocks_of

        del width, why
        return blocks_of(self)

    def notebook(self) -> Iterator[Block]:
        """The answer and the terms."""
        from .page import notebook_of

        return notebook_of(self)
