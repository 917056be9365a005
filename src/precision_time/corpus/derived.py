"""Step times of rows whose source states only how fast the devices computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from ..hardware.catalog import get_device
from ..workload.workload import Workload
from .jobs import UnsupportedRow, row_workload
from .reading import Findings
from .rules import first_match
from .schema import Row

_TRAINING_PASSES = 3.0
"""Forward, and a backward pass of twice its products; recomputation does not count as model FLOPs."""


def step_time_from_rate(row: Row, parts: Mapping[str, Any], found: Findings) -> float | None:
    """Seconds per step from a stated TFLOP/s or MFU per device, where the table `model_flops` allows it.

    The model FLOPs of a sample are three times its forward products, attention at its full square, as
    the sources that the table names count them.
    None where the row states a time or throughput, or no such rate.
    """
    if row.text("step_time_s") or row.text("throughput") or parts["layout"] is None:
        return None
    rule = first_match("model_flops", row.text)
    rate = _flops_per_s(row, parts["device"])
    if rule is None or rate is None:
        return None
    try:
        workload: Workload = row_workload(
            model=parts["model"],
            seq_len=parts["seq_len"],
            sizes=parts["sizes"],
            task=parts["task"],
            dataset=parts["dataset"],
            optimizer=parts["optimizer"],
        )
    except UnsupportedRow:
        return None
    found.assumptions.append(str(rule["why"]))
    found.doubts.append("step time from the stated FLOP rate and the source's count of FLOPs")
    flops = _TRAINING_PASSES * workload.graph.forward_flops * parts["global_batch_size"]
    return float(flops / (rate * parts["num_devices"]))


def _flops_per_s(row: Row, device: str) -> float | None:
    """Model FLOP/s of one device: stated, or the stated share of its bf16 peak."""
    stated = row.positive_or_none("tflops_per_device")
    if stated is not None:
        return stated * 1e12
    share = row.positive_or_none("mfu")
    if share is None:
        return None
    try:
        return share * get_device(device).peak_flops_per_s["bf16"]
    except (ConfigError, KeyError):
        return None
