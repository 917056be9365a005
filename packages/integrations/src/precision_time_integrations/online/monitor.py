"""`RunMonitor`: watches a run from inside it, and says when it will end."""

from __future__ import annotations

import time
import warnings as python_warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeVar, cast

from precision_time.diagnostics import Diagnostic, Severity
from precision_time.errors import PrecisionTimeError
from precision_time.predict.anchors import NOT_OF_A_STEP
from precision_time.predict.headline import Interval
from precision_time.predict.prediction import Prediction
from precision_time.request.request import Request
from precision_time.request.schema import STEP_TIME_S

from .estimate import Estimate, PausePlan, Prior, estimate, settings, steady
from .eta import Eta
from .health import HostState, slow_run
from .history import StepHistory
from .record import RunRecord

_F = TypeVar("_F", bound=Callable[..., Any])
_FIRST_COST_S, _GROWN = 0.01, 1.1
"""What may be spent besides, as soon as there are so many times the steps: short runs are told, too."""
_COST_SHARE = 5e-4
"""Of a run's time that computing its remaining time may take."""
_ENOUGH_STEPS = 20
"""Steady steps after which a run is compared with its prediction."""


def _never_raises(method: _F) -> _F:
    """The first failure of a monitor ends it with one warning, never the run."""

    @wraps(method)
    def guarded(self: RunMonitor, *args: Any, **kwargs: Any) -> Any:
        if not self.failure:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
                self._fail(error)
        return self._when_off(method.__name__)

    return cast(_F, guarded)


class RunMonitor:
    """Remaining time of one training run, from its prediction and the steps it has made.

    No method raises: the first failure is warned about once and turns the monitor off.
    """

    def __init__(
        self,
        *,
        total_steps: int | None = None,
        request: Request | Mapping[str, Any] | None = None,
        prediction: Prediction | None = None,
        pauses: Mapping[str, int | Mapping[str, Any]] | None = None,
        coverage: float = 0.9,
        clock: Callable[[], float] = time.monotonic,
        on_warning: Callable[[str], None] | None = None,
        host: HostState | None = None,
    ) -> None:
        """A monitor that has not begun.

        Args:
            total_steps: Optimizer steps of the whole run; None where it is not known.
            request: What is trained, where it can be said: it is predicted, and offered as a measurement.
            prediction: Its prediction, where there is one already.
            pauses: Pauses that the run will make, by name: every so many steps, or `every_steps` with
                `batches` (of evaluation) or `seconds` of each. Empty where it makes none; None where that is
                not known, and a few are expected.
            coverage: Of the interval of the remaining time, above 0 and below 1.
            clock: Seconds that do not go back.
            on_warning: Takes what should be said to the user; None for Python's `warnings`.
            host: What is beside the run; None to look at this host when the run is slow.
        """
        self.failure = ""
        """Why the monitor is off; empty while it is on."""
        self.request: Mapping[str, Any] = {}
        self.prediction: Prediction | None = None
        self._asked: Request | None = None
        self._ratio: tuple[float, float] | None = None
        """Of the run to its prediction, before it changed; standard deviation of its logarithm."""
        self._clock, self._on_warning, self._host = clock, on_warning, host
        self._found: list[Diagnostic] = []
        self._total, self._coverage = total_steps, coverage
        self._plans: dict[str, PausePlan] | None = None if pauses is None else {}
        self._history = StepHistory()
        self._began_s: float | None = None
        self._step, self._first, self._last_s, self._paused_s = 0, 0, 0.0, 0.0
        self._untimed = 0
        """Steps since the clock last went on."""
        self._pause: tuple[str, float] | None = None
        self._pause_ended = False
        self._waited_s: float | None = None
        self._said_slow = False
        self._computed: tuple[float, int, Estimate | None] | None = None
        self._cost_s = self._spent_s = 0.0
        self._set_up(total_steps, request, prediction, pauses, coverage)

    @property
    def warnings(self) -> tuple[Diagnostic, ...]:
        """What was said to the user."""
        return tuple(self._found)

    @property
    def step_count(self) -> int:
        """Optimizer steps done, those before a resumed run among them."""
        return self._step

    @_never_raises
    def begin(self, step: int = 0) -> None:
        """The run starts, or goes on.

        Args:
            step: Steps done in earlier runs that it resumes.
        """
        self._step = self._first = step
        self._began_s = self._last_s = self._clock()
        self._paused_s, self._untimed, self._pause, self._computed = 0.0, 0, None, None
        self._history = StepHistory()

    @_never_raises
    def step(self, step: int | None = None, *, at_s: float | None = None) -> None:
        """An optimizer step ended, or several; without `begin` the first call says where watching starts.

        Args:
            step: Steps done now; None for one more. Fewer than before mean that the run went back to a
                checkpoint.
            at_s: When, by the monitor's clock; None for now.
        """
        now = self._clock() if at_s is None else at_s
        done = self._step + 1 if step is None else step
        if self._began_s is None:
            self._began_s, self._last_s = now, now
            self._step = self._first = done
            self._history = StepHistory(from_start=False)
            return
        count, seconds = done - self._step + self._untimed, now - self._last_s - self._paused_s
        self._pause = None  # steps go on: it is none, and what it takes is in their time
        self._step = done
        if seconds == 0.0 and count > 0:
            self._untimed = count  # the clock is coarser than the steps: they count with the next ones
            return
        if count > 0 and seconds > 0.0:
            self._history.add(count, seconds)
        self._last_s, self._paused_s, self._untimed = now, 0.0, 0

    @_never_raises
    def waited(self, seconds: float) -> None:
        """Seconds of the present step that were spent waiting for input."""
        self._waited_s = (self._waited_s or 0.0) + seconds

    @_never_raises
    def begin_pause(self, name: str) -> None:
        """The steps stop for a while: "evaluation", "checkpoint" ...; one pause at a time counts.

        A step before `end_pause` means that they do not: what goes on beside them is no pause.
        """
        if self._pause is None:
            self._pause = name, self._clock()

    @_never_raises
    def end_pause(self) -> None:
        """They go on."""
        if self._pause is not None:
            (name, since_s), self._pause = self._pause, None
            seconds = max(self._clock() - since_s, 0.0)
            self._history.add_pause(name, self._step, seconds)
            self._pause_ended = True
            self._paused_s += seconds

    @contextmanager
    def pause(self, name: str) -> Iterator[None]:
        """A pause as a `with` block."""
        self.begin_pause(name)
        try:
            yield
        finally:
            self.end_pause()

    @_never_raises
    def changed(
        self,
        *,
        request: Request | Mapping[str, Any] | None = None,
        prediction: Prediction | None = None,
        total_steps: int | None = None,
    ) -> None:
        """The run goes on in another way: precision, resolution, batch or length.

        What the steps so far tell of this run's ratio to its prediction is kept: with a request they are an
        anchor of its prediction, with a prediction alone the ratio goes on.

        Args:
            request: Of the steps to come; None where only the length changes.
            prediction: Of them, where there is one already.
            total_steps: Of the whole run; None where it stays.
        """
        if total_steps is not None:
            self._total = total_steps
        self._computed = None
        if request is None and prediction is None:
            return
        before, level = self.prediction, steady(self._history)
        if request is not None and prediction is None and level is not None:
            request = self._anchored(request, level.median_s)
        self._set_up(self._total, request, prediction, None, self._coverage)
        self._ratio = None
        if prediction is not None and before is not None and level is not None:
            # As sure as one interval is: the ratio is of other steps.
            self._ratio = level.median_s / before.step_time_s, settings().first_log_sd
        # Steps of another kind are not measured together: the run's record is of those to come.
        pauses, self._history = self._history.pauses, StepHistory(from_start=False)
        self._history.pauses = pauses

    def _anchored(
        self, request: Request | Mapping[str, Any], measured_s: float
    ) -> Request | Mapping[str, Any]:
        """The request of the steps to come, with the steps so far as an anchor."""
        if self._asked is None:
            return request
        asked, before = request if isinstance(request, Request) else Request.of(request), self._asked
        old, new = before.given(), asked.given()
        differ = {name: old.get(name) for name in {**old, **new} if old.get(name) != new.get(name)}
        kept = {name: value for name, value in differ.items() if name not in NOT_OF_A_STEP}
        anchored = asked.with_(anchors=[*asked.anchors, {**kept, STEP_TIME_S: measured_s}])
        try:
            anchored.resolve()
        except PrecisionTimeError:
            return asked
        return anchored

    @_never_raises
    def eta(self) -> Eta:
        """The remaining time as it is known now."""
        now = self._clock()
        found = self._estimated(now)
        elapsed_s = 0.0 if self._began_s is None else max(now - self._began_s, 0.0)
        self._compare(found)
        if found is None:
            return self._nothing_known(elapsed_s)
        predicted = "prediction" if self.prediction else ""
        seen = f"{found.steps} step{'s' if found.steps > 1 else ''}" if found.steps else ""
        known = self._total is not None
        since_s = max(now - self._last_s, 0.0) if self._began_s is not None and not self._pause else 0.0
        ahead_s = min(since_s, found.step_time_s)  # of the step under way

        def left(seconds: float) -> float:
            return max(seconds - ahead_s, 0.0)

        return Eta(
            step=self._step,
            total_steps=self._total,
            elapsed_s=elapsed_s,
            remaining_s=left(found.remaining_s) if known else None,
            interval=Interval(low_s=left(found.low_s), high_s=left(found.high_s), coverage=self._coverage)
            if known
            else None,
            step_time_s=found.step_time_s,
            pause_s=found.pause_s,
            basis=" and ".join(filter(None, (predicted, seen))),
        )

    @_never_raises
    def end(self) -> RunRecord:
        """The run ended; what it turned out to take."""
        self.end_pause()
        self._computed = None
        self._compare(self._estimated(self._clock()))
        level = steady(self._history)
        steps = self._step - self._first
        alone = level is not None and level.steps < 2  # a first step tells of warm-up
        return RunRecord(
            request=self.request,
            steps=max(steps, 0),
            steady_steps=level.steps if level and not alone else 0,
            step_time_s=level.median_s if level and not alone else None,
            log_spread=level.log_sd if level else 0.0,
            elapsed_s=0.0 if self._began_s is None else max(self._clock() - self._began_s, 0.0),
            pauses_s={name: pause.seconds for name, pause in self._history.pauses.items()},
            waited_s=None if self._waited_s is None else self._waited_s / max(steps, 1),
            warnings=tuple(item.text for item in self._found),
        )

    @_never_raises
    def _set_up(
        self,
        total_steps: int | None,
        request: Request | Mapping[str, Any] | None,
        prediction: Prediction | None,
        pauses: Mapping[str, int | Mapping[str, Any]] | None,
        coverage: float,
    ) -> None:
        from precision_time.predict.api import predict

        if total_steps is not None and total_steps < 0:
            raise ValueError(f"total_steps={total_steps} must be at least 0")
        if not 0.0 < coverage < 1.0:
            raise ValueError(f"coverage={coverage} must lie between 0 and 1")
        for name, plan in (pauses or {}).items():
            self._plans = self._plans or {}
            found = PausePlan(every_steps=plan) if isinstance(plan, int) else PausePlan(**plan)
            if found.every_steps < 1:
                raise ValueError(f"pauses: {name!r} every {found.every_steps} steps; it must be at least 1")
            self._plans[name] = found
        if request is not None:
            asked = request if isinstance(request, Request) else Request.of(request)
            self.request, self._asked = asked.to_dict(), asked
            prediction = prediction or predict(asked)
        elif prediction is not None:
            self.request = prediction.request
        self.prediction = prediction or self.prediction

    def _prior(self) -> Prior | None:
        if self.prediction is None:
            return None
        if self._ratio is not None:
            return Prior(step_time_s=self.prediction.step_time_s * self._ratio[0], log_sd=self._ratio[1])
        return Prior.of(self.prediction)

    def _estimated(self, now: float) -> Estimate | None:
        """The estimate, computed again when it is worth what it costs."""
        if self._computed is not None:
            at_s, step, found = self._computed
            if not self._pause_ended and not self._worth_it(now, at_s, step):
                return found if found is None else found.after(self._step - step)
        self._pause_ended = False
        numbers = settings()
        started = time.perf_counter()
        total = self._total if self._total is not None else self._step
        found = estimate(
            self._history,
            step=self._step,
            total_steps=total,
            prior=self._prior(),
            plans=self._plans,
            coverage=self._coverage,
            numbers=numbers,
        )
        self._cost_s = time.perf_counter() - started
        self._spent_s += self._cost_s
        self._computed = now, self._step, found
        return found

    def _worth_it(self, now: float, at_s: float, step: int) -> bool:
        """Whether computing again costs little of the run: soon at its start, then ever more rarely."""
        if step == self._step:
            return False
        elapsed_s = now - (now if self._began_s is None else self._began_s)
        affordable = self._spent_s + self._cost_s <= _FIRST_COST_S + _COST_SHARE * elapsed_s
        grown = self._step - self._first >= _GROWN * (step - self._first)
        return (grown and affordable) or now - at_s >= self._cost_s / _COST_SHARE

    def _compare(self, found: Estimate | None) -> None:
        """Say once that the run is slower than it should be, and why."""
        if self._said_slow or self.prediction is None or found is None or found.steps < _ENOUGH_STEPS:
            return
        level = steady(self._history) if found.median_s > self.prediction.interval.high_s else None
        if level is None:
            return
        self._said_slow = True
        steps = max(self._step - self._first, 1)
        waited_s = None if self._waited_s is None else self._waited_s / steps
        self._warn("slow-run", slow_run(self.prediction, level, waited_s, self._host))

    def _warn(self, code: str, text: str) -> None:
        self._found.append(Diagnostic(code, Severity.WARNING, text))
        try:
            if self._on_warning is not None:
                self._on_warning(text)
            else:
                python_warnings.warn(text, RuntimeWarning, stacklevel=4)
        except Exception:  # noqa: BLE001 - such as warnings turned into errors, or a broken handler
            self._on_warning = None

    def _fail(self, error: Exception) -> None:
        self.failure = f"{type(error).__name__}: {error}"
        text = f"The remaining time of the run is not watched any more: {self.failure}. The run goes on."
        self._warn("monitor", text)

    def _when_off(self, method: str) -> Eta | RunRecord | None:
        if method == "eta":
            return self._nothing_known(0.0)
        if method == "end":
            return RunRecord(
                request=self.request,
                steps=max(self._step - self._first, 0),
                steady_steps=0,
                step_time_s=None,
                log_spread=0.0,
                elapsed_s=0.0,
                warnings=tuple(item.text for item in self._found),
            )
        return None

    def _nothing_known(self, elapsed_s: float) -> Eta:
        return Eta(
            step=self._step,
            total_steps=self._total,
            elapsed_s=elapsed_s,
            remaining_s=None,
            interval=None,
            step_time_s=None,
            pause_s=0.0,
            basis="",
        )
