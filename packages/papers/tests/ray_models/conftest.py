"""Points of a known formula: for the plumbing, never for accuracy."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest

from precision_time_papers.ray_models.points import Points

os.environ.setdefault("OMP_WAIT_POLICY", "passive")


def step_time_s(workers: np.ndarray, batch: np.ndarray) -> np.ndarray:
    """0.02 s per step, 1 ms per sample, 0.03 s (n - 1) / n for the ring."""
    times: np.ndarray = 0.02 + 0.001 * batch + 0.03 * (workers - 1.0) / workers
    return times


@pytest.fixture
def ring_points() -> Callable[..., Points]:
    def make(repeats: int = 1, noise: float = 0.0) -> Points:
        grid = [(w, b) for w in (1, 2, 3, 4, 6, 8) for b in (8, 16, 32, 64, 128)] * repeats
        workers = np.array([w for w, _ in grid], dtype=float)
        batch = np.array([b for _, b in grid], dtype=float)
        drawn = np.random.default_rng(0).standard_normal(len(grid))
        measured = step_time_s(workers, batch) * np.exp(noise * drawn)
        return Points(
            columns={"workers": workers, "batch": batch},
            target="step_time_s",
            measured=measured,
            lines=tuple(range(2, len(grid) + 2)),
        )

    return make
