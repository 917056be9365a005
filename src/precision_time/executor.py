"""Executors: how the chunks of a search are computed: `map`, a pool of processes, or Ray (`ray_executor`)."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Protocol, TypeVar

from .errors import ConfigError, PrecisionTimeError

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
_DEFAULT_WORKERS = 8
_MOST_WORKERS = 512
_RETRIES = 1
"""How often the chunks that are left are handed out again after a worker was lost."""


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
        PrecisionTimeError: From the answers, if workers are lost twice, for lack of memory or by a signal.
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

    def map(self, function: Callable[[_Item], _Answer], chunks: Iterable[_Item], /) -> Iterator[_Answer]:
        """The function of each chunk; all are handed out at once, and again where a worker is lost."""
        left, futures, retries = deque(chunks), deque[Future[_Answer]](), 0
        try:
            while left:
                try:
                    if not futures:
                        futures.extend(self._executor.submit(function, chunk) for chunk in left)
                    answer = futures.popleft().result()
                except BrokenProcessPool as error:
                    if retries == _RETRIES:
                        raise _lost_workers(self._count) from error
                    retries += 1
                    futures.clear()
                    self._executor.shutdown(wait=True)
                    self._executor = self._started()
                else:
                    left.popleft()
                    yield answer
        finally:
            for future in futures:
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


def _lost_workers(count: int) -> PrecisionTimeError:
    return PrecisionTimeError(
        f"A process of the pool was ended from outside twice, most likely for lack of memory ({count} "
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
