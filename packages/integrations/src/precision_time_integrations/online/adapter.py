"""`Adapter`: what callbacks for all trainers share: options, answers, and that none of them breaks a run."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from precision_time.predict.prediction import Prediction

from .eta import Eta
from .live_run import LiveRun, Options, said_on_stderr, warn_of_failure
from .record import RunRecord


class Adapter:
    """Base of the callbacks; each of them translates the hooks of its trainer into those of a `LiveRun`."""

    def __init__(
        self,
        *,
        predict: bool = True,
        share_with_corpus: bool = False,
        store: Path | None = None,
        coverage: float = 0.9,
        say: Callable[[str], None] = said_on_stderr,
        clock: Callable[[], float] = time.monotonic,
        **fields: Any,
    ) -> None:
        """A callback for one trainer, for any number of runs.

        Args:
            predict: Predict the step before the first one: takes up to a few seconds.
            share_with_corpus: At the end add the run to your own measurements.
            store: File of these; None for the usual one.
            coverage: Of the interval of the remaining time.
            say: Takes what you should read.
            clock: Seconds that do not go back.
            fields: What the trainer does not say, in the words of `predict_time`: dataset, recompute ...
        """
        super().__init__()
        self.failure = ""
        """Why the present run is not watched any more; empty while it is."""
        self.run: LiveRun | None = None
        """What watches the present or last run."""
        self._fields = fields
        self._options = Options(
            predict=predict,
            share_with_corpus=share_with_corpus,
            store=store,
            coverage=coverage,
            say=say,
            clock=clock,
        )
        self._running = False

    @property
    def eta(self) -> Eta | None:
        """The remaining time as it is known now; None outside of a run."""
        return self.run.eta() if self.run is not None and self._running else None

    @property
    def prediction(self) -> Prediction | None:
        """Of the step, made before the first one."""
        return self.run.prediction if self.run else None

    @property
    def record(self) -> RunRecord | None:
        """What the last run took."""
        return self.run.record if self.run else None

    def pause(self, name: str = "evaluation") -> AbstractContextManager[None]:
        """Around work of your own that is no step: `with callback.pause("sampling"): ...`."""
        return (self.run or LiveRun()).pause(name)

    def turn_off(self, error: Exception) -> None:
        """Stop watching, with one warning."""
        speaks = self.run is None or self.run.speaks
        self.failure = warn_of_failure(error) if speaks else str(error) or type(error).__name__

    def _new_run(self, *, speaks: bool) -> LiveRun:
        """Watch another run, of which nothing is known yet.

        Args:
            speaks: Whether this process says something: the first of all.
        """
        self.failure, self._running = "", False
        self.run = LiveRun(self._options, speaks=speaks)
        return self.run
