"""How results are shown: tables and pages as text, Markdown, HTML, CSV and JSON, and pictures."""

from __future__ import annotations

from .document import Document, Metric, Section
from .table import Table

__all__ = ["Document", "Metric", "Section", "Table"]
