"""Doctests: a file without one is not imported to look for some, which takes longer than to run them all."""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")  # what is installed; Keras asks for TensorFlow otherwise


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, Any, Any]:
    """Leave out what has no example."""
    found = yield
    has_one = file_path.suffix == ".py" and ">>> " in file_path.read_text(encoding="utf-8")
    return found if has_one else []
