"""Published predictors, each with its citation, behind the contract of `contract.py`; queues, schedules."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from precision_time.plugins import check_member

if TYPE_CHECKING:
    from .precisions.result import PrecisionSearch as PrecisionSearch
    from .precisions.search import search_precisions as search_precisions
    from .queue.api import schedule as schedule
    from .queue.result import Schedule as Schedule

__version__ = "0.2.0"
check_member("precision-time-papers", __version__)

_HOMES = {
    "PrecisionSearch": ".precisions.result",
    "Schedule": ".queue.result",
    "schedule": ".queue.api",
    "search_precisions": ".precisions.search",
}
"""Public names and their homes, imported on first use."""

__all__ = ["PrecisionSearch", "Schedule", "__version__", "schedule", "search_precisions"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name], __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
