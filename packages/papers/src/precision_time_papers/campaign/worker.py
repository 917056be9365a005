"""What every worker of a group runs inside Ray Train: trial after trial until there are none left.

A user-defined model is module:function. The function is called in every worker with a dictionary
(`loop_config`) and may be one of three things:

- a generator: every `yield` ends an optimizer step, and the campaign closes it after enough steps;
- a function that returns (module, inputs): the campaign trains the module;
- a plain loop as Ray Train runs it: it is run to its end, and every `ray.train.report(...)` ends an epoch.
"""

from __future__ import annotations

import inspect
import math
import os
import platform
import socket
import statistics
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Any

import torch

from precision_time.capture.own import load_function
from precision_time.errors import ConfigError, PrecisionTimeError
from precision_time_integrations.measure.device import ResourceMonitor, find_device
from precision_time_integrations.measure.execution import backend_flags, free_memory, is_lasting, synchronize
from precision_time_integrations.measure.precisions import MODES
from precision_time_integrations.measure.processor import instructions, processor_name
from precision_time_integrations.measure.steps.models import built_from
from precision_time_integrations.measure.steps.tasks import TrainingTask, build_task, one_batch_task
from precision_time_integrations.measure.steps.training import Trainer, build_optimizer, endless
from precision_time_integrations.measure.trial import TrainingTrial, WorkerGroup

from .epoch_end import EpochEnd
from .limits import limit_cpu, pin_cores

Figures = dict[str, Any]
"""Fields of a `TrialResult` as this worker measured them."""
_FEWEST_STEPS = 3


class NotBuiltError(PrecisionTimeError):
    """Some worker could not build the trial; all of them know and go on to the next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerContext:
    """The worker that measures."""

    rank: int
    device: Any
    all_gather: Callable[[str, Any], list[Any]]
    """Sends the other workers a named value for this trial, and returns what each of them sent, by rank."""
    wrapped: Callable[[Any], Any]
    """A module on the device, as DDP where there are several workers."""


def train_loop(config: Mapping[str, Any]) -> None:
    """The `train_loop_per_worker` of the campaign's `TorchTrainer`.

    A trial that raises is reported to the coordinator. With one worker the next trial follows; with several
    the group ends, because the others wait in a collective that will never complete, and the campaign
    starts another.

    Args:
        config: `coordinator`, the actor with the trials, `group`, and `threads` of each worker.

    Raises:
        Exception: What a trial raised, where the group cannot go on.
    """
    import ray
    import ray.train
    from ray.train.torch import get_device

    torch.set_num_threads(config["threads"])
    coordinator = config["coordinator"]
    rank, device = ray.train.get_context().get_world_rank(), get_device()
    handle = ray.get_runtime_context().current_actor
    limit = limited(config["group"])
    where = {"ray_node": ray.get_runtime_context().get_node_id(), "ray_version": str(ray.__version__)}
    facts = {**worker_facts(device, config["threads"], config["group"], limit), **where}
    ray.get(coordinator.register.remote(rank, handle, facts))
    for index in count():
        trial = ray.get(coordinator.trial.remote(index))
        if trial is None:
            return
        _run_trial(trial, index, rank, device, coordinator)


def _run_trial(trial: TrainingTrial, index: int, rank: int, device: Any, coordinator: Any) -> None:
    import ray
    from ray.train.torch import prepare_model

    def all_gather(name: str, value: Any) -> list[Any]:
        values: list[Any] = ray.get(coordinator.all_gather.remote(index, name, rank, value))
        return values

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            context = WorkerContext(rank=rank, device=device, all_gather=all_gather, wrapped=prepare_model)
            figures = measure_trial(trial, context)
    except NotBuiltError as error:
        ray.get(coordinator.failed.remote(index, str(error), False))
        return
    except Exception as error:  # noqa: BLE001 - a user's loop and its libraries raise anything
        group_lost = trial.group.num_workers > 1 or is_lasting(error)
        ray.get(coordinator.failed.remote(index, _described(error), group_lost))
        if group_lost:
            raise
        return
    finally:
        free_memory(device.type)
    ray.get(coordinator.measured.remote(index, rank, figures))


def limited(group: WorkerGroup) -> str:
    """Confine this worker to the cores and the share of its group. Returns how the share is enforced.

    What torch imports for the first optimizer of a process (its compiler, seconds) is imported before: it
    belongs to the start of the workers, not to the first of their trials.
    """
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.0).step()
    if group.cores:
        pin_cores(group.cores)
    return limit_cpu(group.cpus_per_worker) if group.cpu_limit else ""


def worker_facts(device: Any, threads: int, group: WorkerGroup, limit: str) -> dict[str, Any]:
    """Where this worker runs and what it runs on."""
    busy = group.cpus_per_worker if limit else threads
    return {
        "host": socket.gethostname(),
        "cores": os.cpu_count() or 1,
        "busy_cores": busy if device.type == "cpu" else 0,
        "cpu_limit": limit,
        "vector_isa": instructions() if device.type == "cpu" else "",
        "device": processor_name() if device.type == "cpu" else find_device(kind=device.type).name,
        "framework_version": str(torch.__version__),
        "python_version": platform.python_version(),
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else "",
    }


def measure_trial(trial: TrainingTrial, context: WorkerContext) -> Figures:
    """Run one trial.

    Raises:
        NotBuiltError: If a worker could not build the model or its data.
        Exception: Whatever the training raises.
    """
    with backend_flags(tf32=MODES[trial.precision].tf32):
        if ":" in trial.model:
            return _user_defined(trial, context)
        start_s = time.perf_counter()
        task = _built_by_all(context, lambda: build_task(trial, context.rank))
        return _train(trial, context, task, start_s)


def _built_by_all(context: WorkerContext, build: Callable[[], TrainingTask]) -> TrainingTask:
    """What `build` returns, unless it fails in any worker."""
    error, task = "", None
    try:
        task = build()
    except Exception as raised:  # noqa: BLE001 - libraries raise anything, and the others must know of it
        error = _described(raised)
    errors = [each for each in context.all_gather("built", error) if each]
    if errors or task is None:
        raise NotBuiltError(errors[0])
    return task


def _described(error: BaseException) -> str:
    """An error as a store keeps it: on one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, PrecisionTimeError) else f"{type(error).__name__}: {text}".rstrip(": ")


def _train(trial: TrainingTrial, context: WorkerContext, task: TrainingTask, start_s: float) -> Figures:
    module = context.wrapped(task.module.train())
    optimizer = build_optimizer(trial.optimizer, module)
    trainer = Trainer(module, precision=trial.precision, device=context.device, optimizer=optimizer)
    batches = endless(task.batches)
    after_epoch = EpochEnd(
        trial=trial, trainer=trainer, batches=task.batches, rank=context.rank, all_gather=context.all_gather
    )

    def restart() -> None:
        nonlocal batches
        batches = endless(task.batches)
        trainer.marks.clear()
        trainer.input_s.clear()

    figures = _timed(
        trial,
        context,
        start_s,
        run=lambda most: trainer.run(batches, most),
        step_times=trainer.step_times,
        restart=restart,
        after_epoch=after_epoch,
    )
    waits = trainer.waits()
    return {
        **figures,
        **after_epoch.figures(),
        "params": sum(parameter.numel() for parameter in module.parameters()),
        "gradient_wait_s": statistics.median(waits) if waits else None,
        "gradient_wait_method": trainer.wait_method if waits else "",
        "input_s": statistics.median(trainer.input_s),
    }


def _timed(
    trial: TrainingTrial,
    context: WorkerContext,
    start_s: float,
    *,
    run: Callable[[int], float],
    step_times: Callable[[], list[float]],
    restart: Callable[[], None],
    after_epoch: Callable[[], None] = lambda: None,
) -> Figures:
    """Iteration 0, warm-up, and the steps that count.

    Args:
        trial: Says how many steps there are.
        context: Of the worker.
        start_s: When building began.
        run: Makes that many steps, or as many as there are; returns their wall time [s].
        step_times: Seconds of each step so far.
        restart: Called after the warm-up: step times and batches start again.
        after_epoch: Called after each whole epoch.
    """
    build_s = time.perf_counter() - start_s
    first_s = run(1)
    if not step_times():
        raise ConfigError(
            f"{trial.model} ended before its first step. To fix: yield after every optimizer step."
        )
    more_s = run(trial.warmup_steps)
    warm = len(step_times()) - 1
    wanted = _steps(trial, context, more_s / warm if warm else first_s)
    restart()
    monitor = ResourceMonitor(context.device.type).start()
    spans: list[float] = []
    for steps in _spans(wanted, trial.steps_per_epoch):
        spans.append(run(steps))
        if steps == trial.steps_per_epoch:
            after_epoch()
    use, times = _use(monitor), step_times()
    if not times:
        raise ConfigError(
            f"{trial.model} made {1 + warm} steps, all of them warm-up. To fix: yield more often, or set "
            "warmup_steps: 0."
        )
    return {
        **use,
        **_step_figures(times),
        **_epoch_figures(spans, len(times), trial.steps_per_epoch),
        "build_s": build_s,
        "first_step_s": first_s,
        "warmup_s": first_s + more_s,
    }


def _use(monitor: ResourceMonitor) -> Figures:
    return {"power_w": monitor.power_w(), "peak_memory_bytes": monitor.peak_bytes()}


def _steps(trial: TrainingTrial, context: WorkerContext, step_s: float) -> int:
    """Steps to time: all epochs, or what fits into the seconds; all workers make as many."""
    most = trial.epochs * trial.steps_per_epoch
    if trial.seconds is not None:
        most = min(most, max(math.ceil(trial.seconds / max(step_s, 1e-9)), _FEWEST_STEPS))
    return int(min(context.all_gather("steps", most)))


def _spans(steps: int, per_epoch: int) -> list[int]:
    """Steps of each whole epoch, and of what is left of one.

    >>> _spans(7, 3)
    [3, 3, 1]
    """
    return [per_epoch] * (steps // per_epoch) + [steps % per_epoch] * (steps % per_epoch > 0)


def _step_figures(times: Sequence[float]) -> Figures:
    ordered = sorted(times)
    return {
        "num_steps": len(ordered),
        "step_time_s": statistics.median(ordered),
        "step_time_mean_s": statistics.fmean(ordered),
        "step_time_sd_s": statistics.stdev(ordered) if len(ordered) > 1 else None,
        "step_time_p90_s": ordered[min(math.ceil(0.9 * len(ordered)), len(ordered)) - 1],
    }


def _epoch_figures(spans: Sequence[float], steps: int, per_epoch: int) -> Figures:
    whole = tuple(spans[: steps // per_epoch])
    return {
        "steps_per_epoch": per_epoch,
        "num_epochs": len(whole),
        "epoch_times_s": whole,
        "epoch_time_s": statistics.fmean(whole) if whole else None,
        "train_time_s": sum(spans),
    }


def _user_defined(trial: TrainingTrial, context: WorkerContext) -> Figures:
    """A user's function: a generator of steps, a module with a batch, or a whole training loop."""
    start_s = time.perf_counter()
    function = load_function(trial.model)
    _stepsreports()
    config = loop_config(trial, context.rank)
    if inspect.isgeneratorfunction(function):
        return _generated(trial, context, function(config), start_s)
    _take_reports()
    monitor = ResourceMonitor(context.device.type).start()
    made = function(config)
    end_s = time.perf_counter()
    if made is not None:
        task = _built_by_all(context, lambda: _one_batch(trial, context, made))
        return _train(trial, context, task, start_s)
    epochs = _take_reports() or [end_s]
    spans = [end - begin for begin, end in zip([start_s, *epochs[:-1]], epochs, strict=True)]
    figures = {**_use(monitor), **_epoch_figures(spans, len(spans), 1)}
    return {**figures, "train_time_s": end_s - start_s, "steps_per_epoch": None}


def loop_config(trial: TrainingTrial, rank: int) -> dict[str, Any]:
    """The argument of a user-defined function in a campaign."""
    return {
        "batch_size": trial.batch_per_worker,
        "num_samples": trial.num_samples,
        "num_workers": trial.group.num_workers,
        "rank": rank,
        "epochs": trial.epochs,
        "steps_per_epoch": trial.steps_per_epoch,
        "precision": trial.precision,
        "optimizer": trial.optimizer,
        "dataset": trial.dataset,
        **trial.sizes,
    }


_reports: list[float] = []


def _take_reports() -> list[float]:
    """When `ray.train.report` was called since the last call of this function [s, host clock]."""
    taken = list(_reports)
    _reports.clear()
    return taken


def _stepsreports() -> None:
    """Let `ray.train.report` mark the end of an epoch in this worker, and store nothing."""
    import ray.train

    def report(*_: Any, **__: Any) -> None:
        _reports.append(time.perf_counter())

    ray.train.report = report


def _one_batch(trial: TrainingTrial, context: WorkerContext, made: Any) -> TrainingTask:
    """A user's module with a batch as a task.

    Raises:
        ConfigError: If its batch is not the trial's.
        CaptureError: If the function returned something else.
    """
    built = built_from(made, trial.model)
    if built.batch_size != trial.batch_per_worker:
        raise ConfigError(
            f"{trial.model} gave a batch of {built.batch_size} samples where the trial asks for "
            f"{trial.batch_per_worker}. To fix: make it of config['batch_size'] samples."
        )
    return one_batch_task(trial, built)


def _generated(trial: TrainingTrial, context: WorkerContext, steps: Iterator[Any], start_s: float) -> Figures:
    """A user's generator, of which each `yield` ends a step; the device's work is included."""
    times: list[float] = []

    def run(most: int) -> float:
        before = len(times)
        begin_s = time.perf_counter()
        for _ in islice(steps, most):
            synchronize(context.device.type)
            end_s = time.perf_counter()
            times.append(end_s - begin_s)
            begin_s = end_s
        return sum(times[before:])

    figures = _timed(trial, context, start_s, run=run, step_times=lambda: list(times), restart=times.clear)
    close = getattr(steps, "close", None)
    if close is not None:
        close()
    return figures
