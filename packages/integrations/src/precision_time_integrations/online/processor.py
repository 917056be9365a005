"""The processor of this run as a device: of the catalog, or described by a quarter of a second of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_time.cache import data

from ..measure.processor import measure_processor

_SECONDS = 0.02
"""Of calls for each figure: a run waits for them."""


@data
def described_processor() -> tuple[str, Mapping[str, Any] | None]:
    """Name of this processor, and the tables that describe it (`Request.custom`); once in a process.

    The figures are measured as `precision-time measure --cpu` does, in a tenth of its time: threads, quota
    and vector instructions of this process are part of them.
    """
    figures = measure_processor(name="", seconds=_SECONDS)
    return figures.name, {"device": {figures.name: figures.entry()}}
