"""Shared settings: the same examples on every run, no time limits on a loaded machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("reproducible", deadline=None, derandomize=True, max_examples=50)
settings.load_profile("reproducible")
pytest.register_assert_rewrite("precision_time.testing")


@pytest.fixture(autouse=True)
def _sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing a test does reaches the user's home folder, and no model hub is asked."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.delenv("PRECISION_TIME_PREDICTOR", raising=False)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
