"""Why a step takes longer than predicted: what could have slowed it down, ranked, each with a check to run.

A cause is a change of the job (`data/causes.toml`), priced as any other job is. How probable it is
follows from Bayes' rule: its weight, times how well the time that it would give matches the measured
one, where that time is as uncertain as the interval of its prediction says. A cause of unknown size (a
slow disk) is priced at several and counts as their mean, so that what could explain any time explains
none well. A cause that is not listed competes too: no number alone makes one certain.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from statistics import NormalDist
from typing import Any

import numpy as np

from ..arrays import Bools, Floats
from ..cost.job import Job
from ..errors import ConfigError
from ..io import packaged_toml
from ..learn.artifact import TrainedPredictor, chosen_predictor
from ..predict.answer import calibration_of
from ..predict.changes import changed, holds_for, with_hardware
from ..predict.columns import RunLength
from ..predict.remedies import asked, at_layout, memory_of_job
from ..predict.remedies import holds as fits
from ..records import dataclass
from ..render.blocks import GAP, TEXT_WIDTH, Block, Text, Tone
from ..render.result import Result
from ..render.table import Table
from ..request.request import Request
from ..request.signature import as_request, takes_request_fields
from ..units import format_duration

_SHOWN = 5
"""Causes on a page; all of them with `why`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cause:
    """One thing that could have slowed a step down."""

    name: str
    """Of `data/causes.toml`."""
    what: str
    check: str
    """What to run or look at to know."""
    probability: float
    """That it is this one of those listed, 0..1, given what was measured."""
    step_time_s: float
    """What a step would take under it, at the size that matches best."""
    low_s: float
    """Interval of it, at the coverage that was asked for; with the sizes between two."""
    high_s: float
    change: str
    """Of the job, in words: the size that matches best."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Diagnosis(Result):
    """A measured step beside its prediction, and what could explain the difference."""

    DERIVED = ("verdict", "ratio")

    job: str
    """In words."""
    measured_s: float
    predicted_s: float
    low_s: float
    high_s: float
    """Interval of the prediction."""
    coverage: float
    data_wait_s: float | None
    """Of a step, spent waiting for input, where it was measured."""
    utilization: float | None
    """Share of the time in which the device is busy (nvidia-smi), 0..1, where it was read."""
    causes: tuple[Cause, ...]
    """The most probable first; none where there is nothing to explain."""
    other: float
    """Probability of a cause that is not listed."""

    @property
    def ratio(self) -> float:
        """Measured over predicted."""
        return self.measured_s / self.predicted_s

    @property
    def verdict(self) -> str:
        """One of `as-predicted`, `faster` and `slower`: where the measured time lies to the interval."""
        if self.measured_s < self.low_s:
            return "faster"
        return "as-predicted" if self.measured_s <= self.high_s else "slower"

    def in_one_line(self) -> str:
        """What was measured, what was predicted, and the most probable cause."""
        head = f"{format_duration(self.measured_s)}, {self.ratio:.2f} x the predicted {self._predicted()}"
        if not self.causes:
            return f"{head}: {_VERDICTS[self.verdict]}"
        first = self.causes[0]
        return f"{head}: {first.what} ({first.probability:.0%}), or another cause"

    def _predicted(self) -> str:
        return (
            f"{format_duration(self.predicted_s)} ({self.coverage:.0%} interval "
            f"{format_duration(self.low_s)} to {format_duration(self.high_s)})"
        )

    def blocks(self, *, width: int = TEXT_WIDTH, why: bool = False) -> Iterator[Block]:
        """The page that `precision-time explain --measured` prints."""
        del width
        yield Text(self.job, Tone.LEAD)
        yield Text(
            f"Measured {format_duration(self.measured_s)} a step, {self.ratio:.2f} x the predicted "
            f"{self._predicted()}."
        )
        if self.verdict != "slower":
            yield Text(f"{_VERDICTS[self.verdict][:1].upper()}{_VERDICTS[self.verdict][1:]}.")
        if not self.causes:
            return
        shown = self.causes if why else self.causes[:_SHOWN]
        left = math.fsum(cause.probability for cause in self.causes[len(shown) :])
        rows = [
            (
                f"{cause.probability:.0%}",
                cause.what,
                format_duration(cause.step_time_s),
                "yes" if cause.low_s <= self.measured_s <= cause.high_s else "no",
                cause.change,
            )
            for cause in shown
        ]
        others = (
            [(f"{left:.0%}", f"{len(self.causes) - len(shown)} more (--json)", "", "", "")] if left else []
        )
        rows += [*others, (f"{self.other:.0%}", "something that is not listed here", "", "", "")]
        yield GAP
        yield Table(
            title="What could explain it",
            columns=(">", "cause", ">step then", "measured inside", "change of the job"),
            rows=tuple(rows),
        )
        yield GAP
        yield from (Text(f"{number}. {cause.check}") for number, cause in enumerate(shown, 1))
        yield Text(
            "One number does not tell causes apart: run the checks in this order. Two causes at once are not "
            "weighed. The interval is that of the job as assumed; predict adds what the question leaves "
            "open.",
            Tone.SOFT,
        )


_VERDICTS: Mapping[str, str] = {
    "as-predicted": "nothing to explain: the measured time lies inside the interval of the prediction",
    "faster": "faster than predicted: check what a step is meant to be (samples, devices, micro batches)",
    "slower": "slower than predicted",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Sized:
    """A cause at one size: the time of its step, and the interval's ends over it."""

    row: Mapping[str, Any]
    words: str
    job: Job
    length: RunLength
    """With what its input delivers."""
    times: float = 1.0
    """On the step of that job."""
    between: bool = False
    """Sizes between this one and the next are as possible."""
    given: bool = False
    """The user states the fields that it changes."""


@takes_request_fields()
def diagnose(
    model: Any,
    *,
    measured_s: float,
    data_wait_s: float | None = None,
    utilization: float | None = None,
    predictor: TrainedPredictor | None = None,
    **options: Any,
) -> Diagnosis:
    """What could make a step take as long as it was measured to.

    Args:
        model: As `predict_time` takes it, or a `Request`.
        measured_s: Seconds of an optimizer step.
        data_wait_s: Seconds of it that pass waiting for input, where that was measured.
        utilization: Share of the time in which the device is busy, 0..1, as nvidia-smi says.
        predictor: The trained predictor; None for the one that the request names, else the one that ships.
        options: Fields of `Request`, all optional.

    Returns:
        The causes by probability; none where the measured time is inside the interval and no symptom told.

    Raises:
        ConfigError: A time not above 0, a wait longer than the step, a utilization outside 0 to 1; and as
            `predict_time`.
    """
    _check(measured_s, data_wait_s, utilization)
    request = as_request(model, options)
    trained = predictor or chosen_predictor(request.predictor)
    calibration = calibration_of(request, trained)
    base = request.resolve()
    layout = base.layout
    own = changed([base], request, trained, calibration)
    told = Diagnosis(
        job=f"{base.workload.name} on {base.cluster.num_devices} x {base.cluster.device.name}, "
        f"{base.precision.name}, {layout.micro_batch_size / base.workload.rows_per_sample:g} samples per "
        f"device, {base.stack.profile} of {base.stack.framework_year:.0f}",
        measured_s=measured_s,
        predicted_s=float(own["step_time_s"][0]),
        low_s=float(own["interval_low_s"][0]),
        high_s=float(own["interval_high_s"][0]),
        coverage=request.coverage,
        data_wait_s=data_wait_s,
        utilization=utilization,
        causes=(),
        other=1.0,
    )
    symptoms = data_wait_s is not None or utilization is not None
    if told.verdict == "faster" or (told.verdict == "as-predicted" and not symptoms):
        return told
    table = packaged_toml(__package__, "data/causes.toml")
    at = at_layout(request, base)
    samples_per_s = float(own["throughput"][0]) / base.workload.units_per_sample
    priced = [
        each
        for row in table["cause"]
        for each in _sizes(row, at, base, samples_per_s, request.given().keys())
    ]
    lengths = [each.length for each in priced]
    columns = changed([each.job for each in priced], request, trained, calibration, lengths)
    times = np.array([each.times for each in priced])
    step_s, low_s, high_s = (
        columns[name] * times for name in ("step_time_s", "interval_low_s", "interval_high_s")
    )
    between = np.array([each.between for each in priced])
    reach = NormalDist().inv_cdf((1.0 + request.coverage) / 2.0)
    apart = np.where(between, table["likelihood"]["between_sizes"] * reach, 0.0)
    low_s, high_s = (
        step_s * np.exp(sign * np.hypot(np.log(end_s / step_s), apart))
        for sign, end_s in ((-1.0, low_s), (1.0, high_s))
    )
    likelihood = _likelihood(measured_s, (step_s, low_s, high_s), between, reach, table["likelihood"])
    return replace(told, **_ranked(told, priced, likelihood, (step_s, low_s, high_s), table))


def _check(measured_s: float, data_wait_s: float | None, utilization: float | None) -> None:
    if not 0.0 < measured_s < math.inf:
        raise ConfigError(f"measured_s={measured_s} must be a number of seconds above 0.")
    if data_wait_s is not None and not 0.0 <= data_wait_s <= measured_s:
        raise ConfigError(
            f"data_wait_s={data_wait_s:g} must lie between 0 and the measured {measured_s:g} s. To fix: the "
            "wait of one step."
        )
    if utilization is not None and not 0.0 <= utilization <= 1.0:
        raise ConfigError(f"utilization={utilization:g} must lie between 0 and 1 (0 % to 100 %).")


def applies(row: Mapping[str, Any], request: Request, job: Job) -> bool:
    """Whether a cause of `data/causes.toml` may be one of a job; not where what was asked rules it out."""
    return holds_for(row, job) and all(
        getattr(request, name) != value for name, value in row.get("unless", {}).items()
    )


def _sizes(
    row: Mapping[str, Any], request: Request, base: Job, samples_per_s: float, stated: Set[str]
) -> Iterator[_Sized]:
    """A cause at each of its sizes, of jobs that exist and fit: one that does not fit would not have run.

    Args:
        row: Of `data/causes.toml`.
        request: Of the job, at the layout that it has.
        base: The job.
        samples_per_s: Of it.
        stated: Fields that the user gave.
    """
    if not applies(row, request, base):
        return
    for change in row.get("changes", ()):
        words = ", ".join(f"{name}={value}" for name, value in change.items())
        for made in _made(row, request, base, dict(change), words):
            yield replace(made, given=change.keys() <= stated)
    for multiple in row.get("multiples", ()):
        values = {
            name: _times(name, factor, request, base, samples_per_s) for name, factor in multiple.items()
        }
        words = ", ".join(f"{name} x {factor:g}" for name, factor in multiple.items())
        for made in _made(row, request, base, values, words):
            yield replace(made, given=multiple.keys() <= stated, between=True)
    length = RunLength.of(request)
    for factors in row.get("hardware", ()):
        words = ", ".join(f"{name} x {factor:g}" for name, factor in factors.items())
        yield _Sized(row=row, words=words, job=with_hardware(base, factors), length=length, between=True)
    for times in row.get("slower", ()):
        words = f"step x {times:g}"
        yield _Sized(row=row, words=words, job=base, length=length, times=times, between=True)


def _made(
    row: Mapping[str, Any], request: Request, base: Job, change: Mapping[str, Any], words: str
) -> Iterator[_Sized]:
    job = asked(request, change, workload=base.workload)
    if job is not None and (fits(job, memory_of_job(job)) or not fits(base, memory_of_job(base))):
        yield _Sized(row=row, words=words, job=job, length=RunLength.of(request.with_(**change)))


def _times(name: str, factor: float, request: Request, base: Job, samples_per_s: float) -> float:
    """A number of the job times a factor, as the request takes it."""
    now = {
        "batch_size": base.layout.micro_batch_size / base.workload.rows_per_sample,
        "num_microbatches": float(base.layout.num_microbatches),
        "input_rate": samples_per_s,
    }.get(name, getattr(request, name, None))
    value = factor * float(now or 1.0)
    return int(value) if value == int(value) else value


def _likelihood(
    measured_s: float,
    times: tuple[Floats, Floats, Floats],
    between: Bools,
    reach: float,
    table: Mapping[str, float],
) -> Floats:
    """Density of the measured time in log seconds; predictions and the ends of their intervals: shape (n,).

    Student's t on each side of the prediction, at the scale at which the interval has its coverage.
    """
    step_s, low_s, high_s = times
    freedom = table["degrees_of_freedom"]
    least = np.where(between, 0.0, table["least_scale"])
    below, above = (np.hypot(np.log(ratio) / reach, least) for ratio in (step_s / low_s, high_s / step_s))
    off = np.log(measured_s / step_s)
    shape = (1.0 + (off / np.where(off < 0.0, below, above)) ** 2 / freedom) ** (-(freedom + 1.0) / 2.0)
    peak = math.gamma((freedom + 1.0) / 2.0) / (math.sqrt(freedom * math.pi) * math.gamma(freedom / 2.0))
    density: Floats = 2.0 * peak * shape / (below + above)
    return density


def _ranked(
    told: Diagnosis,
    priced: Sequence[_Sized],
    likelihood: Floats,
    times: tuple[Floats, Floats, Floats],
    table: Mapping[str, Any],
) -> dict[str, Any]:
    """The causes and what is left for others, as fields of a diagnosis."""
    step_s, low_s, high_s = times
    rows = {each.row["name"]: each.row for each in priced}
    of_cause = {
        name: [place for place, each in enumerate(priced) if each.row["name"] == name] for name in rows
    }
    other = table["other"]
    weights = {
        name: rows[name]["weight"]
        * (table["given"]["factor"] if priced[places[0]].given else 1.0)
        * float(np.mean(likelihood[places]))
        * _of_symptoms(rows[name].get("idle", False), told, table["symptoms"])
        for name, places in of_cause.items()
    }
    left = other["weight"] / math.log(other["most"]) * _of_symptoms(None, told, table["symptoms"])
    whole = math.fsum([*weights.values(), left])
    causes = []
    for name, places in of_cause.items():
        best = max(places, key=lambda place: likelihood[place])
        causes.append(
            Cause(
                name=name,
                what=rows[name]["what"],
                check=rows[name]["check"],
                probability=weights[name] / whole,
                step_time_s=float(step_s[best]),
                low_s=float(low_s[best]),
                high_s=float(high_s[best]),
                change=priced[best].words,
            )
        )
    return {
        "causes": tuple(sorted(causes, key=lambda cause: -cause.probability)),
        "other": left / whole,
    }


def _of_symptoms(idle: str | bool | None, told: Diagnosis, table: Mapping[str, float]) -> float:
    """How likely a cause makes what was told beside the time; `idle` as in the data, None for any cause."""
    least = table["least"]
    factor = 1.0
    if told.data_wait_s is not None:
        excess_s = max(told.measured_s - told.predicted_s, told.data_wait_s, 1e-12)
        explained = min(max(told.data_wait_s / excess_s, least), 1.0 - least)
        factor *= explained if idle == "input" else 1.0 - explained
    if told.utilization is not None:
        busy = min(max(told.utilization, least), 1.0 - least)
        factor *= 0.5 if idle is None else 1.0 - busy if idle else busy
    return factor
