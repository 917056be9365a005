"""The tiny plan, a device to measure on, and user-defined code."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_time_integrations.measure.device import MeasuredDevice
from precision_time_integrations.measure.plan import MeasurePlan, load_plan

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
