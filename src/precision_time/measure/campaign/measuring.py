"""One point in one worker: build, warm up, train, and what came of it."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch

from ...errors import ConfigError, PrecisionTimeError
from .batches import Share
from .plan import Point
from .power import energy_counter, mean_power_w
from .steps import Gradients, Trainer, clock_of, endless, forget_peak, products
from .tasks import Task, build_optimizer, build_task, one_batch_task
from .user_loops import is_generator, load_function, loop_config, take_reports

Say = Callable[[str, Any], list[Any]]
"""Tells the other workers something about this point, and gives what each of them told, by rank."""
Figures = dict[str, Any]
"""Fields of a `FinishedPoint` as this worker measured them."""
_FEWEST_STEPS = 3


class NotBuiltError(PrecisionTimeError):
    """Some worker could not build the point; all of them know and go on to the next."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Here:
    """The worker that measures."""

    rank: int
    device: Any
    say: Say


def measure_point(point: Point, here: Here) -> Figures:
    """Train one point as it is asked for.

    Raises:
        NotBuiltError: If a worker could not build the model or its data.
        Exception: Whatever the training raises.
    """
    with products(point.precision):
        if ":" in point.model:
            return _users_own(point, here)
        start_s = time.perf_counter()
        task = _together(here, lambda: build_task(point, here.rank))
        return _train(point, here, task, start_s)


def _together(here: Here, build: Callable[[], Task]) -> Task:
    """What `build` gives, unless it fails in any worker."""
    error, task = "", None
    try:
        task = build()
    except Exception as raised:  # noqa: BLE001 - libraries raise anything, and the others must hear of it
        error = described(raised)
    errors = [each for each in here.say("built", error) if each]
    if errors or task is None:
        raise NotBuiltError(errors[0])
    return task


def described(error: BaseException) -> str:
    """An error as a store keeps it: on one line."""
    text = " ".join(str(error).split())
    return text if isinstance(error, PrecisionTimeError) else f"{type(error).__name__}: {text}".rstrip(": ")


def _train(point: Point, here: Here, task: Task, start_s: float) -> Figures:
    trainer = _trainer(point, here, task)
    params = sum(parameter.numel() for parameter in trainer.module.parameters())
    build_s = time.perf_counter() - start_s
    warm = endless(task.batches)
    first_s = trainer.run(warm, 1)
    more_s = trainer.run(warm, point.warmup_steps)
    steps = _steps(point, here, more_s / point.warmup_steps if point.warmup_steps else first_s)
    trainer.marks.clear()
    watch = _Watch(here.device)
    batches = endless(task.batches)
    spans = [trainer.run(batches, count) for count in _spans(steps, point.steps_per_epoch)]
    waits = trainer.waits()
    return {
        **watch.figures(sum(spans)),
        **_step_figures(trainer.step_times()),
        **_epoch_figures(spans, steps, point.steps_per_epoch),
        "build_s": build_s,
        "first_step_s": first_s,
        "warmup_s": first_s + more_s,
        "params": params,
        "gradient_wait_s": statistics.median(waits) if waits else None,
        "gradient_wait_method": trainer.clock.method if waits else "",
    }


def _trainer(point: Point, here: Here, task: Task) -> Trainer:
    from ray.train.torch import prepare_model

    module = prepare_model(task.module.train())
    clock = clock_of(here.device)
    gradients = Gradients(clock=clock)
    return Trainer(
        module=module,
        optimizer=build_optimizer(point.optimizer, module),
        precision=point.precision,
        device=here.device,
        clock=clock,
        gradients=gradients,
        watched=gradients.watch(module),
    )


def _steps(point: Point, here: Here, step_s: float) -> int:
    """Steps to time: all epochs, or what fits into the seconds; all workers make as many."""
    most = point.epochs * point.steps_per_epoch
    if point.seconds is not None:
        most = min(most, max(math.ceil(point.seconds / max(step_s, 1e-9)), _FEWEST_STEPS))
    return int(min(here.say("steps", most)))


def _spans(steps: int, per_epoch: int) -> list[int]:
    """Steps of each whole epoch, and of what is left of one.

    >>> _spans(7, 3)
    [3, 3, 1]
    """
    return [per_epoch] * (steps // per_epoch) + [steps % per_epoch] * (steps % per_epoch > 0)


class _Watch:
    """Memory and power while the timed steps run."""

    def __init__(self, device: Any) -> None:
        self._peak = forget_peak(device)
        self._energy = energy_counter(device)
        self._start_j = self._energy()

    def figures(self, seconds: float) -> Figures:
        return {
            "peak_memory_bytes": self._peak(),
            "power_w": mean_power_w(self._start_j, self._energy(), seconds),
        }


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


def _users_own(point: Point, here: Here) -> Figures:
    """A user's function: a generator of steps, a module with a batch, or a whole training loop."""
    start_s = time.perf_counter()
    function = load_function(point.model)
    config: Mapping[str, Any] = loop_config(point, here.rank)
    if is_generator(function):
        return _generated(point, here, function(config), start_s)
    take_reports()
    watch = _Watch(here.device)
    made = function(config)
    end_s = time.perf_counter()
    if made is None:
        epochs = take_reports() or [end_s]
        spans = [end - begin for begin, end in zip([start_s, *epochs[:-1]], epochs, strict=True)]
        figures = _epoch_figures(spans, len(spans), 1)
        return {
            **watch.figures(end_s - start_s),
            **figures,
            "train_time_s": end_s - start_s,
            "steps_per_epoch": None,
        }
    return _train(point, here, _together(here, lambda: _one_batch(point, here, made)), start_s)


def _one_batch(point: Point, here: Here, made: Any) -> Task:
    """A user's module with a batch as a task.

    Raises:
        ConfigError: If it is something else, or its batch is not the point's.
    """
    from ..models import built_from

    built = built_from(made, point.model)
    if built.batch_size != point.batch_per_worker:
        raise ConfigError(
            f"{point.model} gave a batch of {built.batch_size} samples where the point asks for "
            f"{point.batch_per_worker}. To fix: make it of config['batch_size'] samples."
        )
    return one_batch_task(built, Share(point=point, rank=here.rank))


def _generated(point: Point, here: Here, steps: Iterator[Any], start_s: float) -> Figures:
    times = _timed(steps, here.device)
    first_s = next(times, None)
    if first_s is None:
        raise ConfigError(
            f"{point.model} ended before its first step. To fix: yield after every optimizer step."
        )
    build_s = time.perf_counter() - start_s - first_s
    warm = list(islice(times, point.warmup_steps))
    wanted = _steps(point, here, statistics.fmean(warm) if warm else first_s)
    watch = _Watch(here.device)
    measured = list(islice(times, wanted))
    if not measured:
        raise ConfigError(
            f"{point.model} made {1 + len(warm)} steps, all of them warm-up. To fix: yield more often, or "
            f"set "
            "warmup_steps: 0."
        )
    close = getattr(steps, "close", None)
    if close is not None:
        close()
    per_epoch = point.steps_per_epoch
    whole = [sum(measured[begin : begin + per_epoch]) for begin in range(0, len(measured), per_epoch)]
    return {
        **watch.figures(sum(measured)),
        **_step_figures(measured),
        **_epoch_figures(whole, len(measured), per_epoch),
        "build_s": build_s,
        "first_step_s": first_s,
        "warmup_s": first_s + sum(warm),
    }


def _timed(steps: Iterator[Any], device: Any) -> Iterator[float]:
    """Seconds of each step of a generator, the device's work included."""
    while True:
        start_s = time.perf_counter()
        try:
            next(steps)
        except StopIteration:
            return
        if device.type == "cuda":
            torch.cuda.synchronize()
        yield time.perf_counter() - start_s
