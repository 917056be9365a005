"""How results are shown: tables and pages as text, Markdown, HTML, CSV and JSON, and pictures."""

from __future__ import annotations

from .blocks import Bars, Block, Drawing, Text, Tone
from .document import Document, Metric, Section
from .result import Result
from .table import Table

__all__ = ["Bars", "Block", "Document", "Drawing", "Metric", "Result", "Section", "Table", "Text", "Tone"]
