"""The repository that the studies are kept in: its folder, and how a generated page is written."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path += [str(ROOT / "tools"), str(ROOT / "data")]  # what writes pages, and what builds the data

from pages import write_page  # noqa: E402

__all__ = ["ROOT", "write_page"]
