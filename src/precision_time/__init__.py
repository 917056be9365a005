"""How long a training step or run takes, at every precision, before a GPU is rented.

>>> from precision_time import predict_time
>>> predict_time(model="resnet50", precision="mixed_fp16_fp32", gpus=8, batch_size=256)  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client.client import AsyncClient, Client
    from .errors import PrecisionTimeError, ServerError
    from .launch.api import launch_config
    from .launch.emit import LaunchConfig, layout_of_config
    from .planning.decision.api import plan
    from .planning.decision.result import Plan
    from .planning.layouts.api import find_layouts
    from .planning.layouts.result import LayoutSearch
    from .planning.precisions.advice import PrecisionAdvice, advise_precisions
    from .planning.run.api import predict_run
    from .planning.run.prediction import RunPrediction
    from .predict.api import predict_time
    from .predict.changes import Alternative, Sensitivity, sensitivity, what_matters
    from .predict.compare import compare_precisions, predict_many, sweep, sweep_tables
    from .predict.headline import Interval
    from .predict.prediction import NearestMeasurement, Prediction
    from .predict.predictions import Predictions
    from .request.request import Request
    from .timeline.api import memory_timeline
    from .timeline.memory import MemoryTimeline

__version__ = "0.2.0"

_HOMES = {
    "Alternative": ".predict.changes",
    "AsyncClient": ".client.client",
    "Client": ".client.client",
    "Interval": ".predict.headline",
    "LaunchConfig": ".launch.emit",
    "LayoutSearch": ".planning.layouts.result",
    "MemoryTimeline": ".timeline.memory",
    "NearestMeasurement": ".predict.prediction",
    "Plan": ".planning.decision.result",
    "PrecisionAdvice": ".planning.precisions.advice",
    "PrecisionTimeError": ".errors",
    "Prediction": ".predict.prediction",
    "Predictions": ".predict.predictions",
    "Request": ".request.request",
    "RunPrediction": ".planning.run.prediction",
    "Sensitivity": ".predict.changes",
    "ServerError": ".errors",
    "advise_precisions": ".planning.precisions.advice",
    "compare_precisions": ".predict.compare",
    "find_layouts": ".planning.layouts.api",
    "launch_config": ".launch.api",
    "layout_of_config": ".launch.emit",
    "memory_timeline": ".timeline.api",
    "plan": ".planning.decision.api",
    "predict_many": ".predict.compare",
    "predict_run": ".planning.run.api",
    "predict_time": ".predict.api",
    "sensitivity": ".predict.changes",
    "sweep": ".predict.compare",
    "sweep_tables": ".predict.compare",
    "what_matters": ".predict.changes",
}
"""Public names and their homes, imported on first use, so that `import precision_time` stays fast."""

__all__ = [
    "Alternative", "AsyncClient", "Client", "Interval", "LaunchConfig", "LayoutSearch", "MemoryTimeline",
    "NearestMeasurement", "Plan", "PrecisionAdvice", "PrecisionTimeError", "Prediction", "Predictions",
    "Request", "RunPrediction", "Sensitivity", "ServerError", "__version__", "advise_precisions",
    "compare_precisions", "find_layouts", "launch_config", "layout_of_config", "memory_timeline", "plan",
    "predict_many", "predict_run", "predict_time", "sensitivity", "sweep", "sweep_tables", "what_matters",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{_where_it_went(name)}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def _where_it_went(name: str) -> str:
    """What to install for a public name that another distribution has now; "" for any other."""
    from .io import packaged_toml

    member = packaged_toml(f"{__name__}.cli", "data/members.toml")["names"].get(name)
    if member is None:
        return ""
    return f" To fix: pip install {member}, then `from {member.replace('-', '_')} import {name}`."


def __dir__() -> list[str]:
    return sorted(__all__)
