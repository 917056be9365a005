"""`precision-time report`: tables T1 to T6 of the precision-aware paper, on runs held out group by group."""

from __future__ import annotations

from .as_markdown import markdown
from .build import build_report
from .regressions import regressions, write_baseline

__all__ = ["build_report", "markdown", "regressions", "write_baseline"]
