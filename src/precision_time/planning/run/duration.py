r"""Expected wall-clock seconds of whole runs as named terms, for arrays of runs.

Failures are exponential with rate $\lambda$: of every device, and of every spot host that is reclaimed. After
one, the job waits D seconds for healthy hosts and restarts in R seconds (start-up, compilation, reading the
checkpoint), during which it can fail again. Work is done in segments of $\tau$ seconds, each followed by a
checkpoint that stops the steps for C seconds. A segment takes on average

$$ (1 / \lambda + D) \, e^{\lambda R} \, (e^{\lambda (\tau + C)} - 1) $$

References: Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future
Generation Computer Systems 22 (2006); Bougeret, Casanova, Rabie, Robert and Vivien, Checkpointing strategies
for parallel jobs, SC 2011, proposition 1 (with D).
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import NormalDist

import numpy as np

from ...arrays import Floats, Number
from ...records import dataclass
from .settings import RunSettings, default_settings

TERMS = (
    "start_up",
    "compilation",
    "warm_up",
    "steps",
    "evaluation",
    "checkpoints",
    "lost_work",
    "restarts",
)
"""Of a run, in the order in which they are shown; they add up to its seconds."""
DEVICES_PER_HOST = 8.0
_SERIES = 1e-4
"""Below it, e^x - 1 - x is taken from its series: the difference would be rounding."""
_STANDARD = NormalDist()


@dataclass(frozen=True, kw_only=True, slots=True)
class Segments:
    """How the work of runs is cut by checkpoints, and what a failure costs; arrays that broadcast."""

    work_s: Floats
    """Without checkpoints and failures: warm-up, steps, evaluation."""
    count: Floats
    """Segments, each with a checkpoint at its end."""
    interval_s: Floats
    """Of work in a segment."""
    checkpoint_s: Floats
    """By which a checkpoint stops the steps."""
    failures_per_s: Floats
    wait_s: Floats
    """After a failure, until hosts are healthy."""
    restart_s: Floats
    """Start-up, compilation, reading the checkpoint, work done again if it was not written yet."""
    redone_s: Floats
    """Of `restart_s`, the work that is done again."""
    start_s: Floats
    """Start-up and compilation before the first step."""

    @property
    def length_s(self) -> Floats:
        """Of a segment with its checkpoint."""
        return self.interval_s + self.checkpoint_s


def expected_duration_s(
    step_s: Number,
    steps: Number,
    devices: Number,
    checkpoint_bytes: Number,
    *,
    hosts: Number | None = None,
    evaluation_steps: Number = 0.0,
    settings: RunSettings | None = None,
    first: bool = True,
    compiles: bool = True,
) -> dict[str, Floats]:
    """Expected seconds of runs by TERMS; infinite where failures come faster than work is saved.

    NaN for a run whose step has no time.

    Args:
        step_s: Of one step.
        steps: Of the run.
        devices: Of the run.
        checkpoint_bytes: Of one checkpoint, over all devices.
        hosts: Of the run; None for eight devices each.
        evaluation_steps: What evaluation costs over the whole run, in steps.
        settings: What is known beside the steps; None for `default_settings`.
        first: Whether the job starts here; a later phase of a job that goes on has no start-up.
        compiles: Whether the step is compiled at the beginning, as it is after a failure in any case.
    """
    chosen = settings or default_settings()
    step_s = _or_nan(step_s)
    cut = segments_of(
        step_s,
        steps,
        devices,
        checkpoint_bytes,
        hosts=hosts,
        evaluation_steps=evaluation_steps,
        settings=chosen,
        first=first,
        compiles=compiles,
    )
    compilation_s = np.asarray(chosen.compilation_s) * float(compiles)
    terms = {
        "start_up": cut.start_s - compilation_s,
        "compilation": compilation_s,
        "warm_up": np.asarray(chosen.warm_up_steps) * step_s,
        "steps": np.asarray(steps) * step_s,
        "evaluation": np.asarray(evaluation_steps) * step_s,
        "checkpoints": cut.count * cut.checkpoint_s,
    } | interruption_terms(cut)
    shape = np.broadcast_shapes(*(np.shape(seconds) for seconds in terms.values()))
    return {name: np.broadcast_to(np.asarray(terms[name], dtype=float), shape) for name in TERMS}


def total_s(terms: Mapping[str, Floats]) -> Floats:
    """The sum of terms."""
    return np.sum([np.asarray(seconds, dtype=float) for seconds in terms.values()], axis=0)  # type: ignore[no-any-return]


def goodput(terms: Mapping[str, Floats]) -> Floats:
    """Share of the run's seconds that are steps."""
    return np.asarray(terms["steps"]) / total_s(terms)


def segments_of(
    step_s: Number,
    steps: Number,
    devices: Number,
    checkpoint_bytes: Number,
    *,
    hosts: Number | None = None,
    evaluation_steps: Number = 0.0,
    settings: RunSettings,
    first: bool = True,
    compiles: bool = True,
) -> Segments:
    """The segments of runs; arguments as of `expected_duration_s`."""
    devices = np.asarray(devices, dtype=float)
    hosts = np.ceil(devices / DEVICES_PER_HOST) if hosts is None else np.asarray(hosts, dtype=float)
    size = np.asarray(checkpoint_bytes, dtype=float)
    failures = devices / settings.mtbf_device_s
    reclaims = hosts * settings.reclaims_per_host_s
    rate = failures + reclaims
    reclaimed = np.divide(reclaims, rate, out=np.zeros_like(rate + 0.0), where=rate > 0.0)
    write_s = size / (hosts * settings.write_bytes_per_s_per_host)
    stop_s = size / (devices * settings.copy_bytes_per_s_per_device) if settings.asynchronous else write_s
    behind_s = write_s if settings.asynchronous else np.zeros_like(write_s)
    work_s = (np.asarray(steps) + settings.warm_up_steps + evaluation_steps) * np.asarray(step_s)
    asked = settings.checkpoint_interval_s
    interval_s = daly_interval_s(stop_s, rate) if asked is None else np.asarray(asked, dtype=float)
    # A checkpoint begins when the one before is written: the copy in host memory is in its place until then.
    interval_s = np.maximum(interval_s, behind_s)
    # Segments are equal, so that the last checkpoint is the end of the run.
    count = np.maximum(np.ceil(work_s / interval_s * (1.0 - 1e-12)), 1.0)
    start_up_s = settings.start_up_s + devices * settings.start_up_per_device_s
    read_s = size / (hosts * settings.read_bytes_per_s_per_host)
    arrays = np.broadcast_arrays(
        work_s,
        count,
        work_s / count,
        stop_s,
        rate,
        settings.detection_s * (1.0 - reclaimed) + settings.replacement_s * reclaimed,
        start_up_s + settings.compilation_s + read_s + behind_s,
        behind_s,
        start_up_s * float(first) + np.asarray(settings.compilation_s) * float(compiles),
    )
    return Segments(**dict(zip(Segments.__slots__, (item.astype(float) for item in arrays), strict=True)))


def daly_interval_s(checkpoint_s: Number, failures_per_s: Number) -> Floats:
    r"""Seconds of work between checkpoints that cost least: $\sqrt{2 C M}$ with M seconds between failures.

    With Daly's terms of higher order, for checkpoints not short beside M; infinite without failures.

    References: Young, A first order approximation to the optimum checkpoint interval, Communications of the
    ACM 17 (1974); Daly 2006, equation 37.
    """
    checkpoint, rate = np.broadcast_arrays(
        np.asarray(checkpoint_s, dtype=float), np.asarray(failures_per_s, dtype=float)
    )
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        between = 1.0 / rate
        half = checkpoint / (2.0 * between)
        longer = np.sqrt(2.0 * checkpoint * between) * (1.0 + np.sqrt(half) / 3.0 + half / 9.0) - checkpoint
        found = np.where(half < 1.0, longer, between)
    # Checkpoints that cost nothing are taken every second: the formula would ask for infinitely many.
    return np.where(rate > 0.0, np.maximum(found, 1.0), np.inf)


def interruption_terms(cut: Segments) -> dict[str, Floats]:
    """Expected seconds of lost work and of restarts.

    Time at risk is on average that of the failures times their mean distance; what of it is neither the
    segments nor restarts is lost.
    """
    rate = cut.failures_per_s
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        failures = expected_failures(cut)
        in_work = _beyond(rate, cut.length_s) * cut.count
        # Starts that fail before they are through are restarts as well.
        in_start = _beyond(rate, cut.start_s)
        first = np.expm1(rate * cut.start_s)
        later = failures - first
        # A restart ends after restart_s, or at the next failure.
        restart = np.where(rate > 0.0, -np.expm1(-rate * cut.restart_s) / rate, cut.restart_s)
        redone = np.divide(cut.redone_s, cut.restart_s, out=np.zeros_like(restart), where=cut.restart_s > 0.0)
        return {
            "lost_work": in_work + later * restart * redone,
            "restarts": failures * cut.wait_s + later * restart * (1.0 - redone) + in_start,
        }


def expected_failures(cut: Segments) -> Floats:
    """Failures of runs on average, those during restarts among them."""
    rate = cut.failures_per_s
    with np.errstate(over="ignore", invalid="ignore"):
        of_segments = cut.count * np.exp(rate * cut.restart_s) * np.expm1(rate * cut.length_s)
        return np.asarray(of_segments + np.expm1(rate * cut.start_s))


def _beyond(rate: Floats, seconds: Floats) -> Floats:
    """Expected seconds spent in attempts that fail, until one of `seconds` does not: (e^x - 1 - x) / rate."""
    exponent = rate * seconds
    series = seconds * exponent * (0.5 + exponent / 6.0)
    exact = np.divide(np.expm1(exponent) - exponent, rate, out=np.zeros_like(series), where=rate > 0.0)
    return np.where(exponent < _SERIES, series, exact)


def failure_variance(cut: Segments) -> Floats:
    """Variance of the seconds that failures cost: compound Poisson, lost work uniform in a segment."""
    with np.errstate(over="ignore", invalid="ignore"):
        cost = cut.wait_s + cut.restart_s + cut.length_s / 2.0
        return expected_failures(cut) * (cost**2 + cut.length_s**2 / 12.0)


def probability_within(
    deadline_s: Number,
    step_s: Number,
    low_s: Number,
    high_s: Number,
    steps: Number,
    devices: Number,
    checkpoint_bytes: Number,
    *,
    coverage: float = 0.9,
    hosts: Number | None = None,
    evaluation_steps: Number = 0.0,
    settings: RunSettings | None = None,
) -> Floats:
    """Probability that runs end in time.

    The step is log-normal to either side of its prediction, one draw for the whole run; the total is almost
    straight in it. Failures add their own variance, and that of their rate, which is uncertain too.

    Args:
        deadline_s: From the start of the run.
        step_s: Predicted.
        low_s: Lower end of the step's interval.
        high_s: Upper end.
        steps: Of the run.
        devices: Of the run.
        checkpoint_bytes: Of one checkpoint.
        coverage: Of the interval.
        hosts: As of `expected_duration_s`, like the rest.
        evaluation_steps: In steps, over the whole run.
        settings: None for `default_settings`.
    """
    chosen = settings or default_settings()
    step, low_s, high_s = _or_nan(step_s), _or_nan(low_s), _or_nan(high_s)
    below, above = step_spreads(step, low_s, high_s, coverage, chosen.step_spread)

    def cut_at(factor: Number) -> tuple[Segments, dict[str, Floats]]:
        at = {"hosts": hosts, "evaluation_steps": evaluation_steps, "settings": chosen}
        scaled = step * factor
        return (
            segments_of(scaled, steps, devices, checkpoint_bytes, **at),  # type: ignore[arg-type]
            expected_duration_s(scaled, steps, devices, checkpoint_bytes, **at),  # type: ignore[arg-type]
        )

    cut, terms = cut_at(1.0)
    middle = total_s(terms)
    late = np.asarray(deadline_s, dtype=float) >= middle
    spread = np.where(late, above, below)
    factor = np.where(late, np.exp(np.maximum(above, 0.01)), np.exp(-np.maximum(below, 0.01)))
    there = total_s(cut_at(factor)[1])
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        slope = (there - middle) / (factor - 1.0)  # seconds of the run per relative change of the step
        reached = 1.0 + (deadline_s - middle) / slope
        interruptions = terms["lost_work"] + terms["restarts"]
        variance = failure_variance(cut) + (chosen.mtbf_spread * interruptions) ** 2
        deviation = np.sqrt(spread**2 + variance / slope**2)
        score = np.log(np.maximum(reached, 1e-300)) / deviation
    # Without any uncertainty it is in time or not.
    score = np.where(deviation > 0.0, score, np.where(late, np.inf, -np.inf))
    return np.asarray(np.where(np.isfinite(middle), _normal_cdf(score), 0.0))


def step_spreads(
    step_s: Number, low_s: Number, high_s: Number, coverage: float, beyond: float = 0.0
) -> tuple[Floats, Floats]:
    """Standard deviations of the logarithm of a step below and above its prediction, by its interval.

    Args:
        step_s: Predicted.
        low_s: Lower end of its interval.
        high_s: Upper end.
        coverage: Of the interval.
        beyond: What runs differ by beyond it.
    """
    ends = _STANDARD.inv_cdf((1.0 + coverage) / 2.0)
    below = np.log(np.asarray(step_s) / low_s) / ends
    above = np.log(np.asarray(high_s) / step_s) / ends
    return np.hypot(below, beyond), np.hypot(above, beyond)


def _or_nan(seconds: Number) -> Floats:
    """Infinite times, of candidates that cannot run, as NaN: they pass through sums and products alike."""
    given = np.asarray(seconds, dtype=float)
    return np.where(np.isfinite(given), given, np.nan)


def _normal_cdf(score: Floats) -> Floats:
    """Phi by Abramowitz and Stegun 7.1.26 (error below 1.5e-7): numpy has no erf."""
    size = np.abs(np.clip(score, -12.0, 12.0)) / np.sqrt(2.0)
    t = 1.0 / (1.0 + 0.3275911 * size)
    series = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    tail = 0.5 * series * np.exp(-(size**2))
    return np.asarray(np.where(score > 0.0, 1.0 - tail, tail))
