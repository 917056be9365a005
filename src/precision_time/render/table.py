"""Rows of cells under named columns, as Markdown, HTML, a page of the terminal, CSV or JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..io import check_suffix, table_cell, write_atomically
from ..records import dataclass

if TYPE_CHECKING:
    from rich.console import RenderableType

CellValue = str | int | float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """Rows of cells. Numbers are rounded by `text_of` when they are shown, None is shown as "-"."""

    columns: tuple[str, ...]
    """A column whose name begins with ">" holds numbers."""
    rows: tuple[tuple[CellValue, ...], ...]
    title: str = ""
    note: str = ""
    narrow: bool = False
    """One space between columns in a terminal."""
    headless: bool = False
    """Without the names of the columns, as far as people see them."""
    dispensable: tuple[str, ...] = ()
    """Columns that a page which is too narrow leaves out, in this order."""

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns, as they are shown."""
        return tuple(name.removeprefix(">") for name in self.columns)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        rows = [dict(zip(self.names, row, strict=True)) for row in self.rows]
        return {"title": self.title, "note": self.note, "rows": rows}

    def csv(self) -> str:
        """The cells as they are, not rounded, the names of the columns first."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.names)
        for row in self.rows:
            writer.writerow([table_cell(cell) if isinstance(cell, str) else cell for cell in row])
        return text.getvalue()

    def markdown(self) -> str:
        """The lines of the table; title and note are the page's."""
        return "\n".join(markdown_lines(self.columns, self.rows))

    def html(self) -> str:
        """A `<table>`; title and note are the page's."""
        kinds = ['class="n"' if name.startswith(">") else "" for name in self.columns]

        def line(tag: str, cells: Sequence[CellValue]) -> str:
            pairs = zip(kinds, cells, strict=True)
            return (
                "<tr>"
                + "".join(f"<{tag} {kind}>{escape(text_of(cell))}</{tag}>" for kind, cell in pairs)
                + "</tr>"
            )

        head = [] if self.headless else [line("th", self.names)]
        lines = [*head, *(line("td", row) for row in self.rows)]
        return "<table>\n" + "\n".join(lines) + "\n</table>"

    def fitting(self, width: int) -> Table:
        """Without dispensable columns as far as the others do not fit on a page of so many characters."""
        found = self
        for name in self.dispensable:
            texts = [found.names, *([text_of(cell) for cell in row] for row in found.rows)]
            widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
            if sum(widths) + 2 * len(widths) <= width:
                break
            kept = [place for place, column in enumerate(found.columns) if column != name]
            found = replace(
                found,
                columns=tuple(found.columns[place] for place in kept),
                rows=tuple(tuple(row[place] for place in kept) for row in found.rows),
            )
        return found

    def terminal(self) -> RenderableType:
        """What rich draws, the title in bold above it."""
        from rich.box import SIMPLE_HEAD
        from rich.console import Group
        from rich.table import Table as Drawn
        from rich.text import Text

        table = (
            Drawn.grid(padding=(0, 2, 0, 0))
            if self.headless
            else Drawn(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
        )
        if self.narrow:
            table.padding = (0, 1, 0, 0)
        for name in self.columns:
            right = name.startswith(">")
            table.add_column(name.removeprefix(">"), justify="right" if right else "left", overflow="fold")
        for row in self.rows:
            table.add_row(*(Text(text_of(cell)) for cell in row))
        return Group(Text(self.title, style="bold"), table) if self.title else table


_KINDS = (".csv", ".jsonl")


def write_columns(columns: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Write columns of cells as .csv, or as one object for each row (.jsonl), atomically.

    Raises:
        ConfigError: If the file is neither.
        OutputError: If it cannot be written.
    """
    check_suffix("--out", path, _KINDS)
    rows = tuple(zip(*columns.values(), strict=True))
    if path.suffix.lower() == ".csv":
        write_atomically(path, Table(columns=tuple(columns), rows=rows).csv())
        return
    records = (json.dumps(dict(zip(columns, row, strict=True)), default=str) for row in rows)
    write_atomically(path, "".join(f"{record}\n" for record in records))


def columns_of(names: str) -> tuple[str, ...]:
    """Column names written in one line.

    >>> columns_of("model | >rows | >MAPE %")
    ('model', '>rows', '>MAPE %')
    """
    return tuple(name.strip() for name in names.split(" | "))


def text_of(cell: CellValue) -> str:
    """A cell as it is shown.

    >>> text_of(None), text_of("fp32"), text_of(7), text_of(12.3456), text_of(0.01234), text_of(147.85)
    ('-', 'fp32', '7', '12.3', '0.0123', '147.8')
    """
    if cell is None:
        return "-"
    if isinstance(cell, str | int):
        return str(cell)
    return f"{cell:.1f}" if abs(cell) >= 1.0 or cell == 0.0 else f"{cell:.3g}"


def ratio_text(value: float | None, digits: int = 2) -> str | None:
    """A ratio or a rank correlation with fixed digits; None stays None.

    >>> ratio_text(2.4), ratio_text(0.91234, 3), ratio_text(None)
    ('2.40', '0.912', None)
    """
    return None if value is None else f"{value:,.{digits}f}"


def markdown_lines(columns: Sequence[str], rows: Sequence[Sequence[CellValue]]) -> Iterator[str]:
    """The lines of a table in Markdown."""
    yield "| " + " | ".join(_escaped(name.removeprefix(">")) for name in columns) + " |"
    yield "|" + "|".join("---:" if name.startswith(">") else "---" for name in columns) + "|"
    for row in rows:
        yield "| " + " | ".join(_escaped(cell) for cell in row) + " |"


def _escaped(cell: CellValue) -> str:
    return text_of(cell).replace("\\", "\\\\").replace("|", "\\|")
