"""What a report is made of: sections with tables, figures that can be compared, data for the plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Cell = str | int | float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of cells. Numbers are rounded by `text_of` when they are shown, None is shown as "-"."""

    title: str
    columns: tuple[str, ...]
    """A column whose name begins with ">" holds numbers."""
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        names = [name.removeprefix(">") for name in self.columns]
        rows = [dict(zip(names, row, strict=True)) for row in self.rows]
        return {"title": self.title, "note": self.note, "rows": rows}


@dataclass(frozen=True, kw_only=True, slots=True)
class Figure:
    """One number of the report and how far it moves from seed to seed."""

    value: float
    spread: float | None
    """Standard deviation over the seeds; None with one seed."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {"value": self.value, "spread": self.spread}


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One of T1 to T6."""

    key: str
    title: str
    headline: str
    """What it says in a sentence."""
    tables: tuple[Table, ...]
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """Name to number; names begin with the key of the section."""
    plot: Mapping[str, Any] = field(default_factory=dict)
    """What plots of the section need beyond its tables; arrays."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary, without the data of the plots."""
        return {
            "title": self.title,
            "headline": self.headline,
            "figures": {name: figure.to_dict() for name, figure in self.figures.items()},
            "tables": [table.to_dict() for table in self.tables],
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """Everything that was asked for."""

    sections: Sequence[Section]
    card: Mapping[str, Any]
    """Version, corpus, rows, seeds, folds, whether quick: figures compare only where these agree."""

    @property
    def figures(self) -> dict[str, Figure]:
        """All numbers of all sections."""
        return {name: figure for section in self.sections for name, figure in section.figures.items()}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "card": dict(self.card),
            "sections": {section.key: section.to_dict() for section in self.sections},
        }


def text_of(cell: Cell) -> str:
    """A cell as it is shown.

    >>> text_of(None), text_of("fp32"), text_of(7), text_of(12.3456), text_of(0.01234), text_of(147.85)
    ('-', 'fp32', '7', '12.3', '0.0123', '147.8')
    """
    if cell is None:
        return "-"
    if isinstance(cell, str | int):
        return str(cell)
    return f"{cell:.1f}" if abs(cell) >= 1.0 or cell == 0.0 else f"{cell:.3g}"
