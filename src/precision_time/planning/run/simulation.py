"""Simulated whole runs: the error of the step is one draw for the whole run, failures are independent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ...arrays import Floats
from .duration import Segments, Work

DRAWS = 4000
SEED = 0
_MOST_DRAWN = 1e12
"""Failed attempts, on average, that are drawn as what they are; more are as good as normally distributed."""
_MOST_EVENTS = 4_000_000
"""Failures that are drawn one by one; of more, only their sum (central limit theorem)."""
_MOST_EXPONENT = 20.0
"""Of failures in an attempt: the few runs beyond take as good as for ever already."""


def simulated_s(phases: Sequence[Work], *, draws: int = DRAWS, seed: int = SEED) -> Floats:
    """Seconds of so many simulated runs, shape (draws,), in no order.

    The step's error and the rate of failures are drawn once per run and shared by its phases: what the
    predictor errs by, and how good the machines are, stays the same. Failures are those of `duration`.
    """
    rng = np.random.default_rng(seed)
    error, reliability = rng.standard_normal((2, draws))
    found = np.zeros(draws)
    for phase in phases:
        below, above = phase.step_spreads()
        steps_s = phase.step_s * np.exp(error * np.where(error < 0.0, below, above))
        mtbf_s = phase.settings.mtbf_device_s * np.exp(phase.settings.mtbf_spread * reliability)
        settings = replace(phase.settings, mtbf_device_s=mtbf_s)
        cut = replace(phase, step_s=steps_s, settings=settings).segments()
        found += cut.start_s + cut.count * cut.length_s + _interrupted_s(cut, rng)
    return found


def _interrupted_s(cut: Segments, rng: np.random.Generator) -> Floats:
    """Seconds that failures cost in each run: attempts that ended early, waiting, restarts."""
    rate = cut.failures_per_s
    starts = _failed_attempts(np.ones_like(rate), rate * cut.start_s, rng)
    attempts = _failed_attempts(cut.count, rate * cut.length_s, rng)
    restarts = _failed_attempts(attempts, rate * cut.restart_s, rng)
    seconds = _sum_of_ended(starts, rate, cut.start_s, rng) + _sum_of_ended(attempts, rate, cut.length_s, rng)
    seconds += _sum_of_ended(restarts, rate, cut.restart_s, rng)
    return np.asarray(seconds + attempts * cut.restart_s + (starts + attempts + restarts) * cut.wait_s)


def _failed_attempts(successes: Floats, exponent: Floats, rng: np.random.Generator) -> Floats:
    """Attempts that fail until so many succeed, each with probability e^-exponent."""
    tried = (successes > 0.0) & (exponent > 0.0)
    bounded = np.minimum(np.where(tried, exponent, 0.0), _MOST_EXPONENT)
    per_success = np.expm1(bounded)
    mean = np.where(tried, successes, 0.0) * per_success
    many = mean > _MOST_DRAWN
    few = tried & ~many
    found = rng.negative_binomial(np.where(few, successes, 1.0), np.where(few, np.exp(-bounded), 1.0))
    drawn = np.where(few, found, 0).astype(float)
    if many.any():
        spread = np.sqrt(mean) * np.sqrt(1.0 + per_success)
        drawn = np.where(many, np.maximum(mean + spread * rng.standard_normal(mean.shape), 0.0), drawn)
    return drawn


def _sum_of_ended(number: Floats, rate: Floats, seconds: Floats, rng: np.random.Generator) -> Floats:
    """Sums of times to a failure that came before `seconds` were over: exponential, cut off there."""
    safe = np.where(rate > 0.0, rate, 1.0)
    if number.sum() <= _MOST_EVENTS:
        run = np.repeat(np.arange(number.size), number.astype(np.int64))
        before = -np.expm1(-(safe * seconds)[run])
        ended = -np.log1p(-rng.random(run.size) * before) / safe[run]
        return np.asarray(np.bincount(run, weights=ended, minlength=number.size), dtype=float)
    exponent = np.maximum(safe * seconds, 1e-9)
    left = exponent / np.expm1(np.minimum(exponent, 700.0))
    mean = (1.0 - left) / safe
    variance = (1.0 - left * left * np.exp(np.minimum(exponent, 700.0))) / safe**2
    drawn = number * mean + np.sqrt(np.maximum(number * variance, 0.0)) * rng.standard_normal(number.size)
    return np.asarray(np.clip(drawn, 0.0, number * seconds))
