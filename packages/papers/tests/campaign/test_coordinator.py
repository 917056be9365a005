"""The coordinator without Ray: trials are handed out one at a time, and all workers settle each."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from precision_time_integrations.measure.trial import TrainingTrial
from precision_time_papers.campaign.groups import Coordinator, Outcome

Make = Callable[..., TrainingTrial]


async def worker(coordinator: Coordinator, rank: int, seen: list[tuple[int, str]]) -> None:
    """Measures what it is given; fails the trials of `mlp`."""
    await coordinator.register(rank, f"handle {rank}", {"host": "abc"[rank]})
    index = 0
    while (trial := await coordinator.trial(index)) is not None:
        seen.append((rank, str(trial)))
        ranks = await coordinator.all_gather(index, "ranks", rank, rank)
        if trial.model == "mlp":
            await coordinator.failed(index, f"worker {rank}", False)
        else:
            await coordinator.measured(index, rank, {"ranks": ranks, "own": rank})
        index += 1


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_every_worker_takes_every_trial(trial_of: Make, num_workers: int) -> None:
    trials = [trial_of(), trial_of(model="mlp"), trial_of(repeat=1)]
    seen: list[tuple[int, str]] = []

    async def campaign() -> tuple[list[Outcome], Any]:
        coordinator = Coordinator(num_workers)
        workers = [asyncio.create_task(worker(coordinator, rank, seen)) for rank in range(num_workers)]
        facts = await coordinator.facts()
        outcomes = []
        for index, trial in enumerate(trials):
            outcomes.append(await coordinator.run(index, trial))
            assert {name for _, name in seen} == set(map(str, trials[: index + 1]))
        await coordinator.shut_down()
        await asyncio.gather(*workers)
        assert await coordinator.handles() == [f"handle {rank}" for rank in range(num_workers)]
        return outcomes, facts

    outcomes, facts = asyncio.run(asyncio.wait_for(campaign(), timeout=20))
    assert [each["host"] for each in facts] == list("abc"[:num_workers])
    assert [bool(outcome.error) for outcome in outcomes] == [False, True, False]
    for outcome in (outcomes[0], outcomes[2]):
        assert [each["own"] for each in outcome.figures] == list(range(num_workers))
        assert all(each["ranks"] == list(range(num_workers)) for each in outcome.figures)
    assert len(seen) == num_workers * len(trials)


def test_the_first_error_of_a_trial_counts(trial_of: Make) -> None:
    async def campaign() -> Outcome:
        coordinator = Coordinator(2)
        run = asyncio.create_task(coordinator.run(0, trial_of()))
        await coordinator.failed(0, "first", True)
        await coordinator.failed(0, "second", False)
        return await run

    assert asyncio.run(asyncio.wait_for(campaign(), timeout=20)) == Outcome(error="first", group_lost=True)
