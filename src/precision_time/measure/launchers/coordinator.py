"""Where the workers of a group take their trials and leave what they measured: a Ray actor.

Every method awaits instead of polling, so that only the workers are busy while they are timed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..trial import TrainingTrial

_NO_TRIAL = -1


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a trial in a group of workers."""

    figures: tuple[Mapping[str, Any], ...] = ()
    """Of each worker, by rank; none where the trial failed."""
    error: str = ""
    group_lost: bool = False
    """Whether the workers cannot go on after the error."""


class Coordinator:
    """The trials of one group of workers."""

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._trials: dict[int, TrainingTrial] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._gathered: dict[tuple[int, str], dict[int, Any]] = defaultdict(dict)
        self._handles: list[Any] = []
        self._shut_down = False
        self._changed = asyncio.Condition()

    async def _when(self, holds: Callable[[], bool]) -> None:
        """Notify all methods that wait, and wait for a condition."""
        async with self._changed:
            self._changed.notify_all()
            await self._changed.wait_for(holds)

    # Called by the campaign.

    async def facts(self) -> list[Mapping[str, Any]]:
        """Where each worker runs, by rank, once all have registered."""
        values = self._gathered[_NO_TRIAL, "facts"]
        await self._when(lambda: len(values) == self._num_workers)
        return [values[rank] for rank in range(self._num_workers)]

    async def handles(self) -> list[Any]:
        """The workers that have registered."""
        return self._handles

    async def run(self, index: int, trial: TrainingTrial) -> Outcome:
        """Hand a trial to the workers; returns when it is settled."""
        self._trials[index] = trial
        await self._when(lambda: index in self._outcomes)
        return self._outcomes[index]

    async def shut_down(self) -> None:
        """There are no more trials."""
        self._shut_down = True
        await self._when(lambda: True)

    # Called by the workers.

    async def register(self, rank: int, handle: Any, facts: Mapping[str, Any]) -> None:
        """A worker is ready; returns when all are.

        Args:
            rank: Of the worker.
            handle: Its actor, so that it can be ended.
            facts: Where it runs.
        """
        self._handles.append(handle)
        await self.all_gather(_NO_TRIAL, "facts", rank, facts)

    async def trial(self, index: int) -> TrainingTrial | None:
        """The trial of that number, once there is one; None when the group is shut down."""
        await self._when(lambda: index in self._trials or self._shut_down)
        return self._trials.get(index)

    async def all_gather(self, index: int, name: str, rank: int, value: Any) -> list[Any]:
        """The values that all workers send under a name for a trial, by rank; returns when all have."""
        values = self._gathered[index, name]
        values[rank] = value
        await self._when(lambda: len(values) == self._num_workers)
        return [values[each] for each in range(self._num_workers)]

    async def measured(self, index: int, rank: int, figures: Mapping[str, Any]) -> None:
        """A worker's figures of a trial; returns when all have left theirs."""
        everything = await self.all_gather(index, "figures", rank, figures)
        self._outcomes.setdefault(index, Outcome(figures=tuple(everything)))
        await self._when(lambda: True)

    async def failed(self, index: int, error: str, group_lost: bool) -> None:
        """A trial that raised; the first worker that reports it counts."""
        self._outcomes.setdefault(index, Outcome(error=error, group_lost=group_lost))
        await self._when(lambda: True)
