"""docs/papers.md: the tables of the founding papers beside ours, on the corpus and on stored campaigns."""

from pathlib import Path

STORED = Path(__file__).resolve().parents[1] / "campaigns"
"""Plans of our own campaigns and, where they are kept, their results."""
REFERENCE = Path(__file__).resolve().parents[4] / "docs" / "reference"
"""Where studies that take longer keep what they measured."""
