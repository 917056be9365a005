"""Optuna: constraints and objectives from predictions, and a pruner of trials that cannot end in time or win.

Reference: optuna.readthedocs.io; Optuna 5 takes constraints by `Trial.set_constraint`, its samplers take
`constraints_func` until version 7.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from precision_time.errors import ConfigError, import_failure, shown
from precision_time.precision.support import supported_precisions
from precision_time.request.request import Request

from .batch_size import MOST, predicted_batch_size
from .estimate import JobEstimate
from .online.eta import Eta
from .online.monitor import RunMonitor
from .trials import RISK, TrialLimits, TrialPredictions, behind, least_remaining_s

try:
    import optuna
    from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
    from optuna.pruners import BasePruner
    from optuna.trial import FrozenTrial, Trial
except ImportError as error:
    raise import_failure(
        error,
        name="optuna",
        package="optuna",
        extra="precision-time-integrations[tuners]",
        purpose="use it with predictions",
    ) from error

ETA_ATTRIBUTE = "precision_time:eta"
_UNKNOWN = "prediction"
"""Constraint of trials that have no prediction, such as a layout that the model does not allow."""
_MOST_RUNNING = 1024
"""Trials that are watched at once."""


def _ignore(text: str) -> None:
    del text


class Predictions(TrialPredictions):
    """Predictions of trials, as constraints and as objectives."""

    def constraint_values(
        self,
        params: Mapping[str, Any],
        *,
        time_limit_s: float | None = None,
        cost_limit_usd: float | None = None,
        quantile: float = 0.5,
    ) -> dict[str, float]:
        """By name, how far a trial exceeds each limit, as a share of it; at most 0 where it is kept.

        Args:
            params: Of the trial.
            time_limit_s: Of the whole trial.
            cost_limit_usd: Of the whole trial, at its expected time.
            quantile: Of the time: 0.5 for the median.

        Raises:
            ConfigError: If a limit is given and the request has no length, or no price is known.
        """
        found = self.of(params)
        if found.step is None:
            return {_UNKNOWN: 1.0}
        values = {_UNKNOWN: 0.0, "memory": _memory_excess(found)}
        if time_limit_s is not None:
            values["time"] = self._value(found, "time", self.time_s(params, quantile)) / time_limit_s - 1.0
        if cost_limit_usd is not None:
            values["cost"] = self._value(found, "cost", found.cost_usd) / cost_limit_usd - 1.0
        return values

    def constraints(
        self, *, time_limit_s: float | None = None, cost_limit_usd: float | None = None
    ) -> Callable[[FrozenTrial], tuple[float, ...]]:
        """`constraints_func` of a sampler: memory first, then the limits that are given."""

        def constraints_func(trial: FrozenTrial) -> tuple[float, ...]:
            values = self.constraint_values(
                trial.params, time_limit_s=time_limit_s, cost_limit_usd=cost_limit_usd
            )
            names = ("memory", *(["time"] if time_limit_s else []), *(["cost"] if cost_limit_usd else []))
            return tuple(values.get(name, values[_UNKNOWN]) for name in names)

        return constraints_func

    def constrain(
        self,
        trial: Trial,
        *,
        time_limit_s: float | None = None,
        cost_limit_usd: float | None = None,
        prune: bool = True,
    ) -> JobEstimate:
        """Set the constraints of a trial, and end it before it starts where it cannot keep them.

        Call it in the objective, after the parameters are suggested. The sampler is told the median of the
        time; the trial ends where even the time it needs at least is too long.

        Args:
            trial: The trial.
            time_limit_s: Of the whole trial.
            cost_limit_usd: Of the whole trial.
            prune: Whether to end it; else the sampler alone is told.

        Raises:
            TrialPruned: If a constraint is not kept with a probability of 95 %, and `prune`.
        """
        values = self.constraint_values(
            trial.params, time_limit_s=time_limit_s, cost_limit_usd=cost_limit_usd
        )
        for name, value in values.items():
            trial.set_constraint(name, value)
        found = self.of(trial.params)
        least = self.constraint_values(
            trial.params, time_limit_s=time_limit_s, cost_limit_usd=cost_limit_usd, quantile=RISK
        )
        broken = [f"{name} {value:+.0%}" for name, value in least.items() if value > 0.0]
        if broken and prune:
            raise optuna.TrialPruned(found.reason or f"Predicted beyond the limit: {', '.join(broken)}")
        return found

    def time_objective_s(self, trial: Trial | FrozenTrial) -> float:
        """Predicted seconds of the trial, as an objective.

        Raises:
            TrialPruned: If the trial has no prediction.
            ConfigError: If the request has no length.
        """
        found = self._answered(trial)
        return self._value(found, "time", self.time_s(trial.params))

    def cost_objective_usd(self, trial: Trial | FrozenTrial) -> float:
        """Predicted cost of the trial, as an objective; raises as the other, and where no price is known."""
        found = self._answered(trial)
        return self._value(found, "cost", found.cost_usd)

    def _answered(self, trial: Trial | FrozenTrial) -> JobEstimate:
        found = self.of(trial.params)
        if found.step is None:
            raise optuna.TrialPruned(found.reason)
        return found

    @staticmethod
    def _value(found: JobEstimate, what: str, value: float | None) -> float:
        if value is None:
            why = found.reason or "no price of these devices is known. To fix: give usd_per_device_hour"
            raise ConfigError(f"A trial has no predicted {what}: {why}")
        return value


def _memory_excess(found: JobEstimate) -> float:
    """Share by which the memory is exceeded; at most 0 for what is said to fit."""
    assert found.step is not None
    excess = found.step.memory_bytes_per_device / found.step.device_memory_bytes - 1.0
    return min(excess, 0.0) if found.step.fits else max(excess, 1e-6)


def distributions(
    request: Request | Mapping[str, Any],
    names: Sequence[str] = ("batch_size", "precision"),
    *,
    layouts: int = 8,
    most: int = MOST,
) -> dict[str, BaseDistribution]:
    """What to search over for a request: only what is predicted to run.

    Args:
        request: What is trained.
        names: Of `batch_size` (up to the largest that is predicted to fit), `precision` (what the device
            computes) and `layout` (the fastest layouts, as text; `layout_fields` reads it).
        layouts: How many layouts.
        most: The largest batch per device.

    Raises:
        ConfigError: If a name is none of these, or nothing fits.
    """
    asked = request if isinstance(request, Request) else Request.of(request)
    found: dict[str, BaseDistribution] = {}
    for name in names:
        if name == "batch_size":
            largest = predicted_batch_size(asked, most=most)
            if largest < 1:
                raise ConfigError(
                    "Not even a batch of one is predicted to fit. To fix: a smaller model, or more devices "
                    "with a layout (`precision-time layout`)."
                )
            found[name] = IntDistribution(1, largest, log=True)
        elif name == "precision":
            device = asked.resolve().cluster.device
            found[name] = CategoricalDistribution(supported_precisions(device))
        elif name == "layout":
            found[name] = CategoricalDistribution(_layouts(asked, layouts))
        else:
            raise ConfigError(f"{shown(name)} is not suggested. To fix: batch_size, precision or layout.")
    return found


def _layouts(request: Request, count: int) -> tuple[str, ...]:
    from precision_time.planning.layouts.api import find_layouts

    ranked = find_layouts(request, top=count).ranked
    if not ranked:
        raise ConfigError("No layout fits. To fix: more devices; see `precision-time layout`.")
    return tuple(dict.fromkeys(_layout_text(each.prediction.request) for each in ranked))


def _layout_text(fields: Mapping[str, Any]) -> str:
    from precision_time.request.schema import LAYOUT, LAYOUT_OPTIONS

    return ",".join(
        f"{name}={fields[name]}" for name in LAYOUT if name in LAYOUT_OPTIONS and fields.get(name) is not None
    )


def layout_fields(text: str) -> dict[str, str]:
    """Fields of a request from a layout of `distributions`.

    >>> layout_fields("tp=2,zero_stage=1")
    {'tp': '2', 'zero_stage': '1'}
    """
    pairs = (pair.partition("=") for pair in text.split(",") if pair)
    return {name: value for name, _, value in pairs}


def report_eta(trial: Trial, eta: RunMonitor | Eta) -> None:
    """Tell the pruner the remaining time of a trial; call it beside `trial.report`."""
    found = eta.eta() if isinstance(eta, RunMonitor) else eta
    least = least_remaining_s(found)
    if least is not None:
        known = {**found.metrics(), "step": found.step, "elapsed_s": found.elapsed_s}
        trial.set_user_attr(ETA_ATTRIBUTE, known)


class DeadlinePruner(BasePruner):  # type: ignore[misc]
    """Prunes trials that cannot end in time, and those that cannot beat the best by then.

    The remaining time is that of `report_eta`; without it, of a monitor of its own that sees when
    `should_prune` is called, and of the predictions. A trial is pruned where it hardly ends in
    time: `risk` is the probability, over all its checks, that it would have.
    """

    def __init__(
        self,
        wrapped: BasePruner | None = None,
        *,
        total_steps: int,
        deadline: datetime | float | None = None,
        trial_limit_s: float | None = None,
        predictions: TrialPredictions | None = None,
        steps_per_report: int = 1,
        beat_best: bool = True,
        risk: float = RISK,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """A pruner whose time runs from now.

        Args:
            wrapped: Decides where this one does not prune.
            total_steps: The last `step` of `trial.report` plus one.
            deadline: When the study must have ended: seconds from now, or a moment.
            trial_limit_s: Seconds that each trial may take.
            predictions: Of trials, for what no step has shown yet.
            steps_per_report: Optimizer steps between two steps of `trial.report`, for the predictions.
            beat_best: Whether to prune trials that cannot beat the best value by the deadline.
            risk: Probability that a trial which is pruned would have ended in time, over all its checks.
            clock: Seconds that do not go back.

        Raises:
            ConfigError: If there is no limit, or a number is out of its range.
        """
        counts = {"total_steps": total_steps, "steps_per_report": steps_per_report}
        self._limits = TrialLimits(deadline, trial_limit_s, counts=counts, risk=risk, clock=clock)
        self.reasons: dict[int, str] = {}
        """Why trials were pruned, by their number."""
        self._wrapped, self._predictions = wrapped, predictions
        self._total, self._each = total_steps, steps_per_report
        self._beat_best, self._clock = beat_best, clock
        self._trials: dict[int, tuple[RunMonitor, float]] = {}
        self._checks: dict[int, int] = {}

    def prune(self, study: optuna.study.Study, trial: FrozenTrial) -> bool:
        """Whether the trial is to end now."""
        reason = self._reason(study, trial)
        if reason:
            self.reasons[trial.number] = reason
            self._trials.pop(trial.number, None)
            return True
        return self._wrapped is not None and self._wrapped.prune(study, trial)

    def _reason(self, study: optuna.study.Study, trial: FrozenTrial) -> str:
        eta, began_s = self._eta(trial)
        left_s = self._limits.left_s(self._clock() - began_s)
        self._checks[trial.number] = check = self._checks.get(trial.number, 0) + 1
        reason = self._limits.broken(eta, left_s, check)
        if reason or not self._beat_best:
            return reason
        try:
            best = study.best_value
        except ValueError:  # no trial has ended yet
            return ""
        sign = -1.0 if study.direction is optuna.study.StudyDirection.MAXIMIZE else 1.0
        steps = sorted(trial.intermediate_values)
        values = [sign * trial.intermediate_values[step] for step in steps]
        return behind(
            sign * best, steps, values, eta=eta, left_s=left_s, last_step=self._total - 1, sign=sign
        )

    def _eta(self, trial: FrozenTrial) -> tuple[Eta | Mapping[str, Any] | None, float]:
        """What is known of the remaining time, and since when the trial runs [s of the clock]."""
        if trial.number not in self._trials:
            found = None if self._predictions is None else self._predictions.of(trial.params)
            step = None if found is None else found.step
            monitor = RunMonitor(
                total_steps=self._total * self._each,
                prediction=step,
                clock=self._clock,
                on_warning=_ignore,  # a trial that is slower than predicted is what this is for
            )
            began_s = self._clock()
            if trial.datetime_start is not None and self._clock is time.monotonic:
                began_s -= max((datetime.now() - trial.datetime_start).total_seconds(), 0.0)
            monitor.begin()
            self._trials[trial.number] = monitor, began_s
            if len(self._trials) > _MOST_RUNNING:
                oldest = min(self._trials)
                del self._trials[oldest]
                self._checks.pop(oldest, None)
        monitor, began_s = self._trials[trial.number]
        reported = trial.user_attrs.get(ETA_ATTRIBUTE)
        if isinstance(reported, Mapping):
            return reported, self._clock() - float(reported.get("elapsed_s", 0.0))
        done = 0 if trial.last_step is None else (trial.last_step + 1) * self._each
        if done > monitor.step_count:
            monitor.step(done)
        return monitor.eta(), began_s
