"""Groups of workers: one `TorchTrainer` for all points of a setting, and one more after each that is lost.

Starting a trainer takes seconds, and a point may take less. Ray Train runs any function in its workers, so
ours fetches points from an actor (`desk.py`) for as long as there are any: processes, imports and the
process group are paid for once.
"""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from ...errors import PrecisionTimeError
from .desk import Desk, Event
from .plan import Point, Setting

START_LIMIT_S = 180.0
"""For all workers of a group to be ready."""
_END_LIMIT_S = 60.0
"""For Ray Train to notice that its workers are gone, and for the desk to answer."""
_POLLS: Mapping[str, str] = {
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""A lost worker is noticed soon, and users' modules are found where the campaign was started."""


class Listener(Protocol):
    """Told of everything that happens in a group."""

    def started(self, seconds: float, facts: Sequence[Mapping[str, Any]]) -> None:
        """All workers are ready, `seconds` after they were asked for."""

    def begins(self, point: Point) -> bool:
        """Whether this point is to be measured now; False ends the group."""

    def measured(self, point: Point, figures: Sequence[Mapping[str, Any]]) -> None:
        """A point was measured; the figures of each worker, by rank."""

    def failed(self, point: Point, error: str) -> None:
        """A point could not be measured."""


@dataclass(slots=True)
class _Run:
    """One trainer with its desk."""

    ray: Any
    desk: Any
    thread: threading.Thread
    begun_s: float
    seen: int = 0

    def ask(self, method: str, *arguments: Any) -> Any:
        """The answer of the desk.

        Raises:
            PrecisionTimeError: If it does not answer.
        """
        reference = getattr(self.desk, method).remote(*arguments)
        try:
            return self.ray.get(reference, timeout=_END_LIMIT_S)
        except (self.ray.exceptions.GetTimeoutError, self.ray.exceptions.RayActorError) as error:
            raise PrecisionTimeError(
                "The actor that hands out the points does not answer: is a node gone? To fix: run the same "
                "command again; what was measured is stored."
            ) from error

    def news(self, until_s: float) -> list[Event]:
        """What happened next; nothing if nothing did until then [s, monotonic]."""
        reference = self.desk.news.remote(self.seen)
        ready, _ = self.ray.wait([reference], timeout=max(until_s - time.monotonic(), 0.0))
        if not ready:
            self.ray.cancel(reference)
            return []
        events: list[Event] = self.ray.get(reference)
        self.seen += len(events)
        return events

    def end(self) -> None:
        """End the workers, and wait for the trainer to see it.

        Raises:
            PrecisionTimeError: If it does not.
        """
        for handle in self.ask("handles"):
            self.ray.kill(handle, no_restart=True)
        self.thread.join(_END_LIMIT_S)
        if self.thread.is_alive():
            raise PrecisionTimeError(
                "Ray Train does not let go of workers that were ended. To fix: run the same command again; "
                "what "
                "was measured is stored."
            )


@dataclass(slots=True)
class _Progress:
    """How far a group has come."""

    points: Sequence[Point]
    next: int = 0
    """Number of the point that has not been settled yet."""
    taken: int = -1
    """Number of the last point that the workers took."""
    deadline_s: float = 0.0
    wanted: bool = True
    facts: list[Mapping[str, Any]] = field(default_factory=list)


def run_group(ray: Any, setting: Setting, points: Sequence[Point], listener: Listener) -> None:
    """Measure points that share a setting, one after another.

    A point that takes its workers with it is told as failed, and a new group goes on after it. Where workers
    cannot be had at all, every point is told as failed.

    Args:
        ray: Connected.
        setting: Of all points.
        points: In order.
        listener: Told of everything; when it raises, the group ends.
    """
    left = list(points)
    while left:
        progress = _Progress(points=left)
        error = _one_trainer(ray, setting, progress, listener)
        if not progress.wanted:
            return
        left = left[progress.next :]
        if not left:
            return
        if not progress.facts:
            for point in left:
                listener.failed(point, f"its {setting.num_workers} workers could not be started: {error}")
            return
        if progress.next in (progress.taken, 0):
            listener.failed(left.pop(0), error or "the workers ended without an answer")


def _one_trainer(ray: Any, setting: Setting, progress: _Progress, listener: Listener) -> str:
    """Go through the points until the trainer is gone. Returns why it is, empty if it was done."""
    run = _started(ray, setting, progress.points)
    progress.deadline_s = run.begun_s + START_LIMIT_S
    try:
        while True:
            events = run.news(progress.deadline_s)
            if not events:
                return _late(progress)
            for event in events:
                if event[0] == "closed":
                    return str(event[2])
                _heed(event, run, progress, listener)
    finally:
        run.end()
        ray.kill(run.desk)


def _late(progress: _Progress) -> str:
    if not progress.facts:
        return f"not ready within {START_LIMIT_S:.0f} s; is the cluster busy?"
    limit_s = progress.points[progress.next].time_limit_s
    return f"TimeLimit: not done within {limit_s:g} s; the workers were ended (time_limit of the campaign)"


def _heed(event: Event, run: _Run, progress: _Progress, listener: Listener) -> None:
    """Act on one event."""
    kind, index, value = event
    if kind == "arrived":
        progress.facts = value
        listener.started(time.monotonic() - run.begun_s, value)
        _next(run, progress, listener)
    elif kind == "taken":
        progress.taken = index
        progress.deadline_s = time.monotonic() + progress.points[index].time_limit_s
    elif kind in ("measured", "failed") and index == progress.next:
        point = progress.points[index]
        if kind == "measured":
            listener.measured(point, value)
        else:
            listener.failed(point, value)
        progress.next += 1
        _next(run, progress, listener)


def _next(run: _Run, progress: _Progress, listener: Listener) -> None:
    """Let the workers go on to the next point, or go."""
    progress.deadline_s = time.monotonic() + START_LIMIT_S
    if progress.next < len(progress.points):
        progress.wanted = listener.begins(progress.points[progress.next])
        if progress.wanted:
            run.ask("allow", progress.next + 1)
            return
    run.ask("dismiss")


def _started(ray: Any, setting: Setting, points: Sequence[Point]) -> _Run:
    """A desk and a trainer, on their way."""
    for name, value in _POLLS.items():
        os.environ.setdefault(name, value)
    desk = ray.remote(num_cpus=0)(Desk).remote([point.to_dict() for point in points], setting.num_workers)
    thread = threading.Thread(target=_fit, args=(ray, desk, setting), daemon=True)
    run = _Run(ray=ray, desk=desk, thread=thread, begun_s=time.monotonic())
    thread.start()
    return run


def _fit(ray: Any, desk: Any, setting: Setting) -> None:
    """Run the trainer to its end and tell the desk how it ended."""
    from .worker import train_loop

    said = ""
    try:
        with tempfile.TemporaryDirectory() as folder:
            _trainer(setting, desk, folder, train_loop).fit()
    except Exception as raised:  # noqa: BLE001 - whatever ends a trainer, the campaign goes on
        said = _reason(raised)
    ray.get(desk.close.remote(said))


def _trainer(setting: Setting, desk: Any, folder: str, train_loop: Any) -> Any:
    from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    resources = {"CPU": setting.cpus_per_worker}
    if setting.gpus_per_worker:
        resources["GPU"] = setting.gpus_per_worker
    spread = {True: "PACK", False: "SPREAD"}[setting.num_nodes == 1]
    return TorchTrainer(
        train_loop,
        train_loop_config={"desk": desk, "threads": max(int(setting.cpus_per_worker), 1)},
        torch_config=TorchConfig(backend="nccl" if setting.gpus_per_worker else "gloo"),
        scaling_config=ScalingConfig(
            num_workers=setting.num_workers,
            use_gpu=bool(setting.gpus_per_worker),
            resources_per_worker=resources,
            placement_strategy="STRICT_SPREAD" if setting.num_nodes == setting.num_workers > 1 else spread,
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
