"""FLOPs over the peak of all devices, at a model FLOPs utilization that people quote or that others reach."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from predictors.contract import Answer

NAME, VERSION, LEARNS = "6ND", "1", True
VARIANTS = {
    "6ND, MFU 0.3": {"mfu": 0.3},
    "6ND, MFU 0.4": {"mfu": 0.4},
    "6ND, MFU 0.5": {"mfu": 0.5},
    "6ND, MFU of the other sources": {"mfu": "median of the known runs of the question"},
}
CANNOT = "links, layout, recomputation, software; of models without tokens 6ND is 3 forward passes"
_usual: dict[str, float] = {}


def _flops(row: Mapping[str, Any]) -> float:
    samples = row["global_batch_size"]
    if row["layers"] and not row["experts"] and not row["adapter"]:
        return float(6.0 * row["params"] * row["seq_len"] * samples)
    return float(row["training_flops_per_sample"] * samples)


def _at_peak_s(row: Mapping[str, Any]) -> float:
    return _flops(row) / float(row["devices"] * row["peak_flops_per_s"])


def fit(known: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> None:
    """The median utilization of the known runs, by question."""
    if isinstance(settings["mfu"], str):
        reached: dict[str, list[float]] = {}
        for row in known:
            reached.setdefault(row["question"], []).append(_at_peak_s(row) / row["measured_s"])
        _usual.update({question: statistics.median(values) for question, values in reached.items()})


def predict(rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> list[Answer]:
    """Seconds at the utilization of the variant."""
    stated = settings["mfu"]
    utilization = [_usual[row["question"]] if isinstance(stated, str) else stated for row in rows]
    return [Answer(seconds=_at_peak_s(row) / share) for row, share in zip(rows, utilization, strict=True)]
