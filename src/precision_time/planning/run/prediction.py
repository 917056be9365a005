"""The answer to how long a whole run takes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from ...diagnostics import Diagnostic, Severity, texts_of
from ...predict.headline import Headline, Interval
from ...predict.prediction import Prediction
from ...records import dataclass
from ...render.blocks import GAP, TEXT_WIDTH, Block, Text, Tone, warnings
from ...render.result import Remarked
from ...render.table import Table
from ...units import J_PER_KWH, KILO, format_bytes, format_duration, format_range, grouped, plain_name

_DIGITS = 3
"""Of simulated figures: more is noise."""
_SHOWN_PER = {"token": (1e9, "billion tokens")}
"""Units too small for money, and what is said instead; a million of others."""
_ABOUT_THE_RUN = ("failures", "spot", "evaluation", "data", "spread", "convergence", "price", "energy")
"""Codes of assumptions that are not about its steps."""


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
class RunPrediction(Remarked):
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
    fits: bool
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
        return math.fsum(self.energy_terms_j.values()) / J_PER_KWH if self.energy_terms_j else None

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
    def headline(self) -> Headline:
        """The figures that decide: those of the first step, and of the whole run."""
        return dataclasses.replace(
            Headline.of(self.phases[0].prediction),
            run_s=self.total_s,
            run_interval=self.interval,
            run_missing="",
            cost_usd=self.cost_usd,
            price=" ".join(item.text for item in self.diagnostics if item.code == "price"),
            device_hours=self.device_hours,
            fits=self.fits,
            is_epoch=False,
            assumptions=self.assumptions,
            warnings=texts_of(self.diagnostics, Severity.WARNING),
        )

    def in_one_line(self) -> str:
        """As of an answer: the run and its money, the step, memory, and the job."""
        return self.headline.in_words()

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """The page that `precision-time predict --whole-run` prints."""
        del width, why
        yield from (Text(line, Tone.LEAD) for line in answer_lines(self))
        yield from (Text(line, Tone.SOFT) for line in _about(self))
        yield GAP
        for table in (_terms(self), _phases(self), _targets(self)):
            if table.rows:
                yield from (table, GAP)
        # Assumptions about the step are those of `predict`.
        told = (item.text for item in self.diagnostics if item.code in _ABOUT_THE_RUN)
        yield from (Text(text) for text in told if text in self.assumptions)
        yield from warnings(self.warnings)

    def notebook(self) -> Iterator[Block]:
        """The answer and the terms."""
        yield Text(" ".join(answer_lines(self)), Tone.LEAD)
        yield _terms(self)
        if (phases := _phases(self)).rows:
            yield from (Text("Phases", Tone.LEAD), phases)


def answer_lines(run: RunPrediction) -> Iterator[str]:
    """How long, how sure, and how much of it is steps."""
    start = "The run takes" if run.fits else "If it fitted in memory, the run would take"
    low, high = (_figure(value) for value in (run.interval.low_s, run.interval.high_s))
    interval = f"{run.interval.coverage:.0%} interval {format_range(low, high)}"
    yield (
        f"{start} {format_duration(run.total_s)} ({interval}); half of such runs end within "
        f"{_rounded(run.p50_s)}, 9 in 10 within {_rounded(run.p90_s)}."
    )
    few = f"{run.failures:.2g}"
    failures = few if run.failures < 100.0 else f"{float(few):,.0f}"  # noqa: PLR2004
    interrupted = (
        f"{failures} interruptions expected, one in {format_duration(run.mtbf_s)}"
        if run.mtbf_s is not None
        else "no interruptions counted"
    )
    yield (
        f"Goodput {run.goodput:.1%}: that share is steps. {interrupted[0].upper()}{interrupted[1:]}. "
        f"{grouped(run.device_hours)} device-hours."
    )
    money, energy = run.cost_interval_usd, run.energy_interval_kwh
    spent = [
        *([f"{grouped(run.cost_usd)} USD ({_ends(money)})"] if run.cost_usd is not None and money else []),
        *(
            [f"{grouped(run.energy_kwh)} kWh ({_ends(energy)})"]
            if run.energy_kwh is not None and energy
            else []
        ),
        *([f"{grouped(run.carbon_g / KILO)} kg of CO2"] if run.carbon_g is not None else []),
    ]
    if spent:
        yield f"It costs {', '.join(spent)}.{_each(run)}"


def _ends(ends: tuple[float, float]) -> str:
    return f"{_grouped_3(ends[0])} to {_grouped_3(ends[1])}"


def _grouped_3(value: float) -> str:
    return grouped(float(f"{value:.{_DIGITS}g}"))


def _each(run: RunPrediction) -> str:
    """Money for an epoch or so many units."""
    said = []
    for unit, usd in run.cost_per_usd.items():
        times, words = (1.0, unit) if unit == "epoch" else _SHOWN_PER.get(unit, (1e6, f"million {unit}s"))
        said.append(f"{_grouped_3(usd * times)} USD for {'an' if unit == 'epoch' else 'a'} {words}")
    return f" {', '.join(said)}." if said else ""


def _about(run: RunPrediction) -> Iterator[str]:
    first = run.phases[0].prediction
    precisions = ", ".join(dict.fromkeys(phase.prediction.precision for phase in run.phases))
    steps = sum(phase.steps for phase in run.phases)
    yield (
        f"{run.model} on {run.gpus} x {run.device}, {precisions}, {steps:,} steps of "
        f"{format_duration(run.terms['steps'] / steps)}, stack {first.stack}"
    )
    number = sum(phase.checkpoints for phase in run.phases)
    interval_s = max(run.phases, key=lambda phase: phase.total_s).checkpoint_interval_s
    size = format_bytes(run.checkpoint_bytes)
    yield f"{number:,} checkpoints of {size}, one per {format_duration(interval_s)} of work"


def _terms(run: RunPrediction) -> Table:
    """The terms that are not zero, in order, and their sum."""
    rows = (
        (plain_name(name), format_duration(seconds), f"{seconds / run.total_s:.1%}")
        for name, seconds in run.terms.items()
        if seconds > 0.0
    )
    total = ("total", format_duration(run.total_s), "100%")
    return Table(columns=("where the time goes", ">time", ">share"), rows=(*rows, total))


def _phases(run: RunPrediction) -> Table:
    """Every phase, where there are several."""
    rows = (
        (
            phase.name,
            f"{phase.steps:,}",
            format_duration(phase.prediction.step_time_s),
            phase.prediction.precision,
            f"{phase.prediction.global_batch_size:,g}",
            format_duration(phase.total_s),
            f"{phase.total_s / run.total_s:.1%}",
        )
        for phase in run.phases
        if len(run.phases) > 1
    )
    columns = ("phase", ">steps", ">step", ">precision", ">batch", ">time", ">share")
    return Table(columns=columns, rows=tuple(rows))


def _targets(run: RunPrediction) -> Table:
    """Batches side by side."""
    rows = (
        (
            f"{target.global_batch_size:,g}",
            f"{target.steps:,}",
            f"{target.samples:,.4g}",
            format_duration(target.step_time_s),
            format_duration(target.steps_s),
        )
        for target in run.targets
    )
    return Table(columns=(">batch", ">steps", ">samples", ">step", ">time of steps"), rows=tuple(rows))


def _rounded(seconds: float) -> str:
    return format_duration(_figure(seconds))


def _figure(seconds: float) -> float:
    return float(f"{seconds:.{_DIGITS}g}")
