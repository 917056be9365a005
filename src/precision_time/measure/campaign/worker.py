"""What every worker of a group runs inside Ray Train: point after point, until the desk has no more."""

from __future__ import annotations

import os
import platform
import socket
import warnings
from collections.abc import Mapping
from itertools import count
from typing import Any

from .plan import Point


def train_loop(config: Mapping[str, Any]) -> None:
    """The `train_loop_per_worker` of the campaign's `TorchTrainer`.

    A point that raises is told to the desk. With one worker the next point follows; with several the group
    ends, because the others stand in a collective that nobody will complete, and the campaign starts another.

    Args:
        config: `desk`, the actor with the points, and `threads` of each worker.

    Raises:
        Exception: What a point raised, where the group cannot go on.
    """
    import ray
    import ray.train
    import torch
    from ray.train.torch import get_device

    torch.set_num_threads(config["threads"])
    desk, context = config["desk"], ray.train.get_context()
    rank, device = context.get_world_rank(), get_device()
    handle = ray.get_runtime_context().current_actor
    ray.get(desk.arrive.remote(rank, handle, _facts(device, config["threads"])))
    for index in count():
        given = ray.get(desk.point.remote(index, rank))
        if given is None:
            return
        _measure(Point.from_dict(given), index, rank, device, desk)


def _measure(point: Point, index: int, rank: int, device: Any, desk: Any) -> None:
    import ray

    from ..execution import free_memory, is_lasting
    from .measuring import Here, NotBuiltError, described, measure_point

    def say(what: str, value: Any) -> list[Any]:
        told: list[Any] = ray.get(desk.gathered.remote(index, what, rank, value))
        return told

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            figures = measure_point(point, Here(rank=rank, device=device, say=say))
    except NotBuiltError as error:
        ray.get(desk.failed.remote(index, str(error)))
        return
    except Exception as error:  # noqa: BLE001 - a user's loop and its libraries raise anything
        ray.get(desk.failed.remote(index, described(error)))
        if point.setting.num_workers > 1 or is_lasting(error):
            raise
        return
    finally:
        free_memory(device.type)
    ray.get(desk.measured.remote(index, rank, figures))


def _facts(device: Any, threads: int) -> dict[str, Any]:
    """Where this worker runs and what it runs on."""
    import ray
    import torch

    from ..device import find_device

    return {
        "host": socket.gethostname(),
        "ray_node": ray.get_runtime_context().get_node_id(),
        "cores": os.cpu_count() or 1,
        "threads": threads if device.type == "cpu" else 0,
        "device": find_device(kind=device.type).name,
        "framework_version": str(torch.__version__),
        "ray_version": str(ray.__version__),
        "python_version": platform.python_version(),
        "backend": torch.distributed.get_backend() if torch.distributed.is_initialized() else "",
    }
