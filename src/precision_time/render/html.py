"""Blocks as HTML: fragments for notebooks, pages that need nothing else; all text escaped, no script."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ..units import format_duration
from .blocks import Bars, Block, Drawing, Text, Tone
from .table import Table, text_of

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; color: #222; }
h1, h2, h3 { line-height: 1.2; }
h2 { margin-top: 2em; border-bottom: 1px solid #ccc; }
.headline { font-size: 1.1em; }
.note { color: #555; font-size: 0.9em; }
.scroll { overflow-x: auto; }
.tables { display: flex; flex-wrap: wrap; gap: 3em; }
table { border-collapse: collapse; font-size: 0.9em; }
caption { text-align: left; font-weight: 600; padding: 0.5em 0; }
th, td { padding: 0.15em 0.7em; text-align: left; border-bottom: 1px solid #e5e5e5; }
th { border-bottom: 1px solid #888; vertical-align: bottom; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
figure { display: inline-block; margin: 1em 1em 1em 0; max-width: 100%; vertical-align: top; }
figure svg { max-width: 100%; height: auto; }
"""
_PLAIN = "color:inherit;background:none"
_TABLE = f"{_PLAIN};border-collapse:collapse;margin:.5em 0"
_CELL = "text-align:left;padding:2px 12px 2px 0;white-space:nowrap"
_HEADER = f"{_CELL};border-bottom:1px solid rgba(128,128,128,.5)"
_BAR_WIDTH = "20em"


def page(title: str, body: str, *, style: str = STYLE, head: str = "", script: str = "") -> str:
    """A page that needs nothing else."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(head + title)}</title>\n<style>{style}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n{script}</body>\n</html>\n"
    )


def page_of_blocks(title: str, blocks: Iterable[Block], *, style: str = STYLE, script: str = "") -> str:
    """A page with blocks below its title, as of `page`; tables that follow each other stand side by side."""
    parts: list[str] = []
    tables: list[str] = []
    for block in (*blocks, Text("")):
        if isinstance(block, Table):
            caption = f"<caption>{escape(block.title)}</caption>" if block.title else ""
            tables.append(block.html().replace("<table>", f"<table>{caption}", 1))
            continue
        if tables:
            parts.append('<div class="tables">\n' + "\n".join(tables) + "\n</div>")
            tables = []
        if isinstance(block, Drawing):
            parts.append(f'<div class="scroll">\n{block.svg}</div>')
        elif isinstance(block, Bars):
            parts.append(_bars(block))
        elif block.text:
            css = {Tone.LEAD: ' class="headline"', Tone.SOFT: ' class="note"'}.get(block.tone, "")
            parts.append(f"<p{css}>{escape(block.text)}</p>")
    return page(title, "\n".join(parts), style=style, script=script)


def fragment(blocks: Iterable[Block]) -> str:
    """What a notebook shows, readable on dark and light pages."""
    return _tag("div", "".join(map(_block, blocks)), _PLAIN)


def _block(block: Block) -> str:
    if isinstance(block, Text):
        styles = {Tone.SOFT: "opacity:.7"}
        text = escape(block.text)
        inner = _tag("b", text) if block.tone is Tone.LEAD else text
        return _tag("div", inner, styles.get(block.tone, "")) if text else ""
    if isinstance(block, Table):
        title = _tag("div", _tag("b", escape(block.title))) if block.title else ""
        return title + _table(block.names, [[escape(text_of(cell)) for cell in row] for row in block.rows])
    return _bars(block) if isinstance(block, Bars) else block.svg


def _tag(name: str, inner: str, style: str = "", title: str = "") -> str:
    titled = f' title="{escape(title, quote=True)}"' if title else ""
    styled = f' style="{style}"' if style else ""
    return f"<{name}{titled}{styled}>{inner}</{name}>"


def _table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Headers are escaped, cells are HTML."""
    lines = [_tag("tr", "".join(_tag("th", escape(name), _HEADER) for name in headers), _PLAIN)]
    lines += [_tag("tr", "".join(_tag("td", cell, _CELL) for cell in row), _PLAIN) for row in rows]
    return _tag("table", "".join(lines), _TABLE)


def _bars(block: Bars) -> str:
    """Figures in a table, bars on one scale to their right, and below them what the colors are."""
    longest_s = max([*(high for _, high in block.ranges), *([] if block.ranges else block.sums)])
    figures = block.figures or Table(columns=("",), rows=tuple((label,) for label in block.labels))
    rows = [
        [*(escape(text_of(cell)) for cell in row), _bar(block, place, longest_s)]
        for place, row in enumerate(figures.rows)
    ]
    return _table((*figures.names, ""), rows) + _legend(block)


def _bar(block: Bars, place: int, longest_s: float) -> str:
    """The parts side by side, and below them a line from the low to the high end of what it may be."""
    parts = [
        _tag(
            "span",
            "",
            f"display:inline-block;height:1em;width:{max(values[place], 0.0) / longest_s:.2%};"
            f"background:{block.color(name)}",
            title=f"{name}: {format_duration(values[place])}",
        )
        for name, values in block.parts.items()
    ]
    line = ""
    if block.ranges:
        low_s, high_s = block.ranges[place]
        css = (
            f"margin-left:{low_s / longest_s:.2%};width:{(high_s - low_s) / longest_s:.2%};height:3px;"
            "background:currentColor;opacity:.6"
        )
        line = _tag("div", "", css, title=block.range_title)
    return _tag(
        "div", _tag("div", "".join(parts), "line-height:1;font-size:1em") + line, f"width:{_BAR_WIDTH}"
    )


def _legend(block: Bars) -> str:
    """What each color is; with seconds and share where there is one bar."""
    items = []
    for name, values in block.parts.items():
        figures = (
            f" {format_duration(values[0])}, {values[0] / block.sums[0]:.0%}"
            if len(block.labels) == 1
            else ""
        )
        css = f"display:inline-block;width:.8em;height:.8em;background:{block.color(name)}"
        square = _tag("span", "", css)
        text = f"{square} {escape(name + figures)}"
        items.append(_tag("span", text, "display:inline-block;margin-right:1em;white-space:nowrap"))
    return _tag("div", "".join(items))
