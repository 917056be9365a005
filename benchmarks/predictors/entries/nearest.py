"""The measured run that is most alike, its time scaled by FLOPs over the peak of all devices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictors.contract import Answer

NAME, VERSION, LEARNS = "nearest neighbor", "1", True
VARIANTS = {"nearest neighbor": {"neighbors": 1, "distance": "Euclid over logarithms and marks of words"}}
CANNOT = "what no known run has"
_NUMBERS = (
    *("params", "training_flops_per_sample", "devices", "nodes", "peak_flops_per_s", "memory_bytes_per_s"),
    *("micro_batch_size", "num_microbatches", "tp", "pp", "intra_bytes_per_s", "inter_bytes_per_s"),
)
_WORDS = ("model", "family", "device", "precision", "recompute", "framework")
_FAR = 2.0
"""A word that differs is as far as a number seven times as large."""
_known: dict[str, Any] = {}


def _logs(rows: Sequence[Mapping[str, Any]]) -> NDArray[np.float64]:
    return np.array([[math.log(max(row[name] or 0.0, 1e-3)) for name in _NUMBERS] for row in rows])


def _at_peak_s(row: Mapping[str, Any]) -> float:
    flops = row["training_flops_per_sample"] * row["global_batch_size"]
    return float(max(flops, 1.0) / (row["devices"] * row["peak_flops_per_s"]))


def fit(known: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    """Keep the known runs."""
    del settings
    words = {name: np.array([row[name] for row in known]) for name in _WORDS}
    slowness = np.array([row["measured_s"] / _at_peak_s(row) for row in known])
    _known.update(logs=_logs(known), words=words, slowness=slowness)


def predict(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> list[Answer]:
    """By the nearest known run."""
    del settings
    found = []
    for row, logs in zip(rows, _logs(rows), strict=True):
        distance = ((_known["logs"] - logs) ** 2).sum(axis=1)
        distance += sum(_FAR**2 * (_known["words"][name] != row[name]) for name in _WORDS)
        found.append(Answer(seconds=_at_peak_s(row) * float(_known["slowness"][np.argmin(distance)])))
    return found
