"""Blocks as text of a terminal, drawn by rich when one is shown."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..units import format_duration
from .blocks import TEXT_WIDTH, Bars, Block, Drawing, Text
from .table import Table

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
    from rich.table import Table as RichTable

_MAX_BAR_CELLS, _MIN_BAR_CELLS = 16, 5
_NAME_CELLS, _DURATION_CELLS = 20, 16
"""Space that the name of a part and a duration beside its bar need [characters]."""
_PLOT_ROWS, _PLOT_COLUMNS = 12, 64
_BAR = "█"


def plain_text(renderable: RenderableType, *, width: int = TEXT_WIDTH) -> str:
    """Anything that rich can draw as text without colors and trailing spaces."""
    from rich.console import Console

    page = io.StringIO()
    Console(file=page, width=width, highlight=False, no_color=True, markup=False, emoji=False).print(
        renderable
    )
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()).strip("\n")


def text_of_blocks(blocks: Iterable[Block], *, width: int = TEXT_WIDTH) -> str:
    """A page as text without colors."""
    return plain_text(drawn(blocks, width=width), width=width)


def drawn(blocks: Iterable[Block], *, width: int = TEXT_WIDTH) -> Group:
    """A page as rich draws it.

    Args:
        blocks: Of the page.
        width: Columns of the page [characters]: bars and columns that would not fit are left out.
    """
    from rich.console import Group

    return Group(*(_drawn(block, width) for block in blocks if not isinstance(block, Drawing)))


def _drawn(block: Text | Table | Bars, width: int) -> RenderableType:
    from rich.text import Text as RichText

    if isinstance(block, Text):
        return RichText(block.text, style=block.tone.value)
    return _bars(block, width) if isinstance(block, Bars) else block.fitting(width).terminal()


def new_table(*headers: str) -> RichTable:
    """An empty table; a header that starts with ">" aligns its column to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table as RichTable

    table = RichTable(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in headers:
        justify: Any = "right" if header.startswith(">") else "left"
        table.add_column(header.removeprefix(">"), justify=justify, overflow="fold")
    return table


def _bars(block: Bars, width: int) -> RichTable:
    """Parts as rows, bars as columns; all share one scale, the longest sum."""
    single = len(block.labels) == 1
    space = (width - _NAME_CELLS) // len(block.labels) - _DURATION_CELLS
    cells = min(space, _MAX_BAR_CELLS) if space >= _MIN_BAR_CELLS else 0
    longest_s = max(block.sums)
    table = new_table(block.title)
    for label in block.labels:
        table.add_column("time" if single else label, justify="right")
        if cells:
            table.add_column("", min_width=cells, no_wrap=True)
    for name, values in block.parts.items():
        texts = (text for value in values for text in _bar_texts(value, longest_s, cells=cells, share=single))
        table.add_row(name, *texts)
    return table


def _bar_texts(value_s: float, longest_s: float, *, cells: int, share: bool) -> Iterator[str]:
    """A duration and a bar of up to `cells` cells, which ends in its share if wanted."""
    yield format_duration(value_s) if value_s else "-"
    if cells:
        fraction = max(value_s, 0.0) / longest_s if longest_s > 0 else 0.0
        bar = _BAR * round(cells * fraction)
        yield f"{bar} {fraction:.0%}" if share else bar


def scatter(
    points: Sequence[tuple[str, float, float]],
    *,
    width: int,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
) -> list[str]:
    """Points by their marks, both axes logarithmic; empty for less than two.

    Args:
        points: Mark, x and y; the first stays visible where two meet.
        width: Columns of the page [characters].
        x_text: The ends of the x axis as text.
        y_text: Of the y axis.
    """
    if len(points) < 2:  # noqa: PLR2004
        return []
    columns = min(_PLOT_COLUMNS, width - 14)
    xs, ys = [math.log(x) for _, x, _ in points], [math.log(y) for _, _, y in points]
    wide, high = max(xs) - min(xs), max(ys) - min(ys)
    grid = [[" "] * columns for _ in range(_PLOT_ROWS)]
    for (mark, *_), x, y in reversed([*zip(points, xs, ys, strict=True)]):
        column = round((x - min(xs)) / (wide or 1.0) * (columns - 1))
        row = round((y - min(ys)) / (high or 1.0) * (_PLOT_ROWS - 1))
        grid[_PLOT_ROWS - 1 - row][column] = mark
    labels = {0: y_text(math.exp(max(ys))), _PLOT_ROWS - 1: y_text(math.exp(min(ys)))}
    left, right = x_text(math.exp(min(xs))), x_text(math.exp(max(xs)))
    return [
        *(f"{labels.get(place, ''):>11} |{''.join(row).rstrip()}" for place, row in enumerate(grid)),
        f"{'':>11} +{'-' * columns}",
        f"{'':>13}{left}{right:>{max(columns - len(left), 1)}}",
    ]
