r"""Expected wall-clock seconds of whole runs as named terms, for arrays of runs.

Failures are exponential with rate $\lambda$: of every device, and of every spot host that is reclaimed. After
one, the job waits D seconds for healthy hosts and restarts in R seconds (start-up, compilation, reading the
checkpoint), during which it can fail again. Work is done in segments of $\tau$ seconds, each followed by a
checkpoint that stops the steps for C seconds. A segment takes on average

$$ (1 / \lambda + D) \, e^{\lambda R} \, (e^{\lambda (\tau + C)} - 1) $$

References: Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, Future
Generation Computer Systems 22 (2006); Bougeret, Casanova, Rabie, Robert and Vivien, Recompute strategies
for parallel jobs, SC 2011, proposition 1 (with D).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from statistics import NormalDist

import numpy as np

from ...arrays import Floats, Number
from ...records import dataclass
from .settings import RunSettings, default_settings

TERMS = (
    *("start_up", "compilation", "warm_up", "steps", "evaluation", "checkpoints"),
    *("lost_work", "restarts"),
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


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """The work of runs, or of one phase of a run, in numbers or arrays that broadcast."""

    step_s: Number
    """Predicted; a run whose step has no time is infinite or NaN."""
    low_s: Number = math.nan
    high_s: Number = math.nan
    coverage: float = 0.9
    """Of the step's interval."""
    steps: Number
    devices: Number
    checkpoint_bytes: Number
    """Of one checkpoint, over all devices."""
    hosts: Number | None = None
    """None for eight devices each."""
    evaluation_steps: Number = 0.0
    """What evaluation costs over the whole run, in steps."""
    settings: RunSettings = field(default_factory=default_settings)
    """What is known beside the steps."""
    first: bool = True
    """Whether the job starts here; a later phase of a job that goes on has no start-up."""
    compiles: bool = True
    """Whether the step is compiled at the beginning, as it is after a failure in any case."""

    def expected_s(self) -> dict[str, Floats]:
        """Expected seconds by TERMS; infinite where failures come faster than work is saved."""
        step_s, settings = _or_nan(self.step_s), self.settings
        cut = replace(self, step_s=step_s).segments()
        compilation_s = np.asarray(settings.compilation_s) * float(self.compiles)
        terms = {
            "start_up": cut.start_s - compilation_s,
            "compilation": compilation_s,
            "warm_up": np.asarray(settings.warm_up_steps) * step_s,
            "steps": np.asarray(self.steps) * step_s,
            "evaluation": np.asarray(self.evaluation_steps) * step_s,
            "checkpoints": cut.count * cut.checkpoint_s,
        } | interruption_terms(cut)
        shape = np.broadcast_shapes(*(np.shape(seconds) for seconds in terms.values()))
        return {name: np.broadcast_to(np.asarray(terms[name], dtype=float), shape) for name in TERMS}

    def segments(self) -> Segments:
        """How checkpoints cut it."""
        settings, devices = self.settings, np.asarray(self.devices, dtype=float)
        whole_hosts = np.ceil(devices / DEVICES_PER_HOST)
        hosts = whole_hosts if self.hosts is None else np.asarray(self.hosts, dtype=float)
        size = np.asarray(self.checkpoint_bytes, dtype=float)
        failures = devices / settings.mtbf_device_s
        reclaims = hosts * settings.reclaims_per_host_s
        rate = failures + reclaims
        reclaimed = np.divide(reclaims, rate, out=np.zeros_like(rate + 0.0), where=rate > 0.0)
        write_s = size / (hosts * settings.write_bytes_per_s_per_host)
        stop_s = size / (devices * settings.copy_bytes_per_s_per_device) if settings.asynchronous else write_s
        behind_s = write_s if settings.asynchronous else np.zeros_like(write_s)
        steps = np.asarray(self.steps) + settings.warm_up_steps + self.evaluation_steps
        work_s = steps * np.asarray(self.step_s)
        asked = settings.checkpoint_interval_s
        interval_s = daly_interval_s(stop_s, rate) if asked is None else np.asarray(asked, dtype=float)
        # A checkpoint begins when the one before is written: the copy in host memory is there until then.
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
            start_up_s * float(self.first) + np.asarray(settings.compilation_s) * float(self.compiles),
        )
        return Segments(**dict(zip(Segments.__slots__, (item.astype(float) for item in arrays), strict=True)))

    def probability_within(self, deadline_s: Number) -> Floats:
        """Probability that runs end in time.

        The step is log-normal to either side of its prediction, one draw for the whole run; the total is
        almost straight in it. Failures add their own variance, and that of their rate, uncertain too.

        Args:
            deadline_s: From the start of the run.
        """
        below, above = self.step_spreads()
        terms = self.expected_s()
        middle = total_s(terms)
        late = np.asarray(deadline_s, dtype=float) >= middle
        spread = np.where(late, above, below)
        factor = np.where(late, np.exp(np.maximum(above, 0.01)), np.exp(-np.maximum(below, 0.01)))
        there = total_s(replace(self, step_s=_or_nan(self.step_s) * factor).expected_s())
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope = (there - middle) / (factor - 1.0)  # seconds of the run per relative change of the step
            reached = 1.0 + (deadline_s - middle) / slope
            interruptions = terms["lost_work"] + terms["restarts"]
            rate_variance = (self.settings.mtbf_spread * interruptions) ** 2
            variance = failure_variance(replace(self, step_s=_or_nan(self.step_s)).segments()) + rate_variance
            deviation = np.sqrt(spread**2 + variance / slope**2)
            score = np.log(np.maximum(reached, 1e-300)) / deviation
        # Without any uncertainty it is in time or not.
        score = np.where(deviation > 0.0, score, np.where(late, np.inf, -np.inf))
        return np.asarray(np.where(np.isfinite(middle), _normal_cdf(score), 0.0))

    def step_spreads(self) -> tuple[Floats, Floats]:
        """Standard deviations of the logarithm of a step below and above its prediction.

        By its interval, and by what runs differ by beyond it.
        """
        step_s, ends = _or_nan(self.step_s), _STANDARD.inv_cdf((1.0 + self.coverage) / 2.0)
        below = np.log(step_s / _or_nan(self.low_s)) / ends
        above = np.log(_or_nan(self.high_s) / step_s) / ends
        return np.hypot(below, self.settings.step_spread), np.hypot(above, self.settings.step_spread)


def total_s(terms: Mapping[str, Floats]) -> Floats:
    """The sum of terms."""
    return np.sum([np.asarray(seconds, dtype=float) for seconds in terms.values()], axis=0)  # type: ignore[no-any-return]


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
