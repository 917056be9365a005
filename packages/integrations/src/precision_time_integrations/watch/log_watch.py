"""The run in a log: its steps go to a `RunMonitor`, by the clock of the log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from precision_time.errors import PrecisionTimeError, in_one_line
from precision_time.hardware.words import with_cluster_words
from precision_time.predict.api import predict
from precision_time.predict.prediction import Prediction
from precision_time.request.request import Request
from precision_time.units import format_duration

from ..importers.contract import LoggedStep, missing_fields
from ..importers.text_logs import FORMATS, LogReading, Reading, known_formats
from ..online.eta import Eta
from ..online.health import HostState
from ..online.monitor import RunMonitor
from ..online.record import RunRecord

_WINDOW = 10.0
"""Resolutions of a rounded clock that lie between two steps which are timed."""
_QUIET_STEPS = 20.0
"""Reports that may be late before a log is said to have stopped ..."""
_LEAST_QUIET_S = 60.0
"""... and the least time."""
_COARSE_S = 1.0
"""Times of lines are of whole seconds in some logs: what a step is logged to take is more exact."""
_FAILED = re.compile(
    r"^(?:\[?rank\d+\]?:?)?\s*Traceback \(most recent call last\)|OutOfMemoryError|CUDA out of memory"
    r"|slurmstepd: error|ChildFailedError|Segmentation fault|^Killed$"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """Where the run in a log stands."""

    format: str
    """Of the log; empty while it is not known."""
    run: int
    """Number of the run in the log, from 1; 0 before its first step."""
    eta: Eta
    quiet_s: float
    """Since the log grew."""
    ended: bool
    failed: str
    """The line of the log that says so; empty where none does."""
    prediction: Prediction | None
    missing: tuple[str, ...]
    """Fields that a prediction needs and nobody stated; empty where there is one."""
    warnings: tuple[str, ...]

    @property
    def text(self) -> str:
        """In one line."""
        eta = self.eta
        if not self.run:
            return "no step yet"
        of = f" of {eta.total_steps:,}" if eta.total_steps else ""
        share = f" ({eta.step / eta.total_steps:.1%})" if eta.total_steps else ""
        parts = [f"step {eta.step:,}{of}{share}"]
        if self.ended:
            parts.append(f"ended after {format_duration(eta.elapsed_s)}")
        elif eta.remaining_s is not None:
            parts.append(eta.text)
        elif not eta.total_steps:
            parts.append("number of steps not known (--steps)")
        if eta.step_time_s is not None:
            parts.append(f"{format_duration(eta.step_time_s)} per step")
        if eta.basis and not self.ended:
            parts.append(f"from {eta.basis}")
        return ", ".join(parts)

    @property
    def short(self) -> str:
        """Beside a bar."""
        if not self.run or self.ended or self.eta.remaining_s is None:
            return self.text
        return f"{self.eta.step:,} of {self.eta.total_steps:,}, {self.eta.text}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "format": self.format,
            "run": self.run,
            **self.eta.to_dict(),
            "quiet_s": self.quiet_s,
            "ended": self.ended,
            "failed": self.failed,
            "predicted_step_time_s": None if self.prediction is None else self.prediction.step_time_s,
            "missing": list(self.missing),
            "warnings": list(self.warnings),
        }


class LogWatch:
    """Watches the last run of a log.

    Args:
        given: Fields of a request, which go before what the log says.
        total_steps: Of the whole run, where the log does not say it.
        coverage: Of the interval.
        here: Whether the run is on this machine, whose devices then say why it is slow.
        clock: Seconds that do not go back.
        say: Takes warnings and remarks.
    """

    def __init__(
        self,
        *,
        given: Mapping[str, Any] | None = None,
        total_steps: int | None = None,
        coverage: float = 0.9,
        here: bool = False,
        clock: Callable[[], float] = time.monotonic,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._given, self._stated, self._coverage = dict(given or {}), total_steps, coverage
        self._clock, self._say, self._host = clock, say, None if here else HostState()
        self._reading = LogReading()
        self._log_s = 0.0
        """Time of the last step by the clock of the log."""
        self._offset_s: float | None = None
        """From the machine's clock to that of the log, once lines come as they are written."""
        self._fed: LoggedStep | None = None
        self._fed_at_s: float | None = None
        self._last: LoggedStep | None = None
        self._run: tuple[Reading | None, int] = None, 0
        self._batch: float | None = None
        self._failed = ""
        self._grew_s = clock()
        self.missing: tuple[str, ...] = ()
        self.prediction = self._predicted({})
        self._monitor = self._new_monitor()

    def feed(self, line: str) -> bool:
        """One more line; whether it reported a step."""
        self._grew_s = self._clock()
        step = self._reading.feed(line)
        if step is None:
            if _FAILED.search(line):
                self._failed = line.strip()[:200]
            return False
        self._failed = ""
        self._place(step)
        return True

    def caught_up(self, age_s: float = 0.0) -> None:
        """From now on lines come as they are written.

        Args:
            age_s: Since the last line was written.
        """
        if self._offset_s is None:
            now = self._log_s + min(age_s, 2.0 * (self._monitor.eta().step_time_s or 0.0))
            self._offset_s = now - self._clock()

    @property
    def ended(self) -> bool:
        """Whether the log says that training ended, or all steps are done."""
        best, total = self._reading.best, self._total
        if best is None or self._last is None:
            return False
        known = self._stated is not None or not best.format.generic  # any bar may be that of one epoch
        return best.reader.ended or (known and total is not None and self._last.step >= total)

    @property
    def quiet_s(self) -> float:
        """Since the log grew."""
        return max(0.0, self._clock() - self._grew_s)

    @property
    def stopped(self) -> bool:
        """Whether the log has not grown for long."""
        step_s = self._monitor.eta().step_time_s or 0.0
        steps = self._last.steps or 1 if self._last else 1
        return self.quiet_s > max(_LEAST_QUIET_S, _QUIET_STEPS * steps * step_s)

    def state(self) -> State:
        """Where the run stands now."""
        best, _ = self._run
        self._flush()
        eta = self._monitor.eta()
        return State(
            format=best.format.name if best else "",
            run=len(best.parts) if best else 0,
            eta=replace(eta, step=self._last.step) if self._last else eta,
            quiet_s=self.quiet_s,
            ended=self.ended,
            failed=self._failed,
            prediction=self.prediction,
            missing=self.missing,
            warnings=tuple(item.text for item in self._monitor.warnings),
        )

    def end(self) -> RunRecord:
        """What the run turned out to take."""
        self._flush()
        return self._monitor.end()

    def nothing_known(self) -> str:
        """What to say of a log without a step."""
        return (
            "no line reports the progress of a training in a known format. To fix: name the log of "
            f"{known_formats(FORMATS)}; precision-time import --formats shows what their lines look like"
        )

    @property
    def _total(self) -> int | None:
        if self._stated is not None:
            return self._stated
        best = self._reading.best
        logged = self._last.total_steps if self._last else None
        states = self._given.keys() & {"epochs", "tokens"}  # an epoch that nobody stated is no length
        asked = self.prediction.total_steps if self.prediction and states else None
        return logged or (best.reader.total_steps if best else None) or asked

    def _place(self, step: LoggedStep) -> None:
        """Hand a step to the monitor; to a new one where another run begins."""
        best = self._reading.best
        assert best is not None
        if (best, len(best.parts)) != self._run:
            self._run = best, len(best.parts)
            self._fed = self._fed_at_s = None
            self._batch = step.global_batch_size
            self.prediction = self._predicted(self._fields(best))
            self._monitor = self._new_monitor()
        elif step.global_batch_size is not None and step.global_batch_size != self._batch:
            self._batch = step.global_batch_size
            self.prediction = self._predicted(self._fields(best)) or self.prediction
            self._monitor.changed(prediction=self.prediction)
        known, self._last = self._total if self._last is not None else None, step
        if self._total != known:
            self._monitor.changed(total_steps=self._total)
        at_s = self._time_of(step, best)
        resolution_s = best.reader.clock_resolution_s if step.at_s is not None else 0.0
        passed_s = None if self._fed_at_s is None else at_s - self._fed_at_s
        self._log_s = max(self._log_s, at_s)
        if passed_s is None or passed_s >= _WINDOW * resolution_s:
            self._hand_over(step, at_s)

    def _fields(self, best: Reading) -> dict[str, Any]:
        """What the log says of the run, with the batch of its last step."""
        fields = dict(best.parts[-1].found.fields)
        return {**fields, "global_batch_size": self._batch} if self._batch else fields

    def _hand_over(self, step: LoggedStep, at_s: float) -> None:
        self._monitor.step(step.step, at_s=at_s)
        self._fed, self._fed_at_s = step, at_s

    def _flush(self) -> None:
        """Hand over the last step where its time is known well enough, or no other comes."""
        later = self._log_s > (self._fed_at_s or 0.0)
        if self._last is not None and self._last is not self._fed and (later or self.ended):
            self._hand_over(self._last, self._log_s)

    def _time_of(self, step: LoggedStep, best: Reading) -> float:
        """When a step ended, by the clock of the log: it never goes back.

        A log without times has that of its steps, and once it is followed that of the machine.
        """
        before = self._fed or step
        passed = max(step.step - before.step, 0)
        timed = min(step.steps or passed, passed)
        others_s = (before.step_time_s or step.step_time_s or 0.0) * (passed - timed)
        logged_s = None if step.step_time_s is None else step.step_time_s * timed + others_s
        by_steps = (self._fed_at_s or 0.0) + (logged_s or 0.0)
        if step.at_s is not None:
            if self._fed is None:
                return step.at_s
            if step.at_s < self._log_s - _COARSE_S:
                return self._log_s + (logged_s or 0.0)  # the clock went back
            exact = logged_s is not None and not best.reader.clock_resolution_s
            return (
                by_steps if exact and abs(step.at_s - by_steps) <= _COARSE_S else max(step.at_s, self._log_s)
            )
        if self._offset_s is None:
            return by_steps
        arrived = self._clock() + self._offset_s
        return max(self._log_s, by_steps if abs(arrived - by_steps) < 2.0 else arrived)

    def _now(self) -> float:
        """The present by the clock of the log."""
        return self._log_s if self._offset_s is None else max(self._log_s, self._clock() + self._offset_s)

    def _new_monitor(self) -> RunMonitor:
        return RunMonitor(
            total_steps=self._total,
            prediction=self.prediction,
            coverage=self._coverage,
            clock=self._now,
            on_warning=self._say,
            host=self._host,
        )

    def _predicted(self, fields: Mapping[str, Any]) -> Prediction | None:
        """The prediction of what the log and the caller state; None where it is too little."""
        usual = {"gpus": 1} if "device" in self._given else {}  # as for `predict`
        try:
            typed = with_cluster_words(self._given)
            hosts = ("nodes", "node_type") if "gpus" in typed else ()  # those of the log hold other devices
            said = {name: value for name, value in fields.items() if name not in hosts}
            known = {**usual, **said, **typed, **self._given}
            self.missing = missing_fields(known)
            return None if self.missing else predict(Request.of(known))
        except PrecisionTimeError as error:
            self._say(f"No prediction: {in_one_line(error)}")
            return None
