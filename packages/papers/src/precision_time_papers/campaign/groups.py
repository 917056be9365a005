"""Groups of workers: one `TorchTrainer` for all trials of a group, and one more after each that is lost.

Starting a trainer takes seconds, and a trial may take less. Ray Train runs any function in its workers, so
`worker.train_loop` fetches trials from an actor (`Coordinator`) until there are none left: processes,
imports and the process group are paid for once. Every method of that actor awaits instead of polling, so that
only the workers are busy while they are timed.

The trainer runs in an actor, not in a thread of this process: ending the actor ends the trainer's controller
and its workers, whatever state they are in, and what Ray Train does on failure cannot end this process.
"""

from __future__ import annotations

import asyncio
import math
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from precision_time_integrations.measure.trial import TrainingTrial, WorkerGroup

START_LIMIT_S = 180.0
"""For all workers of a group to be ready."""
_END_LIMIT_S = 60.0
"""For Ray Train to notice that its workers are gone, and for the coordinator to answer."""
_GRACE_S = 1.0
_LATE = "late"
_NO_TRIAL = -1
_ENVIRONMENT: Mapping[str, str] = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""A lost worker is noticed soon, and users' modules are found where the campaign was started."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What came of a trial in a group of workers."""

    figures: tuple[Mapping[str, Any], ...] = ()
    """Of each worker, by rank; none where the trial failed."""
    error: str = ""
    group_lost: bool = False
    """Whether the workers cannot go on after the error."""


class Coordinator:
    """Where the workers of a group take their trials and leave what they measured: a Ray actor."""

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


class GroupListener(Protocol):
    """Called for everything that happens in a group."""

    def started(self, seconds: float, facts: Sequence[Mapping[str, Any]]) -> None:
        """All workers are ready, `seconds` after they were asked for."""

    def begins(self, trial: TrainingTrial) -> bool:
        """Whether this trial is to be measured now; False ends the group."""

    def measured(self, trial: TrainingTrial, figures: Sequence[Mapping[str, Any]]) -> None:
        """A trial was measured; the figures of each worker, by rank."""

    def failed(self, trial: TrainingTrial, error: str) -> None:
        """A trial could not be measured."""


class TrainerProcess:
    """The actor that runs trainers, one at a time."""

    def __init__(self) -> None:
        for name, value in _ENVIRONMENT.items():
            os.environ.setdefault(name, value)

    def fit(self, group: WorkerGroup, coordinator: Any) -> str:
        """Run a trainer to its end. Returns why it failed; empty if it did not."""
        try:
            with tempfile.TemporaryDirectory() as folder:
                _trainer(group, coordinator, folder).fit()
        except Exception as raised:  # noqa: BLE001 - whatever ends a trainer, the campaign goes on
            return _reason(raised)
        return ""


def _trainer(group: WorkerGroup, coordinator: Any, folder: str) -> Any:
    from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    from .worker import train_loop

    own_node = group.num_nodes == group.num_workers > 1
    # A worker with a node of its own, whose link it is to have for itself, leaves no part of a CPU to others.
    resources: dict[str, float] = {
        "CPU": math.ceil(group.cpus_per_worker) if own_node else group.cpus_per_worker
    }
    if group.gpus_per_worker:
        resources["GPU"] = group.gpus_per_worker
    placement = "PACK" if group.num_nodes == 1 else "SPREAD"
    if own_node:
        placement = "STRICT_SPREAD"
    return TorchTrainer(
        train_loop,
        train_loop_config={
            "coordinator": coordinator,
            "group": group,
            "threads": max(int(group.cpus_per_worker), 1),
        },
        torch_config=TorchConfig(backend="nccl" if group.gpus_per_worker else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=group.num_workers,
            use_gpu=bool(group.gpus_per_worker),
            resources_per_worker=resources,
            placement_strategy=placement,
        ),
        run_config=RunConfig(
            storage_path=folder,
            worker_runtime_env={"env_vars": dict(group.environment)} if group.environment else {},
            failure_config=FailureConfig(max_failures=0),
            logging_config=LoggingConfig(log_level="ERROR"),
        ),
    )


def _reason(error: Exception) -> str:
    """Why a trainer ended: what the first of its workers said, without the traceback."""
    failures = getattr(error, "worker_failures", None) or {}
    for rank, failure in sorted(failures.items()):
        lines = [line for line in str(failure).splitlines() if line.strip()]
        return f"WorkerLost: worker {rank}: {type(failure).__name__}: {lines[0] if lines else ''}"
    lines = [line for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Run:
    """One trainer with its coordinator."""

    ray: Any
    coordinator: Any
    fit: Any
    """Reference to the reason why the trainer ended."""

    def ask(self, method: str, *arguments: Any, limit_s: float = _END_LIMIT_S) -> tuple[Any, str]:
        """The answer of the coordinator, or why there is none: the trainer ended, or the limit has passed."""
        reference = getattr(self.coordinator, method).remote(*arguments)
        ready, _ = self.ray.wait([reference, self.fit], timeout=limit_s)
        if ready and reference not in ready:  # both may be ready: the last answer before the end counts
            ready = self.ray.wait([reference], timeout=_GRACE_S)[0] or ready
        if reference in ready:
            return self.ray.get(reference), ""
        self.ray.cancel(reference)
        if not ready:
            return None, _LATE
        try:
            return None, self.ray.get(self.fit) or "the workers ended without an answer"
        except self.ray.exceptions.RayError as error:
            return None, f"the process of the trainer was lost: {_reason(error)}"


class GroupRunner:
    """Runs groups of workers on a connected Ray, one after another."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._process: Any = None

    def __enter__(self) -> GroupRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_process()

    def run(self, group: WorkerGroup, trials: Sequence[TrainingTrial], listener: GroupListener) -> None:
        """Measure trials of one group, one after another.

        A trial that takes its workers with it is reported as failed, and a new group goes on after it. Where
        workers cannot be had at all, every trial is reported as failed.

        Args:
            group: Of all trials.
            trials: In order.
            listener: Called for everything; when it raises, the group ends.
        """
        left = list(trials)
        while left:
            begun_s = time.monotonic()
            run = self._start(group)
            facts = None
            try:
                facts, error = run.ask("facts", limit_s=START_LIMIT_S)
                if facts is not None:
                    listener.started(time.monotonic() - begun_s, facts)
                    left = _measure(run, left, listener)
            except BaseException:  # interrupted, or the store cannot be written: nothing is waited for
                self._end_process()
                raise
            finally:
                self._end(run, registered=facts is not None)
            if facts is None:
                why = (
                    f"not ready within {START_LIMIT_S:g} s; is the cluster busy?" if error is _LATE else error
                )
                for trial in left:
                    listener.failed(trial, f"its {group.num_workers} workers could not be started: {why}")
                return

    def _start(self, group: WorkerGroup) -> _Run:
        """A coordinator and a trainer, on their way."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        ray = self._ray
        this_node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
        here = ray.remote(num_cpus=0, scheduling_strategy=this_node)
        if self._process is None:
            self._process = here(TrainerProcess).remote()
        coordinator = here(Coordinator).remote(group.num_workers)
        return _Run(ray=ray, coordinator=coordinator, fit=self._process.fit.remote(group, coordinator))

    def _end(self, run: _Run, *, registered: bool) -> None:
        """End the workers and their trainer; a trainer that does not notice is ended with its process."""
        ended: list[Any] = []
        try:
            for handle in run.ask("handles")[0] or ():
                self._ray.kill(handle, no_restart=True)
            ended, _ = self._ray.wait([run.fit], timeout=_END_LIMIT_S if registered else 0.0)
        finally:
            if not ended:
                self._end_process()
            self._ray.kill(run.coordinator)

    def _end_process(self) -> None:
        if self._process is not None:
            self._ray.kill(self._process)
            self._process = None


def _measure(run: _Run, trials: Sequence[TrainingTrial], listener: GroupListener) -> list[TrainingTrial]:
    """Measure trials until the group is lost. Returns those that a new group is to measure."""
    for index, trial in enumerate(trials):
        if not listener.begins(trial):
            break
        outcome, error = run.ask("run", index, trial, limit_s=trial.time_limit_s)
        if error is _LATE:
            error = (
                f"TimeLimit: not done within {trial.time_limit_s:g} s; the workers were ended (time_limit)"
            )
        if outcome is not None and not outcome.error:
            listener.measured(trial, outcome.figures)
            continue
        listener.failed(trial, error or outcome.error)
        if outcome is None or outcome.group_lost:
            return list(trials[index + 1 :])
    run.ask("shut_down")
    return []
