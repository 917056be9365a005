"""Where the workers of a group take their points and leave what they measured: a Ray actor of its own.

Every method awaits instead of polling, so that nothing but the workers is busy while they are timed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

Event = tuple[str, int, Any]
"""What happened (arrived, taken, measured, failed, closed), to which point, and what came of it."""


class Desk:
    """The points of one group of workers."""

    def __init__(self, points: Sequence[Mapping[str, Any]], num_workers: int) -> None:
        self._points = list(points)
        self._num_workers = num_workers
        self._events: list[Event] = []
        self._said: dict[tuple[int, str], dict[int, Any]] = defaultdict(dict)
        self._handles: dict[int, Any] = {}
        self._allowed = 0
        self._dismissed = False
        self._changed = asyncio.Condition()

    async def arrive(self, rank: int, handle: Any, facts: Mapping[str, Any]) -> None:
        """A worker is there; returns when all are.

        Args:
            rank: Of the worker.
            handle: Its actor, so that it can be ended.
            facts: Where it runs.
        """
        self._handles[rank] = handle
        everything = await self._gathered(-1, "facts", rank, dict(facts))
        if rank == 0:
            await self._tell(("arrived", -1, everything))

    async def point(self, index: int, rank: int) -> Mapping[str, Any] | None:
        """The point of that number, once it is allowed; None when the group is dismissed."""
        async with self._changed:
            await self._changed.wait_for(lambda: index < self._allowed or self._dismissed)
        if index >= self._allowed:
            return None
        if rank == 0:
            await self._tell(("taken", index, None))
        return self._points[index]

    async def allow(self, count: int) -> None:
        """The first `count` points may be measured."""
        async with self._changed:
            self._allowed = count
            self._changed.notify_all()

    async def dismiss(self) -> None:
        """No point that is not allowed yet is measured any more."""
        async with self._changed:
            self._dismissed = True
            self._changed.notify_all()

    async def gathered(self, index: int, what: str, rank: int, value: Any) -> list[Any]:
        """What every worker says of one thing about a point, by rank; returns when all have spoken."""
        return await self._gathered(index, what, rank, value)

    async def measured(self, index: int, rank: int, figures: Mapping[str, Any]) -> None:
        """A worker's figures of a point; returns when all have left theirs."""
        everything = await self._gathered(index, "figures", rank, dict(figures))
        if rank == 0:
            await self._tell(("measured", index, everything))

    async def failed(self, index: int, error: str) -> None:
        """A point that raised, as the first worker to say so tells it."""
        if not any(kind == "failed" and number == index for kind, number, _ in self._events):
            await self._tell(("failed", index, error))

    async def close(self, error: str) -> None:
        """The group is gone; `error` is empty when it went of itself."""
        await self._tell(("closed", -1, error))

    async def news(self, seen: int) -> list[Event]:
        """The events after the first `seen`; returns when there is one."""
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._events) > seen)
        return self._events[seen:]

    async def handles(self) -> list[Any]:
        """The workers that have arrived."""
        return list(self._handles.values())

    async def _gathered(self, index: int, what: str, rank: int, value: Any) -> list[Any]:
        said = self._said[index, what]
        async with self._changed:
            said[rank] = value
            self._changed.notify_all()
            await self._changed.wait_for(lambda: len(said) == self._num_workers)
        return [said[each] for each in range(self._num_workers)]

    async def _tell(self, event: Event) -> None:
        async with self._changed:
            self._events.append(event)
            self._changed.notify_all()
