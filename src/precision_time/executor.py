"""How the work of a search is spread: `map`, a pool of processes, or anything with the same call."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import Protocol, TypeVar

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")
_MOST_WORKERS = 8


class Map(Protocol):
    """Calls a picklable function on every chunk, in whatever process; answers in the order of the chunks."""

    def __call__(self, function: Callable[[_Item], _Answer], chunks: Iterable[_Item], /) -> Iterable[_Answer]:
        """The function of each chunk."""


def in_chunks(items: Sequence[_Item], size: int) -> list[Sequence[_Item]]:
    """`items` cut into pieces of `size`, the last one shorter.

    >>> in_chunks("abcde", 2)
    ['ab', 'cd', 'e']
    """
    return [items[start : start + size] for start in range(0, len(items), size)]


@contextmanager
def process_map(workers: int | None = None) -> Iterator[Map]:
    """A `Map` over processes of this machine; the plain `map` for one.

    Where the system can fork, the processes start with everything loaded. Elsewhere each imports the
    package first, and a script must guard its entry by `if __name__ == "__main__"`.

    Args:
        workers: Processes; None: as many as there are cores for this one, at most 8.
    """
    count = min(usable_cores(), _MOST_WORKERS) if workers is None else workers
    if count <= 1:
        yield map
        return
    forks = "fork" in multiprocessing.get_all_start_methods()
    context = multiprocessing.get_context("fork" if forks else "spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_one_thread) as pool:
        yield pool.map


def _one_thread() -> None:
    """One BLAS thread in a worker: more would fight for its core, and round sums in another order."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1)


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
