"""User-defined models and training loops, given as module:function.

`measure` calls the function without arguments; it returns (module, inputs), one batch. In a campaign the
function is called in every worker with a dictionary (`loop_config`) and may be one of three things:

- a generator: every `yield` ends an optimizer step, and the campaign closes it after enough steps;
- a function that returns (module, inputs): the campaign trains the module;
- a plain loop as Ray Train runs it: it is run to its end, and every `ray.train.report(...)` ends an epoch.
"""

from __future__ import annotations

import time
from typing import Any

from ..trial import TrainingTrial


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


def take_reports() -> list[float]:
    """When `ray.train.report` was called since the last call of this function [s, host clock]."""
    taken = list(_reports)
    _reports.clear()
    return taken


def count_reports() -> None:
    """Let `ray.train.report` mark the end of an epoch in this worker, and store nothing."""
    import ray.train

    def report(*_: Any, **__: Any) -> None:
        _reports.append(time.perf_counter())

    ray.train.report = report
