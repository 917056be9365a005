"""User-defined code, and a Ray."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from precision_time.ray.executor import ray_session
from surface import SOURCES

HERE = Path(__file__).parent


@pytest.fixture(autouse=True)
def _user_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))


@pytest.fixture(scope="session")
def ray() -> Iterator[Any]:
    """A local Ray of two CPUs; its workers find the loops of this folder and the packages under test."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*map(str, SOURCES.values()), str(HERE), before]))
    try:
        with ray_session("local", num_cpus=2) as module:
            yield module
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before
