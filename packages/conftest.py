"""Made-up trials and results: what the tests of measurements and of campaigns share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from precision_time_integrations.measure.trial import TrainingTrial
    from precision_time_papers.campaign.result import TrialResult


@pytest.fixture(scope="session")
def trial_of() -> Callable[..., TrainingTrial]:
    """A small trial; `workers` and every field of TrainingTrial may be given."""

    from precision_time_integrations.measure.trial import TrainingTrial, WorkerGroup

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

    from precision_time_papers.campaign.result import TrialResult

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
