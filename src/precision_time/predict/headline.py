"""What an answer says first, in one order: the run, its money, whether it fits, the step."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING, Any

from ..diagnostics import SAMPLES, Severity, texts_of
from ..hardware.prices.offer import Market, Offer
from ..hardware.prices.offers import cheapest_offer
from ..records import dataclass
from ..units import GIBI, MEGA, format_duration, format_range, grouped

if TYPE_CHECKING:
    from .prediction import Prediction

_DIGITS = 6
_HOUR_S = 3600.0
_CENTS_FROM, _CENTS_TO = 0.1, 100.0
_LEFT_OUT = "evaluation, checkpoints and start-up not included"
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
class Interval:
    """Where the true step time lies with probability `coverage`."""

    low_s: float
    high_s: float
    coverage: float


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
    batch_size: float
    """Samples per device and forward pass."""
    usd_per_hour: float | None = None
    """Of all devices; None where no price is known."""
    samples: str = ""
    """What a sample is, where that was assumed."""
    steps: int | None = None
    """Of the run; None where its length is not known."""
    is_epoch: bool = False
    """Whether the run is one epoch because nothing says how many."""

    @classmethod
    def of(cls, answer: Prediction, *, remedy: bool = True) -> Headline:
        """That of an answer, whose money is by the cheapest known offer of its devices.

        Args:
            answer: Of a step.
            remedy: Whether the warnings say what to ask for instead of a job that does not fit, which takes
                longer than all else.
        """
        offer, usd = _offer_of(answer), usd_of(answer)
        said = next((item.text for item in answer.remarks if item.code == SAMPLES), "")
        return cls(
            model=answer.model,
            device=answer.device,
            gpus=answer.gpus,
            nodes=answer.nodes,
            precision=answer.precision,
            run_s=answer.total_time_s,
            run_interval=answer.total_interval,
            run_missing=answer.total_time_missing,
            cost_usd=usd,
            usd_per_hour=usd_per_hour_of(answer),
            price="" if offer is None or usd is None else _said_price(offer, answer.gpus),
            device_hours=answer.device_hours,
            fits=answer.fits,
            memory_bytes_per_device=answer.memory_bytes_per_device,
            device_memory_bytes=answer.device_memory_bytes,
            throughput=answer.throughput,
            throughput_unit=answer.throughput_unit,
            step_time_s=answer.step_time_s,
            step_interval=answer.interval,
            mfu=answer.mfu,
            assumptions=answer.assumptions,
            warnings=texts_of(answer.diagnostics if remedy else answer.remarks, Severity.WARNING),
            batch_size=answer.batch_size,
            samples=said.partition(";")[0],
            steps=answer.total_steps,
            is_epoch="epochs" not in answer.request and answer.total_steps == answer.steps_per_epoch,
        )

    def lines(self) -> tuple[str, str]:
        """The run and its money; whether it fits, and the step."""
        return self.run_line(), self.step_line()

    def run_line(self) -> str:
        """How long and for what money; of a million units where the length of the run is not known."""
        if self.run_s is None:
            return self._line_of_units()
        steps = "" if self.steps is None else f" of {self.steps:,} step{'s' * (self.steps != 1)}"
        what = f"{'an epoch' if self.is_epoch else 'the run'}{steps}"
        hours = self.device_hours
        spent = [
            *([] if self.cost_usd is None else [f"about {_dollars(self.cost_usd)}"]),
            *([] if hours is None or hours < 1.0 else [f"{grouped(hours)} device-hours"]),
        ]
        after = "; give epochs= for the run" if self.is_epoch else f"; {_LEFT_OUT}"
        took = f"{format_duration(self.run_s)}{_within(self.run_interval)}"
        spent = [*spent, *([self.samples] if self.samples else [])]
        return f"{self._taking(what)} {', '.join([took, *spent])}{after}."

    def _line_of_units(self) -> str:
        seconds, hourly = MEGA / self.throughput, self.usd_per_hour
        usd = "" if hourly is None else f", about {_dollars(hourly * seconds / _HOUR_S)}"
        give = self.run_missing.partition("To fix: give ")[2].rstrip(".")
        asked = f"; for the run give {give}" if give else ""
        units = self._taking(f"a million {self.throughput_unit.partition('/')[0]}", many=True)
        samples = f", {self.samples}" if self.samples else ""
        return f"{units} {format_duration(seconds)}{usd}{samples}{asked}."

    def step_line(self) -> str:
        """Whether it fits, the time of a step, how much of a device that uses."""
        used, has = self.memory_bytes_per_device / GIBI, self.device_memory_bytes / GIBI
        memory = f"Fits: {used:.1f} of {has:.1f} GiB per device. " if self.fits else ""
        mfu = "" if self.mfu is None else f", MFU {self.mfu:.1%}"
        return (
            f"{memory}{self._taking('a step')} {format_duration(self.step_time_s)} "
            f"({_of_coverage(self.step_interval)}): {grouped(self.throughput)} "
            f"{self.throughput_unit}{mfu}."
        )

    def _taking(self, what: str, *, many: bool = False) -> str:
        if not self.fits:
            return f"If it fitted, {what} would take"
        return f"{what[0].upper()}{what[1:]} {'take' if many else 'takes'}"

    def in_words(self) -> str:
        """The job, then the same in one line."""
        fits = "" if self.fits else "does not fit: "
        run, what = self.run_s, "an epoch" if self.is_epoch else "the run"
        said = [
            *([] if run is None else [f"{format_duration(run)}{_within(self.run_interval)} for {what}"]),
            *([] if self.cost_usd is None else [f"about {_dollars(self.cost_usd)}"]),
            f"{self.memory_bytes_per_device / GIBI:.1f} of {self.device_memory_bytes / GIBI:.1f} GiB",
            f"{format_duration(self.step_time_s)} per step ({_of_coverage(self.step_interval)})"
            + (f", {self.samples}" if self.samples else ""),
            f"{grouped(self.throughput)} {self.throughput_unit}",
        ]
        job = f"{self.model} on {self.gpus} x {self.device}, {self.precision}"
        return f"{fits}{job}, batch {self.batch_size:.9g} per device: {', '.join(said)}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary, what decides first.

        Figures of a job that does not fit in memory are of no run: they stand under `if_it_fitted`.
        """
        return {
            "schema": f"brief/{VERSION}",
            **(self._figures() if self.fits else self.apart()),
            **{name: _plain(getattr(self, name)) for name in CERTAIN},
        }

    def apart(self) -> dict[str, Any]:
        """`if_it_fitted` with the figures of a job that does not fit, as JSON; nothing of one that does."""
        return {} if self.fits else {"if_it_fitted": self._figures()}

    def _figures(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in FIGURES}


def _offer_of(answer: Prediction) -> Offer | None:
    return cheapest_offer(answer.device, devices=answer.gpus, nodes=answer.nodes)


def usd_per_hour_of(answer: Prediction) -> float | None:
    """Of all devices of an answer, at the cheapest dated offer; None where no price is known."""
    offer = _offer_of(answer)
    return None if offer is None else offer.rented(Market.ON_DEMAND, answer.gpus)[2]


def usd_of(answer: Prediction) -> float | None:
    """Of the run of an answer; None where its length or a price is not known."""
    hourly, run_s = usd_per_hour_of(answer), answer.total_time_s
    return None if hourly is None or run_s is None else hourly * run_s / _HOUR_S


def _said_price(offer: Offer, gpus: int) -> str:
    """Which offer a price is of, and how old its list is."""
    instances = offer.rented(Market.ON_DEMAND, gpus)[0]
    return (
        f"{offer.stated_price(Market.ON_DEMAND):g} USD an hour, {instances:,} x {offer.instance_type} in "
        f"{offer.cloud}:{offer.region}, the cheapest known on demand ({offer.dated(datetime.date.today())})."
    )


def _within(interval: Interval | None) -> str:
    return "" if interval is None else f" ({format_range(interval.low_s, interval.high_s)})"


def _dollars(usd: float) -> str:
    """Cents below a hundred dollars.

    >>> _dollars(0.0012), _dollars(11.4), _dollars(1234.5)
    ('$0.0012', '$11.40', '$1,234')
    """
    cents = _CENTS_FROM <= usd < _CENTS_TO
    return f"${usd:,.2f}" if cents else f"${grouped(usd)}"


def _of_coverage(interval: Interval) -> str:
    return f"{interval.coverage:.0%} interval {format_range(interval.low_s, interval.high_s)}"


def _plain(value: Any) -> Any:
    """As JSON holds it, numbers to `_DIGITS`: more say nothing, and differ from machine to machine."""
    if isinstance(value, Interval):
        return {name: _plain(getattr(value, name)) for name in ("low_s", "high_s", "coverage")}
    if isinstance(value, float):
        return float(f"{value:.{_DIGITS}g}")
    return list(value) if isinstance(value, tuple) else value
