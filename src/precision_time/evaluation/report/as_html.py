"""The report as one HTML page that needs nothing else: tables, and plots as SVG inside it."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from .as_markdown import introduction
from .contract import Report, Section, Table, text_of
from .plots import section_plots

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
    """The whole page.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    sections = "\n".join(_section(section) for section in report.sections)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>precision-time: accuracy</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>How good the predictions are</h1>\n<p>{escape(introduction(report))}</p>\n"
        f"{sections}\n</body>\n</html>\n"
    )


def _section(section: Section) -> str:
    plots = "\n".join(
        f'<figure>{svg}<figcaption class="note">{escape(caption)}</figcaption></figure>'
        for caption, svg in section_plots(section)
    )
    tables = "\n".join(_table(table) for table in section.tables)
    return (
        f'<h2 id="{section.key}">{section.key} {escape(section.title)}</h2>\n'
        f'<p class="headline">{escape(section.headline)}</p>\n{plots}\n{tables}'
    )


def _table(table: Table) -> str:
    note = f'<p class="note">{escape(table.note.strip())}</p>\n' if table.note else ""
    return (
        f'<h3>{escape(table.title)}</h3>\n{note}<div class="scroll"><table>\n'
        + "\n".join(_rows(table))
        + "\n</table></div>"
    )


def _rows(table: Table) -> Iterator[str]:
    kinds = ['class="n"' if name.startswith(">") else "" for name in table.columns]
    heads = zip(kinds, table.columns, strict=True)
    yield (
        "<tr>"
        + "".join(f"<th {kind}>{escape(name.removeprefix('>'))}</th>" for kind, name in heads)
        + "</tr>"
    )
    for row in table.rows:
        cells = zip(kinds, row, strict=True)
        yield "<tr>" + "".join(f"<td {kind}>{escape(text_of(cell))}</td>" for kind, cell in cells) + "</tr>"
