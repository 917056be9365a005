"""A user's own training, given as module:function.

The function is called in every worker with a dictionary (`loop_config`) and may be one of three things:

- a generator: every `yield` ends an optimizer step, and the campaign closes it when it has seen enough;
- a function that returns (module, inputs), one batch, as `precision-time measure --models` takes it: the
campaign
  trains the module;
- a plain loop as Ray Train runs it: it is run to its end, and every `ray.train.report(...)` ends an epoch.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from ...errors import CaptureError
from .plan import Point


def loop_config(point: Point, rank: int) -> dict[str, Any]:
    """What a user's function is told."""
    return {
        "batch_size": point.batch_per_worker,
        "num_samples": point.num_samples,
        "num_workers": point.setting.num_workers,
        "rank": rank,
        "epochs": point.epochs,
        "steps_per_epoch": point.steps_per_epoch,
        "precision": point.precision,
        "optimizer": point.optimizer,
        "dataset": point.dataset,
        **point.sizes,
    }


def load_function(name: str) -> Callable[[Mapping[str, Any]], Any]:
    """The function of "module:function"; modules of the working directory count.

    Raises:
        CaptureError: If it cannot be imported.
    """
    module, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    _count_reports()
    try:
        function: Callable[[Mapping[str, Any]], Any] = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise CaptureError(
            f"{name!r} cannot be imported by the worker: {type(error).__name__}: {error}. The form is "
            "package.module:function. To fix: make it importable on every node, from the folder the "
            "campaign is "
            "started in."
        ) from error
    return function


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether each `yield` of the function is a step."""
    return inspect.isgeneratorfunction(function)


_reports: list[float] = []


def take_reports() -> list[float]:
    """When `ray.train.report` was called since the last time it was asked for [s, host clock]."""
    taken = list(_reports)
    _reports.clear()
    return taken


def _report(*_: Any, **__: Any) -> None:
    """Stands for `ray.train.report` in a worker of a campaign: the end of an epoch, nothing is stored."""
    _reports.append(time.perf_counter())


def _count_reports() -> None:
    import ray.train

    ray.train.report = _report
