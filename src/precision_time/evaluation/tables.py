"""What a report is made of, sections with tables and metrics, and how it is shown: Markdown or HTML."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

CellValue = str | int | float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportTable:
    """Rows of cells. Numbers are rounded by `text_of` when they are shown, None is shown as "-"."""

    title: str
    columns: tuple[str, ...]
    """A column whose name begins with ">" holds numbers."""
    rows: tuple[tuple[CellValue, ...], ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        names = [name.removeprefix(">") for name in self.columns]
        rows = [dict(zip(names, row, strict=True)) for row in self.rows]
        return {"title": self.title, "note": self.note, "rows": rows}


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """One number of a report and how far it moves from seed to seed."""

    value: float
    spread: float | None = None
    """Standard deviation over the seeds; None with one seed."""

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {"value": self.value, "spread": self.spread}


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """One part of a report, such as T1."""

    key: str
    title: str
    headline: str
    """What it says in a sentence."""
    tables: tuple[ReportTable, ...] = ()
    figures: Mapping[str, Metric] = field(default_factory=dict)
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
    """Everything that was requested."""

    sections: Sequence[Section]
    card: Mapping[str, Any]
    """Version, corpus, rows, seeds, folds, whether quick: figures compare only where these agree."""

    @property
    def figures(self) -> dict[str, Metric]:
        """All numbers of all sections."""
        return {name: figure for section in self.sections for name, figure in section.figures.items()}

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready dictionary."""
        return {
            "card": dict(self.card),
            "sections": {section.key: section.to_dict() for section in self.sections},
        }


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


def introduction(report: Report) -> str:
    """What the figures are of, in a paragraph."""
    card = report.card
    seeds = "one seed" if card["seeds"] == 1 else f"{card['seeds']} seeds"
    how = f"{card['folds']} folds, {seeds}"
    kind = f"a sample of {card['sample']}" if card["sample"] else "all"
    quick = " Quick: a tenth of the trees, so errors are larger than with all." if card["quick"] else ""
    return (
        f"Version {card['version']}, corpus {card['corpus']}: {card['rows']} measured runs ({kind}), {how}. "
        "All data are measured, none synthetic. Errors are |predicted - measured| / measured of the step "
        f"time, of rows that the predictor under test has not seen.{quick}"
    )


def markdown(report: Report) -> str:
    """The whole report as one Markdown page."""
    parts = [f"# How good the predictions are\n\n{introduction(report)}\n"]
    parts += [section_markdown(section) for section in report.sections]
    rejected = report.card["rejected"]
    if rejected:
        parts.append("## Rows of the corpus that could not be predicted\n")
        parts.append("\n".join(table_lines(("reason", ">rows"), tuple(rejected.items()))) + "\n")
    return "\n".join(parts)


def section_markdown(section: Section, *, with_key: bool = True) -> str:
    """One section, its tables below its headline."""
    title = f"{section.key} {section.title}" if with_key else section.title
    return "\n".join([f"## {title}\n", f"{section.headline}\n", *map(table_markdown, section.tables)])


def table_markdown(table: ReportTable) -> str:
    """One table with its title and its note."""
    note = f"\n{table.note.strip()}\n" if table.note else ""
    return "\n".join([f"### {table.title}\n", *table_lines(table.columns, table.rows), ""]) + note


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[CellValue]]) -> Iterator[str]:
    """The lines of a Markdown table."""
    yield "| " + " | ".join(_escaped(name.removeprefix(">")) for name in columns) + " |"
    yield "|" + "|".join("---:" if name.startswith(">") else "---" for name in columns) + "|"
    for row in rows:
        yield "| " + " | ".join(_escaped(cell) for cell in row) + " |"


def _escaped(cell: CellValue) -> str:
    return text_of(cell).replace("\\", "\\\\").replace("|", "\\|")


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222; }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 2em; border-bottom: 1px solid #ccc; }
.headline { font-size: 1.1em; }
.note { color: #555; font-size: 0.9em; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9em; }
th, td { padding: 0.15em 0.7em; text-align: left; border-bottom: 1px solid #e5e5e5; }
th { border-bottom: 1px solid #888; vertical-align: bottom; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { display: inline-block; margin: 1em 1em 1em 0; max-width: 100%; vertical-align: top; }
figure svg { max-width: 100%; height: auto; }
"""


def html(report: Report) -> str:
    """The report as one HTML page that needs nothing else: tables, and plots as SVG inside it.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    from .plots import section_plots

    parts = []
    for section in report.sections:
        plots = (
            f'<figure>{svg}<figcaption class="note">{escape(caption)}</figcaption></figure>'
            for caption, svg in section_plots(section)
        )
        parts += [
            f'<h2 id="{section.key}">{section.key} {escape(section.title)}</h2>',
            f'<p class="headline">{escape(section.headline)}</p>',
            *plots,
            *(_table_html(table) for table in section.tables),
        ]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>precision-time: accuracy</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>How good the predictions are</h1>\n<p>{escape(introduction(report))}</p>\n"
        f"{body}\n</body>\n</html>\n"
    )


def _table_html(table: ReportTable) -> str:
    kinds = ['class="n"' if name.startswith(">") else "" for name in table.columns]

    def line(tag: str, cells: Sequence[CellValue]) -> str:
        pairs = zip(kinds, cells, strict=True)
        return (
            "<tr>"
            + "".join(f"<{tag} {kind}>{escape(text_of(cell))}</{tag}>" for kind, cell in pairs)
            + "</tr>"
        )

    note = f'<p class="note">{escape(table.note.strip())}</p>\n' if table.note else ""
    lines = [line("th", [name.removeprefix(">") for name in table.columns])]
    lines += [line("td", row) for row in table.rows]
    return (
        f'<h3>{escape(table.title)}</h3>\n{note}<div class="scroll"><table>\n'
        + "\n".join(lines)
        + ("\n</table></div>")
    )
