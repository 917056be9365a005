"""The adapter itself: a loop over batches that says when it will end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from precision_time_integrations.online import RunMonitor

Batch = TypeVar("Batch")


def watched(
    batches: Iterable[Batch], *, total_steps: int, every: int = 10, say: Callable[[str], None] = print
) -> Iterator[Batch]:
    """The batches; after every so many steps the remaining time is said."""
    monitor = RunMonitor(total_steps=total_steps)
    monitor.begin()
    for step, batch in enumerate(batches, start=1):
        yield batch
        monitor.step(step)
        if step % every == 0:
            say(monitor.eta().text)
    monitor.end()
