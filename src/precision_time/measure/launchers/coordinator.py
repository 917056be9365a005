"""Where the workers of a group take their trials and leave what they measured: a Ray actor.

Every method awaits instead of polling, so that only the workers are busy while they are timed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

Event = tuple[str, int, Any]
"""What happened (registered, taken, measured, failed, closed), to which trial, and its value."""


class Coordinator:
    """The trials of one group of workers."""

    def __init__(self, trials: Sequence[Mapping[str, Any]], num_workers: int) -> None:
        self._trials = list(trials)
        self._num_workers = num_workers
        self._events: list[Event] = []
        self._gathered: dict[tuple[int, str], dict[int, Any]] = defaultdict(dict)
        self._handles: dict[int, Any] = {}
        self._allowed = 0
        self._shut_down = False
        self._changed = asyncio.Condition()

    async def register(self, rank: int, handle: Any, facts: Mapping[str, Any]) -> None:
        """A worker is ready; returns when all are.

        Args:
            rank: Of the worker.
            handle: Its actor, so that it can be ended.
            facts: Where it runs.
        """
        self._handles[rank] = handle
        everything = await self.all_gather(-1, "facts", rank, dict(facts))
        if rank == 0:
            await self._record(("registered", -1, everything))

    async def trial(self, index: int, rank: int) -> Mapping[str, Any] | None:
        """The trial of that number, once it is allowed; None when the group is shut down."""
        async with self._changed:
            await self._changed.wait_for(lambda: index < self._allowed or self._shut_down)
        if index >= self._allowed:
            return None
        if rank == 0:
            await self._record(("taken", index, None))
        return self._trials[index]

    async def allow(self, count: int) -> None:
        """The first `count` trials may be measured."""
        async with self._changed:
            self._allowed = count
            self._changed.notify_all()

    async def shut_down(self) -> None:
        """No trial that is not allowed yet is measured any more."""
        async with self._changed:
            self._shut_down = True
            self._changed.notify_all()

    async def all_gather(self, index: int, name: str, rank: int, value: Any) -> list[Any]:
        """The values that all workers send under a name for a trial, by rank; returns when all have."""
        values = self._gathered[index, name]
        async with self._changed:
            values[rank] = value
            self._changed.notify_all()
            await self._changed.wait_for(lambda: len(values) == self._num_workers)
        return [values[each] for each in range(self._num_workers)]

    async def measured(self, index: int, rank: int, figures: Mapping[str, Any]) -> None:
        """A worker's figures of a trial; returns when all have left theirs."""
        everything = await self.all_gather(index, "figures", rank, dict(figures))
        if rank == 0:
            await self._record(("measured", index, everything))

    async def failed(self, index: int, error: str) -> None:
        """A trial that raised, in the words of the first worker that reports it."""
        if not any(kind == "failed" and number == index for kind, number, _ in self._events):
            await self._record(("failed", index, error))

    async def close(self, error: str) -> None:
        """The group is gone; `error` is empty when it came to its end."""
        await self._record(("closed", -1, error))

    async def events_since(self, count: int) -> list[Event]:
        """The events after the first `count`; returns when there is one."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._events) > count)
        return self._events[count:]

    async def handles(self) -> list[Any]:
        """The workers that have registered."""
        return list(self._handles.values())

    async def _record(self, event: Event) -> None:
        async with self._changed:
            self._events.append(event)
            self._changed.notify_all()
