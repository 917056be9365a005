"""Work that takes longer than a prediction: in processes of its own, which are ended at the time limit."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from collections.abc import Callable
from concurrent.futures import CancelledError
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from pebble import ProcessExpired, ProcessPool

from .problems import BusyError, TimeLimitError, UnavailableError

_Answer = TypeVar("_Answer")
_QUEUE = 8
"""Calls for each process that may wait for it."""


class LongWork:
    """A pool of processes, started when first needed."""

    def __init__(self, *, processes: int, time_limit_s: float) -> None:
        self._processes, self._time_limit_s = processes, time_limit_s
        self._pool: ProcessPool | None = None
        self._in_progress = 0

    async def run(self, function: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """`function(*arguments)` in another process, where models are named only.

        Its process is ended when the time is up or the caller goes.

        Args:
            function: Of a module; it, its arguments and its answer are pickled.
            arguments: As it takes them.

        Raises:
            BusyError: If too many wait already.
            TimeLimitError: If it took too long.
            UnavailableError: If the process ended without an answer, for want of memory perhaps.
        """
        if self._in_progress >= self._processes * (1 + _QUEUE):
            raise BusyError(
                f"{self._in_progress} long calls wait already. To fix: come again, or let the operator start "
                "more processes (--processes)."
            )
        self._in_progress += 1
        try:
            future = self._started().schedule(
                _named_only, args=(function, arguments), timeout=self._time_limit_s
            )
            try:
                return await asyncio.wrap_future(future)  # cancelled with its call
            except TimeoutError:
                raise TimeLimitError(
                    f"No answer within {self._time_limit_s:g} s. The rule: longer work is ended. To fix: ask "
                    "for less at once, or let the operator raise the limit (--time-limit)."
                ) from None
            except (ProcessExpired, BrokenProcessPool, CancelledError) as error:
                raise UnavailableError(
                    f"The process that worked on this call ended without an answer ({type(error).__name__}). "
                    "To fix: ask for less at once, or come again."
                ) from None
        finally:
            self._in_progress -= 1

    def _started(self) -> ProcessPool:
        if self._pool is None or not self._pool.active:
            self._pool = ProcessPool(
                max_workers=self._processes,
                initializer=_ignore_interrupts,
                context=multiprocessing.get_context("spawn"),
            )
        return self._pool

    def close(self) -> None:
        """End the processes, and what they work on."""
        if self._pool is not None:
            self._pool.stop()
            self._pool.join(timeout=5)
            self._pool = None


def _ignore_interrupts() -> None:
    """Ctrl-C is for the parent, which ends its processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _named_only(function: Callable[..., _Answer], arguments: tuple[Any, ...]) -> _Answer:
    from precision_time.barrier import data_only

    with data_only():
        return function(*arguments)
