"""The tiny plan, a device to measure on, made-up trials and results, user-defined code, and a Ray."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from precision_time.measure.device import MeasuredDevice
from precision_time.measure.plan import MeasurePlan, load_plan
from precision_time.measure.result import TrialResult
from precision_time.measure.trial import TrainingTrial, WorkerGroup
from precision_time.ray_executor import ray_session

HERE = Path(__file__).parent


@pytest.fixture
def tiny() -> MeasurePlan:
    return load_plan(HERE / "tiny.toml")


@pytest.fixture
def cpu() -> MeasuredDevice:
    """A processor that the catalogue knows, whatever runs the tests."""
    return MeasuredDevice(
        name="CPU-Xeon-Platinum-8480+", kind="cpu", software="torch 2.9.0", framework_version="2.9.0"
    )


@pytest.fixture(autouse=True)
def _user_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


@pytest.fixture(scope="session")
def trial_of() -> Callable[..., TrainingTrial]:
    """A small trial; `workers` and every field of TrainingTrial may be given."""

    def make(*, workers: int = 1, nodes: int = 1, **changes: Any) -> TrainingTrial:
        values: dict[str, Any] = {
            "model": "cnn",
            "dataset": "synthetic",
            "dataset_samples": 64,
            "fraction": 1.0,
            "group": WorkerGroup(num_workers=workers, num_nodes=nodes),
            "batch_per_worker": 8,
            "precision": "fp32",
            "optimizer": "adam",
        }
        return TrainingTrial(**{**values, **changes})

    return make


@pytest.fixture(scope="session")
def result_of() -> Callable[..., TrialResult]:
    """A finished trial whose figures are made up."""

    def make(**changes: Any) -> TrialResult:
        values: dict[str, Any] = {
            "campaign": "made-up",
            "key": "cnn/synthetic-64x1/w1c1/b8/fp32/adam",
            "repeat": 0,
            "model": "cnn",
            "dataset": "synthetic",
            "dataset_fraction": 1.0,
            "num_samples": 64,
            "num_workers": 1,
            "cpus_per_worker": 1.0,
            "gpus_per_worker": 0.0,
            "batch_per_worker": 8,
            "precision": "fp32",
            "optimizer": "adam",
            "sizes": {},
            "device": "CPU-Made-Up",
            "step_time_s": 0.02,
            "samples_per_s": 400.0,
            "train_time_s": 0.16,
        }
        return TrialResult(**{**values, **changes})

    return make


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    """A local Ray of two CPUs; its workers find the loops of this folder and the package under test."""
    source = str(Path(__file__).resolve().parents[2] / "src")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [source, str(HERE), before]))
    try:
        with ray_session("local", num_cpus=2) as module:
            yield module
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
