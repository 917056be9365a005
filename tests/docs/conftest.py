"""What the tests of the documentation share."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def update_docs() -> ModuleType:
    """`tools/update_docs.py` as a module."""
    spec = importlib.util.spec_from_file_location("update_docs", ROOT / "tools" / "update_docs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
