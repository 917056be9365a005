"""Executors: how the chunks of a search are computed: `map`, a pool of processes, or Ray (`ray/`)."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import field
from itertools import islice
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Protocol, TypeVar
from uuid import uuid4

from .cache import memo
from .errors import ConfigError, PrecisionTimeError
from .plugins import plugins
from .records import dataclass

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
_DEFAULT_WORKERS = 8
_MOST_WORKERS = 512
_IN_FLIGHT = 4
"""Chunks for each process: those that it computes next, and answers that wait for one before them."""
_RETRIES = 3
"""How often in a row chunks are handed out again after a worker was lost: as often as Ray does."""


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


@dataclass(frozen=True, slots=True, eq=False)
class OneCopy(Generic[_Item]):
    """A value that every task brings along, of which each process keeps the first copy for all of them.

    What is remembered of the value, by where it is, then serves all tasks.
    """

    value: _Item
    token: str = field(default_factory=lambda: uuid4().hex, repr=False)
    """Identifies the value and its copies."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OneCopy) and other.token == self.token

    def __hash__(self) -> int:
        return hash(self.token)

    def here(self) -> _Item:
        """The first copy of the value in this process."""
        first: _Item = _first_copy(self).value
        return first


@memo(8)
def _first_copy(given: OneCopy[Any]) -> OneCopy[Any]:
    return given


@contextmanager
def process_map(workers: int | None = None) -> Iterator[Executor]:
    """An `Executor` over processes of this machine; the plain `map` for one.

    Where the system can fork, the processes start with everything loaded. Elsewhere each imports the
    package first, and a script must guard its entry by `if __name__ == "__main__"`.

    Args:
        workers: Processes; None: as many as there are cores for this one, at most 8.

    Raises:
        ConfigError: If there are more than 512 workers.
        PrecisionTimeError: From the answers, if workers are lost again and again.
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


@dataclass(slots=True)
class _Task(Generic[_Item, _Answer]):
    """A chunk that was handed out."""

    chunk: _Item
    future: Future[_Answer]

    @property
    def lost(self) -> bool:
        """Whether the pool broke before it had an answer."""
        done = self.future.done() and not self.future.cancelled()
        return done and isinstance(self.future.exception(), BrokenProcessPool)


class _Pool:
    """A process pool that is started again when it breaks."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._killed_before = _killed_for_memory()
        self._executor = self._started()

    def _started(self) -> ProcessPoolExecutor:
        try:
            import threadpoolctl  # noqa: F401 - for `_prepare_worker`, which would break the pool again and again
        except ImportError as error:
            raise PrecisionTimeError(
                f"Processes cannot start: {error}. To fix: install it, or one process (--workers 1)."
            ) from error
        forks = "fork" in multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("fork" if forks else "spawn")
        return ProcessPoolExecutor(self._count, mp_context=context, initializer=_prepare_worker)

    def map(self, function: Callable[[_Item], _Answer], chunks: Iterable[_Item], /) -> Iterator[_Answer]:
        """The function of each chunk, in order; chunks that a lost worker took with it are handed out again.

        Chunks are taken from their iterator as answers are taken, `_IN_FLIGHT` for each process. None is
        canceled by itself: a pool that is ended right after would never end (CPython 3.11).
        """
        source, running, losses = iter(chunks), deque[_Task[_Item, _Answer]](), 0
        while True:
            for chunk in islice(source, self._count * _IN_FLIGHT - len(running)):
                running.append(_Task(chunk, self._submit(function, chunk)))
            if not running:
                return
            try:
                answer = running[0].future.result()
            except BrokenProcessPool:
                losses += 1
                self._start_again(losses)
                for task in running:
                    if task.lost:
                        task.future = self._submit(function, task.chunk)
            else:
                running.popleft()
                losses = 0
                yield answer

    def _submit(self, function: Callable[[_Item], _Answer], chunk: _Item) -> Future[_Answer]:
        try:
            with _without_interrupts():
                return self._executor.submit(function, chunk)
        except BrokenProcessPool as error:  # in its turn, as for a chunk that was handed out before
            broken: Future[_Answer] = Future()
            broken.set_exception(error)
            return broken

    def _start_again(self, losses: int) -> None:
        """New processes in the place of a broken pool's.

        Raises:
            PrecisionTimeError: If that was tried often enough without an answer.
        """
        processes = self._processes()
        self._executor.shutdown(wait=True)
        if losses <= _RETRIES:
            self._executor = self._started()
            return
        # The others were then ended by the pool, with SIGTERM.
        codes = [process.exitcode for process in processes]
        first = next((code for code in codes if code not in (None, 0, -signal.SIGTERM)), None)
        if first == -signal.SIGKILL and _killed_for_memory() > self._killed_before:
            how = "was killed by the system for lack of memory"
        elif first is not None and first < 0:
            how = f"was ended by {signal.Signals(-first).name}"
            how += ", most likely for lack of memory," if first == -signal.SIGKILL else ""
        else:
            how = "ended" if first is None else f"ended with code {first}"
        raise PrecisionTimeError(
            f"One of {self._count} processes {how} {losses} times in a row, and its work was given to a new "
            f"one {_RETRIES} times. To fix: fewer processes (--workers), or more free memory."
        )

    def _processes(self) -> list[BaseProcess]:
        return list((getattr(self._executor, "_processes", None) or {}).values())

    def close(self) -> None:
        """Wait for what is being computed."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def terminate(self) -> None:
        """End the processes, whatever they compute; nothing where the pool was closed."""
        for process in self._processes():
            process.terminate()
        self._executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C waits for the end of the block: a fork would swallow it, and its child would tell of it."""
    masked = getattr(signal, "pthread_sigmask", None)  # Windows has none, and does not fork
    before = masked(signal.SIG_BLOCK, {signal.SIGINT}) if masked else None
    try:
        yield
    finally:
        if masked:
            masked(signal.SIG_SETMASK, before)


def _killed_for_memory() -> int:
    """Processes that Linux has killed for lack of memory: on this machine, and in this container."""
    count = 0
    for path in ("/proc/vmstat", "/sys/fs/cgroup/memory.events"):
        with suppress(OSError, ValueError), open(path, encoding="ascii") as file:
            count += sum(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    return count


def _prepare_worker() -> None:
    """One BLAS thread: more would compete for its core, and round sums in another order.

    Ctrl-C goes to every process of a terminal; only the parent acts on it. A parent that is killed cannot end
    its workers: they watch it.
    """
    from threadpoolctl import threadpool_limits

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(limits=1)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def open_executor(ray: str | None, workers: int | None = None) -> AbstractContextManager[Executor]:
    """The `Executor` that `--ray` and `--workers` ask for: Ray where an address is given, else processes.

    Args:
        ray: None, "local", or the address of a cluster.
        workers: Processes; for "local", CPUs of the Ray that starts.
    """
    if ray is None:
        return process_map(workers)
    opened: AbstractContextManager[Executor] = plugins("executors")["ray"].load()(ray, num_cpus=workers)
    return opened
