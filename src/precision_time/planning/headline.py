"""What an answer says first, in one order: the run, its money, whether it fits, the step."""

from __future__ import annotations

import datetime
from typing import Any

from ..diagnostics import Severity, texts_of
from ..hardware.prices.offer import Market, Offer
from ..hardware.prices.offers import cheapest_offer
from ..predict.prediction import Interval, Prediction
from ..records import dataclass
from ..units import format_bytes, format_duration, format_range, grouped
from .run.prediction import RunPrediction

_DIGITS = 6
_SECONDS_PER_HOUR = 3600.0
VERSION = 1
"""Of the shape: a key that leaves or changes its meaning raises it, a new one does not."""

FIGURES = (
    *(
        "run_s",
        "run_interval",
        "cost_usd",
        "device_hours",
        "throughput",
        "step_time_s",
        "step_interval",
        "mfu",
    ),
)
"""What a job that does not fit in memory would only have if it did."""
CERTAIN = (
    *("fits", "memory_bytes_per_device", "device_memory_bytes", "run_missing", "price", "throughput_unit"),
    *("model", "device", "gpus", "nodes", "precision", "warnings", "assumptions"),
)
"""What is so whether it fits or not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Headline:
    """The figures that decide, in SI units."""

    model: str
    device: str
    gpus: int
    nodes: int
    precision: str
    run_s: float | None
    """None where the length of the run is not known: `run_missing` says what to give."""
    run_interval: Interval | None
    run_missing: str
    cost_usd: float | None
    """Of the run; None where no price is known. `price` says which."""
    price: str
    device_hours: float | None
    fits: bool
    memory_bytes_per_device: float
    device_memory_bytes: float
    throughput: float
    throughput_unit: str
    step_time_s: float
    step_interval: Interval
    mfu: float | None
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...]

    @classmethod
    def of(cls, answer: Prediction | RunPrediction) -> Headline:
        """That of an answer; a run that is steps alone costs the cheapest known offer of its devices."""
        step = answer.phases[0].prediction if isinstance(answer, RunPrediction) else answer
        run, usd, price = _run_of(answer)
        return cls(
            model=answer.model,
            device=answer.device,
            gpus=answer.gpus,
            nodes=answer.nodes,
            precision=step.precision,
            run_s=None if run is None else run[0],
            run_interval=None if run is None else run[1],
            run_missing=step.total_time_missing if run is None else "",
            cost_usd=usd,
            price=price,
            device_hours=answer.device_hours,
            fits=answer.fits,
            memory_bytes_per_device=step.memory_bytes_per_device,
            device_memory_bytes=step.device_memory_bytes,
            throughput=step.throughput,
            throughput_unit=step.throughput_unit,
            step_time_s=step.step_time_s,
            step_interval=step.interval,
            mfu=step.mfu,
            assumptions=answer.assumptions,
            warnings=texts_of(answer.diagnostics, Severity.WARNING),
        )

    def in_words(self) -> str:
        """The run, its money, whether it fits, and the step, in a sentence."""
        start = "" if self.fits else "Does not fit in memory; if it did: "
        run = "" if self.run_s is None else f"{format_duration(self.run_s)} for the run"
        if self.run_interval is not None and run:
            run += f" ({format_range(self.run_interval.low_s, self.run_interval.high_s)})"
        money = "" if self.cost_usd is None else f"about {grouped(self.cost_usd)} USD"
        step = (
            f"{format_duration(self.step_time_s)} per step "
            f"({format_range(self.step_interval.low_s, self.step_interval.high_s)})"
        )
        memory = f"{format_bytes(self.memory_bytes_per_device)} of {format_bytes(self.device_memory_bytes)}"
        said = ", ".join(part for part in (run, money, step, f"{memory} per device") if part)
        return f"{start}{said}: {self.model} on {self.gpus} x {self.device}, {self.precision}."

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary, what decides first.

        Figures of a job that does not fit in memory are of no run: they stand under `if_it_fitted`.
        """
        figures = {name: _plain(getattr(self, name)) for name in FIGURES}
        return {
            "schema": f"brief/{VERSION}",
            **(figures if self.fits else {"if_it_fitted": figures}),
            **{name: _plain(getattr(self, name)) for name in CERTAIN},
        }


def _run_of(
    answer: Prediction | RunPrediction,
) -> tuple[tuple[float, Interval | None] | None, float | None, str]:
    """Seconds of the run with their interval, its money, and which price that is of."""
    if isinstance(answer, RunPrediction):
        return (
            (answer.total_s, answer.interval),
            answer.cost_usd,
            " ".join(item.text for item in answer.diagnostics if item.code == "price"),
        )
    if answer.total_time_s is None:
        return None, None, ""
    offer = cheapest_offer(answer.device, devices=answer.gpus, nodes=answer.nodes)
    if offer is None:
        return (answer.total_time_s, answer.total_interval), None, ""
    count, _, usd_per_hour = offer.rented(Market.ON_DEMAND, answer.gpus)
    usd = usd_per_hour * answer.total_time_s / _SECONDS_PER_HOUR
    return (answer.total_time_s, answer.total_interval), usd, _said_price(offer, count)


def _said_price(offer: Offer, instances: int) -> str:
    """Which offer a price is of, and how old its list is."""
    return (
        f"{offer.stated_price(Market.ON_DEMAND):g} USD an hour, {instances:,} x {offer.instance_type} in "
        f"{offer.cloud}:{offer.region}, the cheapest known on demand ({offer.dated(datetime.date.today())})."
    )


def _plain(value: Any) -> Any:
    """As JSON holds it, numbers to `_DIGITS`: more say nothing, and differ from machine to machine."""
    if isinstance(value, Interval):
        return {name: _plain(getattr(value, name)) for name in ("low_s", "high_s", "coverage")}
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    return list(value) if isinstance(value, tuple) else value
