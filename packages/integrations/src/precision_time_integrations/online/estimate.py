"""Remaining time of a run: the predicted step as prior, the steps seen so far as likelihood.

Ordinary intervals and stalls are told apart. The level of the ordinary ones is a mean in which later steps
weigh more, because runs drift; it is combined with the prior by precision, in logarithms. Stalls and pauses
go on at the rate they came with so far.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from precision_time.arrays import Bools, Floats
from precision_time.cache import data
from precision_time.io import packaged_toml
from precision_time.predict.prediction import Prediction

from .history import Pauses, StepHistory

_WINDOW = 21
"""Neighbors that an interval is compared with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Numbers of the estimate, from `data/eta.toml`."""

    stall_ratio: float
    """An interval this many times as slow as its neighbors holds a stall."""
    recency: float
    """Weight of a step is its share of the steps done to this power."""
    stall_recency: float
    """The same for stalls: those of the start come no more."""
    stall_once: float
    """So many of the stalls seen were the only ones of their kind."""
    drift_log_sd: float
    """Of the level over a run that goes on as long as it has."""
    most_ahead: float
    """Times the steps so far, beyond which drift does not grow."""
    least_log_sd: float
    first_log_sd: float
    """Of one interval, where nothing tells how they vary."""
    evaluation_share: float
    """Time of a batch in evaluation, relative to a step: a forward pass is a third of it. Not fitted."""
    pause_share: float
    """Of planned pauses none of which was seen yet: relative to the steps between them."""
    unseen_share: float
    """Of pauses that nobody planned and none of which was seen yet: relative to all steps."""
    unseen_until: float
    """Share of the run after which what was not seen is not expected."""
    unforeseen_log_sd: float
    """Of what may still come and only lengthens a run, times the root of the share that is left."""
    unforeseen_planned_log_sd: float
    """The same of a run whose pauses are planned, or that makes none."""
    low_width: float
    high_width: float
    """Of the two sides of intervals, relative to what the model says."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prior:
    """What is expected of a step before one is seen."""

    step_time_s: float
    log_sd: float

    @classmethod
    def of(cls, prediction: Prediction) -> Prior:
        """That of a prediction."""
        low, high = prediction.interval.low_s, prediction.interval.high_s
        reach = NormalDist().inv_cdf((1.0 + prediction.interval.coverage) / 2.0)
        return cls(
            step_time_s=prediction.step_time_s,
            log_sd=max(math.log(high / low) / (2.0 * reach), 1e-3),
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class PausePlan:
    """Pauses that a run is known to make."""

    every_steps: int
    batches: int | None = None
    """Of evaluation, in each."""
    seconds: float | None = None
    """Expected of each."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """Of the steps to come."""

    step_time_s: float
    """Without stalls and pauses."""
    low_log_sd: float
    high_log_sd: float
    """Standard deviations of the logarithm of the remaining time, below and above."""
    remaining_s: float
    pause_s: float
    """Of it: stalls and pauses."""
    low_s: float
    high_s: float
    steps: int
    """It rests on."""
    median_s: float
    """Of the ordinary steps so far; 0 without."""

    def after(self, steps: int) -> Estimate:
        """The same after some more steps of that time."""
        if not steps:
            return self
        done_s = steps * self.step_time_s
        share = max(self.remaining_s - done_s, 0.0) / max(self.remaining_s, 1e-300)
        return replace(
            self,
            remaining_s=self.remaining_s * share,
            low_s=self.low_s * share,
            high_s=self.high_s * share,
            pause_s=min(self.pause_s, self.remaining_s * share),
            steps=self.steps + steps,
        )


@data
def settings() -> Settings:
    """Those that ship."""
    return Settings(**packaged_toml("precision_time_integrations.online.data", "eta.toml")["estimate"])


def estimate(
    history: StepHistory,
    *,
    step: int,
    total_steps: int,
    prior: Prior | None = None,
    plans: Mapping[str, PausePlan] | None = None,
    coverage: float = 0.9,
    numbers: Settings | None = None,
) -> Estimate | None:
    """The remaining time of a run.

    Args:
        history: Of its steps.
        step: Steps done.
        total_steps: Of the run.
        prior: Of the step time; None where nothing is predicted.
        plans: Pauses that will come, by name; empty where none will, None where that is not known.
        coverage: Of the interval.
        numbers: None for those that ship.

    Returns:
        None where neither steps nor a prediction are there.
    """
    numbers = numbers or settings()
    return estimate_of(
        steady(history, numbers),
        history.pauses,
        step=step,
        total_steps=total_steps,
        prior=prior,
        plans=plans,
        coverage=coverage,
        numbers=numbers,
    )


def estimate_of(
    level: Level | None,
    pauses: Mapping[str, Pauses],
    *,
    step: int,
    total_steps: int,
    prior: Prior | None,
    plans: Mapping[str, PausePlan] | None,
    coverage: float,
    numbers: Settings,
) -> Estimate | None:
    """The same from what the history came to: its ordinary steps, and its pauses by name."""
    if level is None and prior is None:
        return None
    mean_log, log_sd = _posterior(level, prior)
    step_s = math.exp(mean_log)
    left = max(total_steps - step, 0)
    seen = level.steps if level else 0
    stall_s = left * level.stall_s_per_step if level else 0.0
    pause_s = sum(
        _pauses_s(pauses.get(name), (plans or {}).get(name), step, total_steps, step_s, numbers)
        for name in {*pauses, *(plans or {})}
    )
    steps_s = left * step_s
    unseen_s = 0.0
    if plans is None and not (pause_s or stall_s):
        done = step / max(total_steps, 1)
        unseen_s = steps_s * numbers.unseen_share * max(1.0 - done / numbers.unseen_until, 0.0)
    pause_s += unseen_s
    remaining_s = steps_s + stall_s + pause_s
    spread = _spread(level, log_sd, left, remaining_s, unseen_s, numbers)
    # What nobody foresees lengthens a run, and never shortens it.
    unforeseen = numbers.unforeseen_log_sd if plans is None else numbers.unforeseen_planned_log_sd
    longer = math.hypot(spread, unforeseen * math.sqrt(left / max(total_steps, 1)))
    reach = NormalDist().inv_cdf((1.0 + coverage) / 2.0)
    low_sd, high_sd = spread * numbers.low_width, longer * numbers.high_width
    if level is None:  # the interval of the prediction, which needs no other width
        low_sd = high_sd = spread
    return Estimate(
        step_time_s=step_s,
        low_log_sd=low_sd,
        high_log_sd=high_sd,
        remaining_s=remaining_s,
        pause_s=stall_s + pause_s,
        low_s=remaining_s * math.exp(-reach * low_sd),
        high_s=remaining_s * math.exp(reach * high_sd),
        steps=seen,
        median_s=level.median_s if level else 0.0,
    )


def _spread(
    level: Level | None, log_sd: float, left: int, remaining_s: float, unseen_s: float, numbers: Settings
) -> float:
    """Standard deviation of the logarithm of the remaining time, before it is fitted to recorded runs."""
    if level is None or left == 0 or remaining_s <= 0.0:
        return math.hypot(log_sd, numbers.least_log_sd)
    ahead = left / max(level.steps, 1)
    parts = (
        log_sd,
        numbers.least_log_sd,
        # The level goes on drifting, the further the more of the run is left.
        numbers.drift_log_sd * math.sqrt(min(ahead, numbers.most_ahead)),
        level.log_sd / math.sqrt(left),
        math.sqrt(level.stall_squares * ahead) / remaining_s,
        unseen_s / remaining_s,
    )
    return math.hypot(*parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """The ordinary steps of a history."""

    log_mean: float
    """Logarithm of the seconds of a step, later ones weighing more."""
    log_mean_sd: float
    log_sd: float
    """Of one step."""
    steps: int
    stall_s_per_step: float
    stall_squares: float
    """Sum of the squared seconds of stalls."""
    recent_log_ratio: float
    """Of the last quarter to the first."""
    median_s: float
    """Of an ordinary step, all weighing alike."""


def steady(history: StepHistory, numbers: Settings | None = None) -> Level | None:
    """The ordinary steps of a history; None where there are none."""
    numbers = numbers or settings()
    counts, seconds = history.intervals()
    usable = (counts > 0) & (seconds > 0.0) & np.isfinite(seconds)
    counts, seconds = counts[usable], seconds[usable]
    if not counts.size:
        return None
    rates = seconds / counts
    if rates.size == 1:
        return Level(
            log_mean=math.log(rates[0]),
            log_mean_sd=numbers.first_log_sd,
            log_sd=numbers.first_log_sd,
            steps=int(counts[0]),
            stall_s_per_step=0.0,
            stall_squares=0.0,
            recent_log_ratio=0.0,
            median_s=float(rates[0]),
        )
    usual = _local_median(rates)
    slow = rates > numbers.stall_ratio * usual
    start = _warmed_up(rates, usual, slow) if history.from_start else 0
    if slow[start:].all():  # such as a second step that takes far longer than the first
        slow = np.zeros_like(slow)
    excess = np.where(slow, seconds - usual * counts, 0.0)
    ordinary = ~slow & (np.arange(rates.size) >= start)
    logs, weights = np.log(rates[ordinary]), counts[ordinary]
    progress = np.cumsum(weights) / weights.sum()
    weights = weights * progress**numbers.recency
    mean_s = float(np.average(rates[ordinary], weights=weights))
    effective = float(weights.sum() ** 2 / (weights**2).sum())
    center = float(np.average(logs, weights=weights))
    log_sd = math.sqrt(
        float(np.average((logs - center) ** 2, weights=weights)) * len(logs) / max(len(logs) - 1, 1)
    )
    stalls = excess[start:]
    quarter = max(logs.size // 4, 1)
    return Level(
        log_mean=math.log(mean_s),
        log_mean_sd=max(log_sd, numbers.least_log_sd) / math.sqrt(effective),
        log_sd=log_sd * math.sqrt(float(np.mean(counts[ordinary]))),
        steps=int(counts[ordinary].sum()),
        stall_s_per_step=_stall_rate(stalls, counts[start:], numbers),
        stall_squares=float((stalls**2).sum()),
        recent_log_ratio=float(np.median(logs[-quarter:]) - np.median(logs[:quarter])),
        median_s=float(np.median(rates[ordinary])),
    )


def _stall_rate(stalls: Floats, counts: Floats, numbers: Settings) -> float:
    """Seconds of stalls to expect per step."""
    seen = np.count_nonzero(stalls)
    if not seen:
        return 0.0
    weights = (np.cumsum(counts) / counts.sum()) ** numbers.stall_recency
    again = max(1.0 - numbers.stall_once / seen, 0.0)
    return again * float(weights @ stalls) / float(weights @ counts)


def _local_median(rates: Floats) -> Floats:
    width = min(_WINDOW, rates.size if rates.size % 2 else rates.size - 1)
    if width < 3:
        return np.full(rates.size, float(rates.min()))
    half = width // 2
    padded = np.concatenate([rates[half:0:-1], rates, rates[-2 : -half - 2 : -1]])
    return np.asarray(np.median(sliding_window_view(padded, width), axis=1))


def _warmed_up(rates: Floats, usual: Floats, slow: Bools) -> int:
    """Index of the first interval after the warm-up: the first always belongs to it."""
    later = float(np.median(rates[rates.size // 2 :]))
    most = max(rates.size // 2, 1)
    start = 1
    while start < most and rates[start] > 1.25 * later and (slow[start] or usual[start] > 1.1 * later):
        start += 1
    return start


def _posterior(level: Level | None, prior: Prior | None) -> tuple[float, float]:
    """Mean and standard deviation of the logarithm of the step time."""
    if prior is None:
        assert level is not None
        return level.log_mean, level.log_mean_sd
    mean, sd = math.log(prior.step_time_s), prior.log_sd
    if level is None:
        return mean, sd
    own, other = level.log_mean_sd**-2, sd**-2
    return (own * level.log_mean + other * mean) / (own + other), (own + other) ** -0.5


def _pauses_s(
    seen: Pauses | None,
    plan: PausePlan | None,
    step: int,
    total_steps: int,
    step_s: float,
    numbers: Settings,
) -> float:
    """Seconds of the pauses of one name that are still to come."""
    count = _pauses_left(seen, plan, step, total_steps)
    if seen:
        return count * seen.usual_s
    if plan is None:
        return 0.0
    if plan.seconds is not None:
        return count * plan.seconds
    if plan.batches is not None:
        return count * plan.batches * step_s * numbers.evaluation_share
    return count * plan.every_steps * step_s * numbers.pause_share


def _pauses_left(seen: Pauses | None, plan: PausePlan | None, step: int, total_steps: int) -> int:
    """How many pauses of one name are still to come: as planned, else as far apart as they were."""
    if plan is not None:
        count = total_steps // plan.every_steps - step // plan.every_steps
        is_due = step > 0 and step % plan.every_steps == 0 and (seen is None or seen.last_step < step)
        return count + is_due
    if seen is None or seen.last_step <= 0:
        return 0
    between = seen.last_step - seen.first_step
    every = between / (seen.count - 1) if seen.count > 1 and between > 0 else seen.last_step / seen.count
    return int((total_steps - seen.last_step) / max(every, 1.0) + 1e-9)
