"""Executors: how the chunks of a search are computed: `map`, a pool of processes, or Ray (`ray_executor`)."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from .errors import ConfigError, PrecisionTimeError

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
_DEFAULT_WORKERS = 8
_MOST_WORKERS = 512
_RETRIES = 1
"""How often chunks are computed again that a lost worker took with it."""


class Executor(Protocol):
    """Calls a picklable function on every chunk, in any process; answers in the order of the chunks."""

    def __call__(self, function: Callable[[_Item], _Answer], chunks: Iterable[_Item], /) -> Iterable[_Answer]:
        """The function of each chunk."""


def in_chunks(items: Sequence[_Item], size: int) -> list[Sequence[_Item]]:
    """`items` cut into pieces of `size`, the last one shorter.

    >>> in_chunks("abcde", 2)
    ['ab', 'cd', 'e']
    """
    return [items[start : start + size] for start in range(0, len(items), size)]


@contextmanager
def process_map(workers: int | None = None) -> Iterator[Executor]:
    """An `Executor` over processes of this machine; the plain `map` for one.

    Where the system can fork, the processes start with everything loaded. Elsewhere each imports the
    package first, and a script must guard its entry by `if __name__ == "__main__"`.

    Args:
        workers: Processes; None: as many as there are cores for this one, at most 8.

    Raises:
        ConfigError: If there are more than 512 workers.
        PrecisionTimeError: From the answers, if workers are lost twice, for want of memory or by a signal.
    """
    count = min(usable_cores(), _DEFAULT_WORKERS) if workers is None else workers
    if count > _MOST_WORKERS:
        raise ConfigError(f"workers={count} processes are too many. To fix: at most {_MOST_WORKERS}.")
    if count <= 1:
        yield map
        return
    pool = _Pool(count)
    try:
        yield pool.map
        pool.close()
    finally:
        pool.terminate()


class _Pool:
    """A process pool that is started again when it breaks."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._executor = self._started()

    def _started(self) -> ProcessPoolExecutor:
        forks = "fork" in multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("fork" if forks else "spawn")
        return ProcessPoolExecutor(self._count, mp_context=context, initializer=_prepare_worker)

    def map(self, function: Callable[[_Item], _Answer], chunks: Iterable[_Item], /) -> Iterable[_Answer]:
        """The function of each chunk; all are handed out at once."""
        items = list(chunks)
        return self._answers(function, items, [self._submit(function, item) for item in items])

    def _submit(self, function: Callable[[_Item], _Answer], item: _Item) -> Future[_Answer]:
        try:
            return self._executor.submit(function, item)
        except BrokenProcessPool as error:
            broken: Future[_Answer] = Future()
            broken.set_exception(error)
            return broken

    def _answers(
        self, function: Callable[[_Item], _Answer], items: list[_Item], futures: list[Future[_Answer] | None]
    ) -> Iterator[_Answer]:
        retries = 0
        try:
            for index in range(len(items)):
                while isinstance(_error(futures[index]), BrokenProcessPool):
                    if retries == _RETRIES:
                        raise _lost_workers(self._count)
                    retries += 1
                    self._executor.shutdown(wait=True)
                    self._executor = self._started()
                    for other in range(index, len(items)):
                        if isinstance(_error(futures[other]), BrokenProcessPool):
                            futures[other] = self._submit(function, items[other])
                future = futures[index]
                futures[index] = None
                if future is not None:
                    yield future.result()
        finally:
            for future in futures:
                if future is not None:
                    future.cancel()

    def close(self) -> None:
        """Wait for what is being computed."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def terminate(self) -> None:
        """End the processes, whatever they compute; nothing where the pool was closed."""
        processes = list((getattr(self._executor, "_processes", None) or {}).values())
        self._executor.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()


def _error(future: Future[Any] | None) -> BaseException | None:
    """What a future raised, waiting for it to be done."""
    return None if future is None else future.exception()


def _lost_workers(count: int) -> PrecisionTimeError:
    return PrecisionTimeError(
        f"A process of the pool was ended from outside twice, most likely for want of memory ({count} "
        "processes). To fix: use fewer with --workers, or free memory."
    )


def _prepare_worker() -> None:
    """One BLAS thread: more would compete for its core, and round sums in another order.

    Ctrl-C goes to every process of a terminal; only the parent acts on it.
    """
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(limits=1)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
