"""Sweeps of any size: every row is what the request alone says, however it is cut up, spread or interrupted."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from precision_time import predict_many, predict_time, sweep, sweep_tables
from precision_time.errors import ConfigError, MissingExtraError, PrecisionTimeError, UnknownNameError
from precision_time.predict import streaming
from precision_time.predict.streaming import write_sweep
from precision_time.request import grid as grids
from precision_time.request.grid import grid_of, grid_of_file

FIGURES = (
    *("step_time_s", "throughput", "mfu", "epoch_time_s", "total_time_s", "device_hours"),
    *("memory_bytes_per_device", "batch_size", "global_batch_size"),
)
WORDS = ("model", "device", "gpus", "nodes", "precision", "stack", "throughput_unit", "fits")
MODELS = {
    "resnet50": {"device": ["V100-SXM2-16GB", "A100-SXM4-80GB", "MI300X"], "precision": ["fp32", "fp8-mixed"]},
    "llama3-8b": {"device": ["H100-SXM5-80GB"], "tp": [1, 3, 8], "pp": [1, 2], "zero": [0, 1, 3]},
    "mixtral-8x7b": {"device": ["H200-SXM-141GB"], "ep": [1, 8], "grad_accum": [1, 4]},
    "bert-large": {"device": ["L40S", "H100-SXM5-80GB"], "precision": ["tf32", "fp16-mixed"], "seq_len": [512]},
    "gpt2": {"device": ["A100-SXM4-40GB"], "input_rate": [100.0], "coverage": [0.5], "epochs": [2]},
    "dlrm": {"device": ["A100-SXM4-80GB"], "precision": ["fp32"], "steps": [7]},
}
BATCHES = {"batch_size": [1, 3, 24, 250, 4096], "global_batch_size": [64, 100, 1024]}


def test_every_row_is_what_the_request_alone_says() -> None:
    for model, axes in MODELS.items():
        for name, batches in BATCHES.items():
            asked = {"model": model, "gpus": [1, 8, 24], **axes, name: batches}
            for table in sweep_tables(**asked):
                rows = range(0, len(table["job"]), 3 if model == "llama3-8b" else 2)
                for row in rows:
                    _check({column: values[row] for column, values in table.items()}, asked)


def _check(row: dict, asked: dict) -> None:
    fields = {name: row[name] for name in asked if name in row}
    fields |= {name: values[0] for name, values in asked.items() if name not in row and name != "model"}
    other = ({*BATCHES} - {*asked}).pop()
    fields.pop(other, None)
    try:
        alone = predict_time(**{name: value for name, value in fields.items() if value is not None})
    except PrecisionTimeError as error:
        assert row["error"] == str(error)
        return
    assert row["error"] is None
    said = {name: getattr(alone, name) for name in (*WORDS, *FIGURES)}
    assert [row[name] for name in WORDS] == [said[name] for name in WORDS]
    for name in FIGURES:
        expected = np.nan if said[name] is None else said[name]
        assert row[name] == pytest.approx(expected, rel=1e-12, nan_ok=True), (name, fields)
    assert row["interval_low_s"] == pytest.approx(alone.interval.low_s, rel=1e-12)
    assert row["interval_high_s"] == pytest.approx(alone.interval.high_s, rel=1e-12)
    warned = [item.code for item in alone.diagnostics if item.severity.value == "warning"]
    assert row["warnings"].split() == [*dict.fromkeys(warned)]
