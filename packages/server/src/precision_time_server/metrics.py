"""Figures for Prometheus: calls by route and status, their seconds, predictions."""

from __future__ import annotations

import os

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.multiprocess import MultiProcessCollector

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Where the workers of one service put their figures together; set before this is imported."""
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
REGISTRY = CollectorRegistry()
CALLS = Counter("precision_time_calls", "Calls answered.", ("route", "method", "status"), registry=REGISTRY)
CALL_SECONDS = Histogram(
    "precision_time_call_seconds",
    "Seconds from call to answer.",
    ("route",),
    buckets=_SECONDS,
    registry=REGISTRY,
)
IN_PROGRESS = Gauge(
    "precision_time_calls_in_progress",
    "Calls being answered.",
    registry=REGISTRY,
    multiprocess_mode="livesum",
)
PREDICTIONS = Counter("precision_time_predictions", "Predictions made.", registry=REGISTRY)
MEASUREMENTS = Counter("precision_time_measurements", "Measured steps stored.", registry=REGISTRY)


def exposition() -> tuple[bytes, str]:
    """The figures of all workers as text, and its media type."""
    registry = REGISTRY
    if os.environ.get(FOLDER_VARIABLE):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
    return generate_latest(registry), CONTENT_TYPE_LATEST
