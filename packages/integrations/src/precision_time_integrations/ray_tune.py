"""Ray Tune: a scheduler that stops trials that cannot end before a deadline, around another scheduler.

Reference: docs.ray.io, "Tune Trial Schedulers"; tested with Ray 2.60.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from precision_time.ray.executor import import_ray

from .online.eta import Eta
from .online.monitor import RunMonitor
from .trials import ETA_KEYS, RISK, TrialLimits, TrialPredictions, behind

import_ray("schedule trials with it")
from ray.tune.experiment import Trial  # noqa: E402 - after Ray is told to send no statistics
from ray.tune.schedulers import FIFOScheduler, TrialScheduler  # noqa: E402

_ELAPSED = "time_total_s"


class _Clock:
    """The seconds of a trial, as its last report has them."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class _Watched:
    """What is known of a trial."""

    def __init__(self, total_steps: int, prediction: Any) -> None:
        self.clock = _Clock()
        self.monitor = RunMonitor(
            total_steps=total_steps, prediction=prediction, clock=self.clock, on_warning=_ignore
        )
        self.monitor.begin()
        self.checks = 0
        self.steps: list[float] = []
        self.values: list[float] = []


def _ignore(text: str) -> None:
    del text


class DeadlineScheduler(TrialScheduler):  # type: ignore[misc]
    """Stops trials that cannot end in time, and those that cannot beat the best by then.

    The remaining time is that of a `RunMonitor` in the trial, where it reports `eta().metrics()`; without it,
    of the times of the reports, and of the predictions. A trial is stopped where it hardly ends in time:
    `risk` is the probability, over all its checks, that it would have. A pending one that is predicted to end
    too late is not started.
    """

    def __init__(
        self,
        wrapped: TrialScheduler | None = None,
        *,
        total: int,
        deadline: datetime | float | None = None,
        trial_limit_s: float | None = None,
        predictions: TrialPredictions | None = None,
        steps_per_report: int = 1,
        time_attr: str = "training_iteration",
        beat_best: bool = True,
        risk: float = RISK,
    ) -> None:
        """A scheduler whose time runs from now.

        Args:
            wrapped: Decides what this one does not, such as ASHA; None for first in, first out.
            total: Value of `time_attr` at which a trial has ended.
            deadline: When the search must have ended: seconds from now, or a moment.
            trial_limit_s: Seconds that each trial may take.
            predictions: Of trials by their `config`, for what no report has shown yet.
            steps_per_report: Optimizer steps for one of `time_attr`, for the predictions.
            time_attr: Of a report, that counts its progress.
            beat_best: Whether to stop trials that cannot beat the best value in time.
            risk: Probability that a trial which is stopped would have ended in time, over all its checks.

        Raises:
            ConfigError: If there is no limit, or a number is out of its range.
        """
        super().__init__()
        counts = {"total": total, "steps_per_report": steps_per_report}
        self._limits = TrialLimits(deadline, trial_limit_s, counts=counts, risk=risk, clock=time.time)
        self.reasons: dict[str, str] = {}
        """Why trials were stopped, by their id."""
        self._wrapped = wrapped or FIFOScheduler()
        self._total, self._each = total, steps_per_report
        self._predictions, self._time_attr = predictions, time_attr
        self._beat_best = beat_best
        self._mode = getattr(wrapped, "_mode", None)
        self._best: float | None = None
        self._trials: dict[str, _Watched] = {}

    @property
    def metric(self) -> str | None:
        """That of the other scheduler."""
        metric: str | None = self._wrapped.metric
        return metric

    @property
    def supports_buffered_results(self) -> bool:
        """Decisions depend on when a report comes."""
        return False

    def set_search_properties(self, metric: str | None, mode: str | None, **spec: Any) -> bool:
        """Take metric and mode of the search."""
        self._mode = mode or self._mode
        return bool(self._wrapped.set_search_properties(metric, mode, **spec))

    def on_trial_add(self, tune_controller: Any, trial: Trial) -> None:
        """A trial is to run."""
        self._wrapped.on_trial_add(tune_controller, trial)

    def on_trial_error(self, tune_controller: Any, trial: Trial) -> None:
        """A trial failed."""
        self._trials.pop(trial.trial_id, None)
        self._wrapped.on_trial_error(tune_controller, trial)

    def on_trial_result(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> str:
        """Stop the trial, or let the other scheduler decide."""
        reason = self._reason(trial, result)
        if reason:
            self.reasons[trial.trial_id] = reason
            return str(TrialScheduler.STOP)
        return str(self._wrapped.on_trial_result(tune_controller, trial, result))

    def on_trial_complete(self, tune_controller: Any, trial: Trial, result: dict[str, Any]) -> None:
        """A trial ended, by itself or by a decision."""
        value = self._value(result)
        ended = float(result.get(self._time_attr, 0)) >= self._total and trial.trial_id not in self.reasons
        if ended and value is not None and (self._best is None or value < self._best):
            self._best = value
        if ended and self._predictions is not None and _ELAPSED in result:
            self._predictions.observe(trial.config, float(result[_ELAPSED]))
        self._trials.pop(trial.trial_id, None)
        self._wrapped.on_trial_complete(tune_controller, trial, result)

    def on_trial_remove(self, tune_controller: Any, trial: Trial) -> None:
        """A trial that waits is taken away."""
        self._trials.pop(trial.trial_id, None)
        self._wrapped.on_trial_remove(tune_controller, trial)

    def choose_trial_to_run(self, tune_controller: Any) -> Trial | None:
        """The next trial of the other scheduler that can end in time; others are stopped unstarted."""
        while True:
            trial = self._wrapped.choose_trial_to_run(tune_controller)
            if trial is None or trial.status != Trial.PENDING:
                return trial
            reason = self._before_start(trial)
            if not reason:
                return trial
            self.reasons[trial.trial_id] = reason
            tune_controller.stop_trial(trial)

    def debug_string(self) -> str:
        """One line for the console."""
        return f"Deadline: {len(self.reasons)} trials stopped. {self._wrapped.debug_string()}"

    def save(self, checkpoint_path: str) -> None:
        """Save the other scheduler; what is known of running trials is learned again."""
        self._wrapped.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        """Restore the other scheduler."""
        self._wrapped.restore(checkpoint_path)

    def _before_start(self, trial: Trial) -> str:
        """Why a trial is not worth its start; empty where it is."""
        left_s = self._limits.left_s(0.0)
        if left_s <= 0.0:
            return "The time is over."
        if self._predictions is None:
            return ""
        least_s = self._predictions.time_s(trial.config, self._limits.risk)
        if least_s is None or least_s <= left_s:
            return ""
        return f"It is predicted to need {least_s:.3g} s at least, and {left_s:.3g} s are left."

    def _reason(self, trial: Trial, result: Mapping[str, Any]) -> str:
        """Why a trial is stopped; empty where it goes on."""
        elapsed_s, progress = float(result.get(_ELAPSED, 0.0)), float(result.get(self._time_attr, 0))
        if progress >= self._total:
            return ""
        left_s = self._limits.left_s(elapsed_s)
        if left_s <= 0.0:
            return "The time is over."
        watched = self._watched(trial)
        watched.clock.now_s = elapsed_s
        watched.monitor.step(int(progress) * self._each)
        value = self._value(result)
        if value is not None:
            watched.steps.append(progress)
            watched.values.append(value)
        eta: Eta | Mapping[str, Any] = result if ETA_KEYS[0] in result else watched.monitor.eta()
        watched.checks += 1
        reason = self._limits.broken(eta, left_s, watched.checks)
        if reason or not self._beat_best or self._best is None:
            return reason
        return behind(
            self._best, watched.steps, watched.values,
            eta=eta, left_s=left_s, last_step=self._total, sign=self._sign,
        )  # fmt: skip

    def _watched(self, trial: Trial) -> _Watched:
        if trial.trial_id not in self._trials:
            found = None if self._predictions is None else self._predictions.of(trial.config)
            step = None if found is None else found.step
            self._trials[trial.trial_id] = _Watched(self._total * self._each, step)
        return self._trials[trial.trial_id]

    @property
    def _sign(self) -> float:
        return -1.0 if self._mode == "max" else 1.0

    def _value(self, result: Mapping[str, Any]) -> float | None:
        """The metric of a report, lower for better."""
        try:
            return self._sign * float(result[str(self.metric)])
        except (KeyError, TypeError, ValueError):
            return None
