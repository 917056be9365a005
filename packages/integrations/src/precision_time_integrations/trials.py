"""Trials of a hyperparameter search: what each would take, and which cannot end in time or win.

Used by `.optuna` and `.ray_tune`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from statistics import NormalDist, fmean, stdev
from typing import Any

from precision_time.errors import ConfigError
from precision_time.request.request import Request
from precision_time.request.schema import ALIASES, RequestFields

from .estimate import JobEstimate, estimate_job
from .online.eta import Eta

RISK = 0.05
"""Share of the stopped trials that may have ended in time."""
ETA_KEYS = ("eta/remaining_s", "eta/low_s", "eta/high_s", "eta/step_time_s")
_STANDARD = NormalDist()
_COVERAGE = 0.9
"""Of an interval that does not say."""
_LEAST_REPORTS = 4
"""Values of a trial before its curve is continued."""
_LEAST_OBSERVED = 4
"""Trials that ended before the prediction is corrected by them."""
_LEAST_SPREAD = 0.1
"""Standard deviation of the logarithm of a trial's time about the corrected prediction, at least."""


class TrialPredictions:
    """Predictions of trials by their parameters, each computed once."""

    def __init__(
        self,
        request: Request | Mapping[str, Any],
        *,
        fields: Mapping[str, str] | Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        """Predictions that have not been asked for.

        Args:
            request: What all trials have in common; with a length (steps, epochs, tokens) they have a time.
            fields: Parameter to field of `Request`, or a function from the parameters to fields. None: the
                parameters that are named like a field.
            options: Fields of `RunOptions`: start_up, cloud ...

        Raises:
            ConfigError: If `fields` names an unknown field.
        """
        self.request = request if isinstance(request, Request) else Request.of(request)
        self.options = dict(options or {})
        known = {*RequestFields.model_fields, *ALIASES}
        if isinstance(fields, Mapping):
            for name, field in fields.items():
                if field not in known:
                    raise ConfigError(
                        f"Parameter {name!r} stands for {field!r}, which is no field of a request. To fix: "
                        "see `precision-time predict --help` for their names."
                    )
        self._fields, self._known = fields, known
        self._of = lru_cache(maxsize=4096)(self._estimate)
        self._log_ratios: list[float] = []

    def of(self, params: Mapping[str, Any]) -> JobEstimate:
        """What a trial with these parameters takes; without an answer, it says why."""
        return self._of(tuple(sorted(params.items())))

    def observe(self, params: Mapping[str, Any], seconds: float) -> None:
        """Learn from a trial that ended: later ones are predicted by the ratio to those that were seen.

        Args:
            params: Of the trial.
            seconds: That it took, all of it.
        """
        predicted_s = self.of(params).duration_s()
        if predicted_s and seconds > 0.0:
            self._log_ratios.append(math.log(seconds / predicted_s))

    def time_s(self, params: Mapping[str, Any], quantile: float = 0.5) -> float | None:
        """Seconds within which a trial ends with that probability; None where it has no prediction.

        By the interval of the prediction alone until a few trials were observed; then by the spread of the
        ratios of those.

        Args:
            params: Of the trial.
            quantile: Probability, above 0 and below 1.
        """
        found = self.of(params)
        ratios = self._log_ratios
        alone_s = found.duration_s(quantile)
        median_s = found.duration_s()
        if len(ratios) < _LEAST_OBSERVED or median_s is None:
            return alone_s
        spread = max(stdev(ratios), _LEAST_SPREAD) * math.sqrt(1.0 + 1.0 / len(ratios))
        return median_s * math.exp(fmean(ratios) + _STANDARD.inv_cdf(quantile) * spread)

    def changes(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of the request that the parameters set."""
        if callable(self._fields):
            return dict(self._fields(params))
        if self._fields is not None:
            return {field: params[name] for name, field in self._fields.items() if name in params}
        return {name: value for name, value in params.items() if name in self._known}

    def _estimate(self, params: tuple[tuple[str, Any], ...]) -> JobEstimate:
        try:
            fields = self.request.with_(**self.changes(dict(params))).given()
        except ConfigError as error:
            return JobEstimate(source="trial", fields=dict(params), reason=str(error))
        return estimate_job(source="trial", fields={}, options=self.options, given=fields)


class TrialLimits:
    """The time that all trials of a search and each of them have, and whether one of them keeps it."""

    def __init__(
        self,
        deadline: datetime | float | None,
        trial_limit_s: float | None,
        *,
        counts: Mapping[str, int],
        risk: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Limits whose time runs from now.

        Args:
            deadline: Seconds from now, or a moment; None without one.
            trial_limit_s: Of each trial; one of the two is needed.
            counts: Steps and reports by their names.
            risk: Probability that a trial which is stopped would have ended in time, over all its checks.
            clock: Seconds that do not go back.

        Raises:
            ConfigError: If there is no limit, or a number is out of its range.
        """
        if deadline is None and trial_limit_s is None:
            raise ConfigError("Neither deadline nor trial_limit_s is given. To fix: give one, or both.")
        if min(counts.values()) < 1 or not 0.0 < risk < 1.0:
            given = ", ".join(f"{name}={count}" for name, count in counts.items())
            raise ConfigError(
                f"{given}, risk={risk}: counts are at least 1, the risk lies between 0 and 1. To fix: "
                "correct them."
            )
        if isinstance(deadline, datetime):
            deadline = (deadline - datetime.now(deadline.tzinfo)).total_seconds()
        self.risk, self._clock, self._trial_limit_s = risk, clock, trial_limit_s
        self._end_s = math.inf if deadline is None else clock() + deadline

    def left_s(self, elapsed_s: float) -> float:
        """Seconds that a trial still has which has run for some."""
        limit_s = math.inf if self._trial_limit_s is None else self._trial_limit_s
        return min(self._end_s - self._clock(), limit_s - elapsed_s)

    def broken(self, eta: Eta | Mapping[str, Any] | None, left_s: float, check: int) -> str:
        """Why a trial hardly ends in the time that is left; empty where it may.

        Args:
            eta: Of the trial, or its `metrics()`; None where nothing is known.
            left_s: Seconds that it has.
            check: Number of the check of this trial, from 1.
        """
        if left_s <= 0.0:
            return "The time is over."
        least_s = None if eta is None else least_remaining_s(eta, risk=risk_of_check(self.risk, check))
        if least_s is None or least_s <= left_s:
            return ""
        return f"It needs {least_s:.3g} s more at least, and {left_s:.3g} s are left."


def behind(
    best: float,
    steps: Sequence[float],
    values: Sequence[float],
    *,
    eta: Eta | Mapping[str, Any] | None,
    left_s: float,
    last_step: float,
    sign: float,
) -> str:
    """Why a trial cannot beat the best in the time that is left; empty where it may.

    Args:
        best: Value to beat; lower is better.
        steps: At which the trial reported values, rising.
        values: Lower is better.
        eta: Of the trial, or its `metrics()`; None where nothing is known.
        left_s: Seconds that it has.
        last_step: Of a trial that runs to its end.
        sign: -1 where the user's values are better the higher they are, else 1.
    """
    if not steps:
        return ""
    remaining_s = 0.0 if eta is None else expected_remaining_s(eta) or 0.0
    share = min(left_s / remaining_s, 1.0) if remaining_s > 0.0 else 1.0
    last = steps[-1] + share * max(last_step - steps[-1], 0.0)
    possible = best_possible(steps, values, last)
    if possible is None or possible < best:
        return ""
    return f"By step {last:.0f} it may reach {sign * possible:.4g}, and the best has {sign * best:.4g}."


def least_remaining_s(eta: Eta | Mapping[str, Any], *, risk: float = RISK) -> float | None:
    """Seconds that a trial takes longer than with probability 1 - risk; None where nothing is known.

    Args:
        eta: Of the trial, or its `metrics()` in a report.
        risk: Probability that it ends sooner.
    """
    if isinstance(eta, Eta):
        remaining, interval = eta.remaining_s, eta.interval
        low, high = (interval.low_s, interval.high_s) if interval else (None, None)
        coverage = interval.coverage if interval else _COVERAGE
    else:
        remaining, low, high = (_number(eta.get(name)) for name in ETA_KEYS[:3])
        coverage = _COVERAGE
    if remaining is None:
        return None
    if low is None or high is None or low <= 0.0:
        return remaining if low is None else max(low, 0.0)
    # The interval is taken as that of a lognormal, as the model of the steps has it.
    center = math.sqrt(low * high)
    sigma = math.log(high / low) / (2.0 * _STANDARD.inv_cdf((1.0 + coverage) / 2.0)) if high > low else 0.0
    return center * math.exp(_STANDARD.inv_cdf(risk) * sigma)


def risk_of_check(risk: float, check: int) -> float:
    """The part of a risk that one of many checks of a trial may take; over all checks they add up to it.

    Args:
        risk: Of the trial.
        check: Number of the check, from 1.
    """
    return risk / (check * (check + 1))


def expected_remaining_s(eta: Eta | Mapping[str, Any]) -> float | None:
    """Expected seconds to the end of a trial; None where nothing is known."""
    return eta.remaining_s if isinstance(eta, Eta) else _number(eta.get(ETA_KEYS[0]))


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def best_possible(steps: Sequence[float], values: Sequence[float], last_step: float) -> float | None:
    """The lowest value that a curve may reach by a step, if it goes on falling as fast as it did.

    Learning curves flatten: the mean slope since the middle of the curve, continued, lies below what comes.
    Twice the spread of the values about that line is allowed for noise.

    Args:
        steps: At which values were reported, rising.
        values: Lower is better.
        last_step: To which the curve is continued.

    Returns:
        None where there are too few values, or the curve rises or is not finite.
    """
    known = [(step, value) for step, value in zip(steps, values, strict=True) if math.isfinite(value)]
    if len(known) < _LEAST_REPORTS:
        return None
    half = known[len(known) // 2 - 1 :]
    (first, start), (last, _) = half[0], half[-1]
    lowest = min(value for _, value in known)
    if last <= first:
        return None
    slope = min((half[-1][1] - start) / (last - first), 0.0)
    residuals = [value - (start + slope * (step - first)) for step, value in half]
    noise = math.sqrt(math.fsum(each**2 for each in residuals) / len(residuals))
    return lowest + slope * max(last_step - last, 0.0) - 2.0 * noise
