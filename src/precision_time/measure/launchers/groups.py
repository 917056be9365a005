"""Groups of workers: one `TorchTrainer` for all trials of a group, and one more after each that is lost.

Starting a trainer takes seconds, and a trial may take less. Ray Train runs any function in its workers, so
`worker.train_loop` fetches trials from an actor (`coordinator.py`) until there are none left: processes,
imports and the process group are paid for once.

The trainer runs in an actor, not in a thread of this process: ending the actor ends the trainer's controller
and its workers, whatever state they are in, and what Ray Train does on failure cannot end this process.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import PrecisionTimeError
from ..trial import TrainingTrial, WorkerGroup
from .coordinator import Coordinator, Event

START_LIMIT_S = 180.0
"""For all workers of a group to be ready."""
_END_LIMIT_S = 60.0
"""For Ray Train to notice that its workers are gone, and for the coordinator to answer."""
_ENVIRONMENT: Mapping[str, str] = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""A lost worker is noticed soon, and users' modules are found where the campaign was started."""


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

    def fit(self, group: WorkerGroup, coordinator: Any) -> None:
        """Run a trainer to its end, and tell the coordinator how it ended."""
        import ray

        error = ""
        try:
            with tempfile.TemporaryDirectory() as folder:
                _trainer(group, coordinator, folder).fit()
        except Exception as raised:  # noqa: BLE001 - whatever ends a trainer, the campaign goes on
            error = _reason(raised)
        ray.get(coordinator.close.remote(error))


def _trainer(group: WorkerGroup, coordinator: Any, folder: str) -> Any:
    from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    from .worker import train_loop

    resources = {"CPU": group.cpus_per_worker}
    if group.gpus_per_worker:
        resources["GPU"] = group.gpus_per_worker
    placement = "PACK" if group.num_nodes == 1 else "SPREAD"
    if group.num_nodes == group.num_workers > 1:
        placement = "STRICT_SPREAD"
    return TorchTrainer(
        train_loop,
        train_loop_config={"coordinator": coordinator, "threads": max(int(group.cpus_per_worker), 1)},
        torch_config=TorchConfig(backend="nccl" if group.gpus_per_worker else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=group.num_workers,
            use_gpu=bool(group.gpus_per_worker),
            resources_per_worker=resources,
            placement_strategy=placement,
        ),
        run_config=RunConfig(
            storage_path=folder,
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


@dataclass(slots=True)
class _Run:
    """One trainer with its coordinator, and how far its workers have come."""

    ray: Any
    coordinator: Any
    fit: Any
    """Reference to the trainer's end."""
    begun_s: float
    trials: Sequence[TrainingTrial]
    seen: int = 0
    """Events that were handled."""
    next: int = 0
    """Number of the trial that has not been settled yet."""
    taken: int = -1
    """Number of the last trial that the workers took."""
    deadline_s: float = 0.0
    wanted: bool = True
    facts: list[Mapping[str, Any]] = field(default_factory=list)

    def ask(self, method: str, *arguments: Any) -> Any:
        """The answer of the coordinator.

        Raises:
            PrecisionTimeError: If it does not answer.
        """
        reference = getattr(self.coordinator, method).remote(*arguments)
        try:
            return self.ray.get(reference, timeout=_END_LIMIT_S)
        except (self.ray.exceptions.GetTimeoutError, self.ray.exceptions.RayActorError) as error:
            raise PrecisionTimeError(
                "The actor that hands out the trials does not answer; a node may be lost. To fix: run the "
                "same command again; what was measured is stored."
            ) from error

    def next_events(self) -> list[Event]:
        """What happened next; nothing if nothing did until the deadline."""
        reference = self.coordinator.events_since.remote(self.seen)
        timeout_s = max(self.deadline_s - time.monotonic(), 0.0)
        ready, _ = self.ray.wait([reference, self.fit], timeout=timeout_s)
        if reference in ready:
            events: list[Event] = self.ray.get(reference)
            self.seen += len(events)
            return events
        self.ray.cancel(reference)
        if not ready:
            return []
        try:
            self.ray.get(self.fit)
        except self.ray.exceptions.RayError as error:
            return [("closed", -1, f"the process of the trainer was lost: {_reason(error)}")]
        return self.next_events()

    def late(self) -> str:
        """Why a group is ended whose deadline has passed."""
        if not self.facts:
            return f"not ready within {START_LIMIT_S:g} s; is the cluster busy?"
        limit_s = self.trials[self.next].time_limit_s
        return (
            f"TimeLimit: not done within {limit_s:g} s; the workers were ended (time_limit of the campaign)"
        )


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
            run = self._start(group, left)
            error = self._watch(run, listener)
            if not run.wanted:
                return
            left = left[run.next :]
            if not left:
                return
            if not run.facts:
                for trial in left:
                    listener.failed(trial, f"its {group.num_workers} workers could not be started: {error}")
                return
            if run.next in (run.taken, 0):
                listener.failed(left.pop(0), error or "the workers ended without an answer")

    def _start(self, group: WorkerGroup, trials: Sequence[TrainingTrial]) -> _Run:
        """A coordinator and a trainer, on their way."""
        ray = self._ray
        if self._process is None:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=True)
            self._process = ray.remote(num_cpus=0, scheduling_strategy=here)(TrainerProcess).remote()
        coordinator = ray.remote(num_cpus=0)(Coordinator).remote(
            [trial.to_dict() for trial in trials], group.num_workers
        )
        begun_s = time.monotonic()
        return _Run(
            ray=ray,
            coordinator=coordinator,
            fit=self._process.fit.remote(group, coordinator),
            begun_s=begun_s,
            trials=trials,
            deadline_s=begun_s + START_LIMIT_S,
        )

    def _watch(self, run: _Run, listener: GroupListener) -> str:
        """Go through the trials until the trainer is gone. Returns why it is, empty if it was done."""
        try:
            while True:
                events = run.next_events()
                if not events:
                    return run.late()
                for event in events:
                    if event[0] == "closed":
                        return str(event[2])
                    _handle_event(event, run, listener)
        finally:
            self._end(run)

    def _end(self, run: _Run) -> None:
        """End the workers and their trainer; a trainer that does not notice is ended with its process."""
        ended: list[Any] = []
        try:
            for handle in run.ask("handles"):
                self._ray.kill(handle, no_restart=True)
            ended, _ = self._ray.wait([run.fit], timeout=_END_LIMIT_S if run.facts else 0.0)
        finally:
            if not ended:
                self._end_process()
            self._ray.kill(run.coordinator)

    def _end_process(self) -> None:
        if self._process is not None:
            self._ray.kill(self._process)
            self._process = None


def _handle_event(event: Event, run: _Run, listener: GroupListener) -> None:
    """Act on one event."""
    kind, index, value = event
    if kind == "registered":
        run.facts = value
        listener.started(time.monotonic() - run.begun_s, value)
        _next(run, listener)
    elif kind == "taken":
        run.taken = index
        run.deadline_s = time.monotonic() + run.trials[index].time_limit_s
    elif kind in ("measured", "failed") and index == run.next:
        trial = run.trials[index]
        if kind == "measured":
            listener.measured(trial, value)
        else:
            listener.failed(trial, value)
        run.next += 1
        _next(run, listener)


def _next(run: _Run, listener: GroupListener) -> None:
    """Let the workers go on to the next trial, or end."""
    run.deadline_s = time.monotonic() + START_LIMIT_S
    if run.next < len(run.trials):
        run.wanted = listener.begins(run.trials[run.next])
        if run.wanted:
            run.ask("allow", run.next + 1)
            return
    run.ask("shut_down")
