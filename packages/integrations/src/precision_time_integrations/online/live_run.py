"""`LiveRun`: what all adapters to trainers share, so that each of them only translates its hooks.

The prediction before the first step, the monitor, what is said and to whom, the offer at the end. Nothing in
it reaches the run: the first failure is warned about once, and the run is not watched any more.
"""

from __future__ import annotations

import functools
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

from precision_time.errors import PrecisionTimeError, in_one_line
from precision_time.predict.prediction import Prediction
from precision_time.units import format_bytes, format_duration

from .describe import Described, processes
from .eta import Eta
from .monitor import RunMonitor
from .record import RunRecord

_SHOWN_EVERY_S = 1.0
"""A progress bar is told the remaining time that often."""
_RECORDED_EVERY_S = 0.2
"""Steps that are shorter are recorded together: what a step costs is a clock and two comparisons."""
_RECORDED_ALONE = 16
"""Steps at the start that are recorded each: warm-up is there."""
_NEVER_S = float("inf")

_F = TypeVar("_F", bound=Callable[..., Any])


class _CanBeOff(Protocol):
    failure: str

    def turn_off(self, error: Exception) -> None:
        """Stop watching."""


def harmless(method: _F) -> _F:
    """A method whose first failure turns its object off, with one warning, and never reaches the run."""

    @functools.wraps(method)
    def guarded(self: _CanBeOff, *args: Any, **kwargs: Any) -> Any:
        if self.failure:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
            self.turn_off(error)
            return None

    return cast(_F, guarded)


def warned(text: str) -> None:
    """Warn, as Python does; on the error stream where a filter turns warnings into errors."""
    try:
        warnings.warn(text, RuntimeWarning, stacklevel=4)
    except Warning:
        said_on_stderr(text)
    except Exception:  # noqa: BLE001 - of the stream: nobody is there to be told
        return


def warn_of_failure(error: Exception, *, of: str = "The remaining time of the run is not watched") -> str:
    """Warn once that a run is not watched any more; the text."""
    text = f"{of} any more: {type(error).__name__}: {error}. The run goes on."
    warned(text)
    return text


def said_on_stderr(text: str) -> None:
    """One line on the error stream, above a progress bar where tqdm shows one; none where it takes none."""
    stream, tqdm = sys.stderr, sys.modules.get("tqdm")
    if stream is None:
        return
    with suppress(Exception):  # full, closed, a pipe that nobody reads: the run goes on
        if tqdm is not None:
            tqdm.tqdm.write(text, file=stream)
        else:
            stream.write(f"{text}\n")


@dataclass(frozen=True, kw_only=True, slots=True)
class Options:
    """What a user chooses of a watched run."""

    predict: bool = True
    """The step is predicted before the first one: takes up to a few seconds."""
    share_with_corpus: bool = False
    """At the end the run is added to the user's own measurements."""
    store: Path | None = None
    """File of these; None for the usual one."""
    coverage: float = 0.9
    """Of the interval of the remaining time."""
    say: Callable[[str], None] = said_on_stderr
    """Takes what a user should read."""
    clock: Callable[[], float] = time.monotonic
    """Seconds that do not go back."""


class LiveRun:
    """One run of a trainer, watched."""

    def __init__(self, options: Options | None = None, *, speaks: bool | None = None) -> None:
        """A run that has not begun.

        Args:
            options: What the user chose.
            speaks: Whether this process says something; None for the one of rank 0.
        """
        self.failure = ""
        """Why the run is not watched any more; empty while it is."""
        self.prediction: Prediction | None = None
        self.described = Described(None, ())
        self.record: RunRecord | None = None
        """Of the run, once it has ended."""
        self.speaks = processes().rank == 0 if speaks is None else speaks
        self._options = options or Options()
        self._monitor: RunMonitor | None = None
        self._clock = self._options.clock
        self.ended_s = 0.0
        """When the last step ended, by the clock."""
        self.waited_s = 0.0
        """Since the last step that was recorded: spent waiting for input."""
        self._done, self._paused = 0, False
        self._recorded_s, self._next_s, self._shown_s, self._records = -_NEVER_S, _NEVER_S, -_NEVER_S, 0

    @property
    def monitor(self) -> RunMonitor | None:
        """With all steps so far; None before the run begins."""
        self._record()
        return self._monitor

    def turn_off(self, error: Exception) -> None:
        """Stop watching, with one warning."""
        self._recorded_s, self._next_s = -_NEVER_S, _NEVER_S
        self.failure = warn_of_failure(error) if self.speaks else str(error) or type(error).__name__

    def now(self) -> float:
        """The time by the user's clock; a clock that fails turns this off, and its last time is returned."""
        if not self.failure:
            try:
                return float(self._clock())
            except Exception as error:  # noqa: BLE001 - whatever it is, the run goes on
                self.turn_off(error)
        return self.ended_s

    @harmless
    def begin(
        self,
        describe: Callable[[], Described] | None = None,
        *,
        total_steps: int | None,
        done: int = 0,
        pauses: Mapping[str, int | Mapping[str, Any]] | None = None,
    ) -> None:
        """The first step is about to start: predict it, say so, and start to watch.

        Args:
            describe: Reads the trainer; None where that was switched off.
            total_steps: Optimizer steps of the whole run; None where it is not known.
            done: Steps of earlier runs that this one resumes.
            pauses: As `RunMonitor` takes them.
        """
        self.record, self._monitor = None, None
        self.described, self.prediction = Described(None, ()), None
        asked = self._options.predict and self.speaks and describe is not None
        if asked and describe is not None:
            self.described, self.prediction = predicted(describe)
        self._monitor = RunMonitor(
            total_steps=total_steps,
            request=self.described.request if self.prediction else None,
            prediction=self.prediction,
            pauses=pauses,
            coverage=self._options.coverage,
            clock=self.now,
            on_warning=warned if self.speaks else _silent,
        )
        self._monitor.begin(done)
        self._done, self.waited_s, self._paused, self._records = done, 0.0, False, 0
        self.ended_s = self._recorded_s = self._next_s = self.now()
        self._shown_s = -_NEVER_S
        if asked:
            self._options.say(opening(self.prediction, self.described.reasons, self._monitor.eta()))

    def step(self, done: int | None = None) -> Eta | None:
        """An optimizer step ended.

        Args:
            done: Steps done in all; None for one more.

        Returns:
            The remaining time where it is time to show it again, else None.
        """
        self._done = self._done + 1 if done is None else done
        self.ended_s = now = self.now()
        if self._recorded_s <= now < self._next_s:
            return None
        self._record()
        return self.shown()

    @harmless
    def _record(self) -> None:
        """Hand the steps since the last time to the monitor."""
        monitor = self._monitor
        if monitor is None or self._done == monitor.step_count:
            return
        if self.waited_s:
            monitor.waited(self.waited_s)
            self.waited_s = 0.0
        monitor.step(self._done, at_s=self.ended_s)
        self._records += 1
        self._recorded_s = self._next_s = self.ended_s
        if self._records >= _RECORDED_ALONE:
            self._next_s += _RECORDED_EVERY_S

    def waited(self, seconds: float) -> None:
        """Seconds that the present step waited for input."""
        self.waited_s += seconds

    @harmless
    def begin_pause(self, name: str) -> None:
        """Steps stop for a while: evaluation, checkpoint ..."""
        self._record()
        if self._monitor is not None:
            self._monitor.begin_pause(name)
            self._paused = True

    def end_pause(self) -> None:
        """They go on; nothing happens where there was no pause."""
        if self._paused:
            self._end_pause()

    @harmless
    def _end_pause(self) -> None:
        self._paused = False
        if self._monitor is not None:
            self._monitor.end_pause()

    @contextmanager
    def pause(self, name: str = "evaluation") -> Iterator[None]:
        """A pause as a `with` block."""
        self.begin_pause(name)
        try:
            yield
        finally:
            self.end_pause()

    @harmless
    def changed(
        self, describe: Callable[[], Described] | None = None, *, total_steps: int | None = None
    ) -> None:
        """The steps to come are of another precision, resolution, batch or number."""
        self._record()
        if self._monitor is None:
            return
        known: Prediction | None = None
        if self._options.predict and self.speaks and describe is not None:
            self.described, known = predicted(describe)
        # Where it can be predicted at all, the monitor predicts it with the steps so far as an anchor.
        request = None if known is None else self.described.request
        self._monitor.changed(request=request, total_steps=total_steps)
        if known is not None:
            self.prediction = self._monitor.prediction
            self._options.say(opening(self.prediction, self.described.reasons, self._monitor.eta()))

    def eta(self) -> Eta:
        """The remaining time as it is known now."""
        return self._eta() or _NOTHING_KNOWN

    def shown(self) -> Eta | None:
        """The remaining time where it is time to show it again: every second at most."""
        return self._eta() if self._due() else None

    @harmless
    def _eta(self) -> Eta | None:
        self._record()
        return None if self._monitor is None else self._monitor.eta()

    @harmless
    def _due(self) -> bool:
        now = self.now()
        if not self.speaks or self._monitor is None or 0.0 <= now - self._shown_s < _SHOWN_EVERY_S:
            return False
        self._shown_s = now
        return True

    @harmless
    def end(self) -> None:
        """The run ended, or was interrupted: what it took is in `record`, and offered where wanted."""
        self._record()
        if self._monitor is None:
            return
        self._recorded_s, self._next_s = -_NEVER_S, _NEVER_S
        record, self._monitor = self._monitor.end(), None
        if self.described.request is not None:  # with the model itself, where it has no name
            record = replace(record, request=self.described.request.given())
        self.record = record
        if self._options.share_with_corpus and self.speaks:
            from .offer import offer

            path = offer(record, store=self._options.store, on_warning=self._options.say)
            if path is not None:
                self._options.say(
                    f"precision-time: this run was added to {path.name}, your own measurements."
                )


_NOTHING_KNOWN = Eta(
    step=0, total_steps=None, elapsed_s=0.0, remaining_s=None, interval=None, step_time_s=None, pause_s=0.0,
    basis="",
)  # fmt: skip


def _silent(_text: str) -> None:
    """On other ranks than 0 nothing is said."""


def predicted(describe: Callable[[], Described]) -> tuple[Described, Prediction | None]:
    """What a trainer is, and its prediction; a failure of either is a reason, and the run goes on."""
    from precision_time.predict.api import predict

    try:
        found = describe()
        return found, None if found.request is None else predict(found.request)
    except PrecisionTimeError as error:
        reason = in_one_line(error)
    except Exception as error:  # noqa: BLE001 - whatever a trainer holds, the run goes on
        reason = f"{type(error).__name__}: {error}"
    return Described(None, (reason,)), None


def opening(prediction: Prediction | None, reasons: tuple[str, ...], eta: Eta) -> str:
    """What is said before the first step.

    Args:
        prediction: Of the step; None where there is none.
        reasons: What could not be read of the trainer.
        eta: Of the run, by the prediction.
    """
    if prediction is None:
        why = " ".join(reasons) or "nothing is known of it."
        return (
            f"precision-time: no prediction for this model ({why.rstrip('.')}). The remaining time follows "
            "from the steps."
        )
    said = prediction
    step = (
        f"a step of {said.model} should take {format_duration(said.step_time_s)} "
        f"({said.interval.coverage:.0%} interval {format_duration(said.interval.low_s)} to "
        f"{format_duration(said.interval.high_s)}) on {said.gpus} x {said.device}, {said.precision}, batch "
        f"{said.batch_size:g} per device"
    )
    text = f"precision-time: {step}."
    if eta.remaining_s is not None and eta.total_steps is not None:
        text += f" {max(eta.total_steps - eta.step, 0):,} steps: {eta.text}."
    if not said.fits:
        text += (
            f" It may run out of memory: {format_bytes(said.memory_bytes_per_device)} predicted of "
            f"{format_bytes(said.device_memory_bytes)} per device."
        )
    return " ".join((text, *(f"Not read: {reason.rstrip('.')}." for reason in reasons)))
