"""What pictures of a step share: their width, an axis of time, a legend, text, and the frames of files."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from ...cost.terms import OTHER_COLOR
from ...units import format_duration
from .timeline import words

WIDTH, LEFT, RIGHT = 1200, 180, 20
GAP, TITLE = 6, 34
"""Heights between lanes, and of a heading [pixels]."""
_TICKS = 8


def time_axis(top: float, step_s: float) -> Iterator[str]:
    """Ticks at round times."""
    scale = (WIDTH - LEFT - RIGHT) / step_s
    rough = step_s / _TICKS
    unit = 10.0 ** math.floor(math.log10(rough))
    distance = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough)
    for tick in range(math.floor(step_s / distance) + 1):
        x = LEFT + tick * distance * scale
        yield f'<line x1="{x:.1f}" y1="{top - GAP}" x2="{x:.1f}" y2="{top}" stroke="#666666"/>'
        yield text_at(x, top + 12, format_duration(tick * distance) if tick else "0", "tick")


def legend(kinds: Iterable[str], top: float, colors: Mapping[str, str]) -> tuple[list[str], int]:
    """Color and name of each kind in rows, and where they end."""
    parts: list[str] = []
    x, y = float(LEFT), top
    for kind in kinds:
        name = f"{words(kind)} communication" if kind.endswith("_exposed") else words(kind)
        width = 26.0 + 6.6 * len(name)
        if x + width > WIDTH - RIGHT:
            x, y = float(LEFT), y + 20
        parts.append(
            f'<rect x="{x:.1f}" y="{y}" width="12" height="12" fill="{colors.get(kind, OTHER_COLOR)}"/>'
        )
        parts.append(text_at(x + 16, y + 10, name, "key"))
        x += width
    return parts, int(y + 30)


def text_at(x: float, y: float, text: str, kind: str) -> str:
    """Text of a class of the style sheet."""
    return f'<text x="{x:.1f}" y="{y}" class="{kind}">{escape(text)}</text>'


def table(title: str, rows: Iterable[Sequence[str]]) -> str:
    """Rows of a name, a size and a share."""
    body = "".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td><td>{escape(share)}</td></tr>"
        for name, value, share in rows
    )
    return f"<table><caption>{escape(title)}</caption><tbody>{body}</tbody></table>"


def svg_document(parts: Iterable[str], height: float, title: str) -> str:
    """A picture of the common width."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img">\n<title>{escape(title)}</title>\n'
        f"<style>{_SVG_STYLE}</style>\n"
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def page(title: str, body: str) -> str:
    """A page that needs nothing else."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>{_PAGE_STYLE}</style>\n</head>\n<body>\n"
        f"<h1>{escape(title)}</h1>\n{body}</body>\n</html>\n"
    )


_SVG_STYLE = (
    "text{font-family:system-ui,sans-serif;font-size:12px;fill:#222222}"
    ".heading{font-size:14px;font-weight:600}.label{text-anchor:end}.tick{text-anchor:middle;fill:#666666}"
)
_PAGE_STYLE = (
    "body{font-family:system-ui,sans-serif;margin:2rem auto;max-width:1240px;padding:0 1rem;color:#222;"
    "background:#fff}h1{font-size:1.4rem}.picture{overflow-x:auto}.tables{display:flex;flex-wrap:wrap;gap:3rem}"
    "table{border-collapse:collapse}caption{text-align:left;font-weight:600;padding:.5rem 0}"
    "th{text-align:left;font-weight:400}td{text-align:right;font-variant-numeric:tabular-nums}"
    "th,td{padding:.15rem .8rem .15rem 0;border-bottom:1px solid #ddd}"
)
