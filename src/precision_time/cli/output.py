"""How commands speak: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

_PLAIN_WIDTH = 120
_LINE_EVERY_S = 15.0


class Counted(Protocol):
    """Where work of many points stands."""

    @property
    def done(self) -> int:
        """Points settled."""
        ...

    @property
    def total(self) -> int:
        """Points in all."""
        ...

    @property
    def point(self) -> str:
        """What is being done now."""
        ...


def message(text: str) -> None:
    """Write one line for people to stderr."""
    typer.echo(text, err=True)


def write_json(value: Mapping[str, Any]) -> None:
    """Write `value` as the only thing on stdout; infinities and NaN are refused, JSON has none."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, default=str))


def write_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a plain table to stdout.

    Args:
        title: One line above the table; empty for none.
        columns: Headers. A header that starts with ">" aligns its column to the right.
        rows: Cells as text, one tuple per row, as long as `columns`.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        right = column.startswith(">")
        table.add_column(column.removeprefix(">"), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    write_renderable(Group(Text(title, style="bold"), table) if title else table)


def page_width() -> int:
    """Columns of the terminal; 120 where stdout is none [characters]."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PLAIN_WIDTH


def write_renderable(renderable: RenderableType) -> None:
    """Write something that rich can draw to stdout: plain text when that is not a terminal."""
    if not sys.stdout.isatty():
        from ..predict.render import plain_text

        typer.echo(plain_text(renderable, width=page_width()))
        return
    from rich.console import Console

    Console(highlight=False).print(renderable)


@contextmanager
def progress(title: str) -> Iterator[Callable[[str], None]]:
    """A spinner on stderr while the block runs, on a terminal only.

    Yields:
        A function that says what is being done now.
    """
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(title) as status:
        yield lambda text: status.update(f"{title}: {text}")


@contextmanager
def counted_progress(
    *, waiting: str = "", left: Callable[[Any], str] = lambda _: ""
) -> Iterator[Callable[[Any], None]]:
    """A bar of points done on a terminal; elsewhere a line on stderr every few seconds.

    Args:
        waiting: What is said while no point is being done.
        left: The time that is left by an estimate of the work's own, in words.

    Yields:
        A function that takes a `Counted`.
    """
    if not sys.stderr.isatty():
        yield _Lines(waiting, left).tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns: Any = (
        *(BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()),
        *(TextColumn("{task.fields[left]}"), TextColumn("{task.description}")),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(waiting, total=None, left="")

        def tell(now: Counted) -> None:
            said = now.point[:60] or waiting
            bar.update(task, total=now.total, completed=now.done, left=left(now), description=said)

        yield tell


class _Lines:
    """Says where work stands, but not too often."""

    def __init__(self, waiting: str, left: Callable[[Any], str]) -> None:
        self._waiting, self._left = waiting, left
        self._start_s = self._last_s = time.monotonic()

    def tell(self, now: Counted) -> None:
        time_s = time.monotonic()
        if now.done == 0 or time_s - self._last_s >= _LINE_EVERY_S:
            self._last_s = time_s
            left = self._left(now)
            message(
                f"{now.done}/{now.total} after {time_s - self._start_s:.0f} s"
                f"{left and ', ' + left}: {now.point or self._waiting}"
            )
