"""Tables and figures as text for people, drawn by rich when one is shown."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from .units import format_bytes, format_duration, format_si

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

TEXT_WIDTH = 120


def plain_text(renderable: RenderableType, *, width: int = TEXT_WIDTH) -> str:
    """Anything that rich can draw as text without colours and trailing spaces.

    Args:
        renderable: Table, group, text.
        width: Columns of the page [characters].
    """
    from rich.console import Console

    page = io.StringIO()
    Console(file=page, width=width, highlight=False, no_color=True, markup=False, emoji=False).print(
        renderable
    )
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip("\n")


def new_table(*headers: str) -> Table:
    """An empty table; a header that starts with ">" aligns its column to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in headers:
        justify: Any = "right" if header.startswith(">") else "left"
        table.add_column(header.removeprefix(">"), justify=justify, overflow="fold")
    return table


def format_field(name: str, value: Any) -> str:
    """A value in the unit that its name ends in (`_s`, `_bytes`, `_flops_per_s` ...).

    >>> format_field("memory_bandwidth_bytes_per_s", 3.35e12), format_field("launch_overhead_s", 4.5e-6)
    ('3.35 TB/s', '4.5 us')
    """
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    for ending, unit in (("bytes_per_s", "B/s"), ("flops_per_s", "FLOP/s"), ("flops", "FLOP"), ("_hz", "Hz")):
        if name.endswith(ending):
            return format_si(value, unit)
    if name.endswith("_s"):
        return format_duration(value)
    if "bytes" in name:
        return format_bytes(value)
    if "share" in name:
        return f"{value:.0%}"
    return str(value) if name.endswith("_year") else grouped(value)


def grouped(value: float) -> str:
    """Three significant digits below a thousand, thousands separated above."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def in_words(name: str) -> str:
    """The name of a field or term as people read it.

    >>> in_words("data_exposed_s"), in_words("step_time_s")
    ('data exposed', 'step time')
    """
    return name.removesuffix("_s").replace("_", " ")
