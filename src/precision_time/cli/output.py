"""What commands write: results on stdout, everything else on stderr."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import typer

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ..launch.emit import LaunchConfig
    from ..render.blocks import Block
    from ..render.result import Result

_PLAIN_WIDTH = 120
_LINE_EVERY_S = 15.0
_MOST_TEXT = 100


class ProgressUpdate(Protocol):
    """Shows where work of many steps stands."""

    def __call__(self, done: int, total: int | None, text: str, left: str = "") -> None:
        """Show `done` of `total` (None: unknown), what is done now, and an estimate of the time left."""


def message(text: str) -> None:
    """Write one line for people to stderr."""
    typer.echo(text, err=True)


def write_json(value: Mapping[str, Any]) -> None:
    """Write `value` as the only thing on stdout; infinities and NaN are refused, JSON has none."""
    typer.echo(json.dumps(value, indent=2, allow_nan=False, default=str))


def write_launch_config(config: LaunchConfig, *, json_output: bool) -> None:
    """Write what a launcher is started with, and its notes for the eye where the text goes to a file."""
    if json_output:
        write_json(config.to_dict())
    else:
        typer.echo(config.text, nl=False)
    for note in () if sys.stdout.isatty() else config.notes:
        message(f"Note: {note}")


def write_rows(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Write a plain table to stdout.

    Args:
        title: One line above the table; empty for none.
        columns: Headers. A header that starts with ">" aligns its column to the right.
        rows: Cells as text, one tuple per row, as long as `columns`.
    """
    from ..render.table import Table

    write_renderable(Table(title=title, columns=tuple(columns), rows=tuple(map(tuple, rows))).terminal())


def page_width() -> int:
    """Columns of the terminal; 120 where stdout is none [characters]."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else _PLAIN_WIDTH


def write_page(blocks: Iterable[Block]) -> None:
    """Write a page to stdout."""
    from ..render.terminal import drawn

    write_renderable(drawn(blocks, width=page_width()))


def write_result(found: Result, *, json_output: bool = False, why: bool = False) -> None:
    """Write an answer to stdout: its page, or the JSON of all its fields."""
    if json_output:
        write_json(found.to_dict())
    else:
        write_page(found.blocks(width=page_width(), why=why))


def write_renderable(renderable: RenderableType) -> None:
    """Write something that rich can draw to stdout: plain text when that is not a terminal."""
    if not sys.stdout.isatty():
        from ..render.terminal import plain_text

        typer.echo(plain_text(renderable, width=page_width()))
        return
    from rich.console import Console

    Console(highlight=False, markup=False, emoji=False).print(renderable)


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
def progress_bar(
    waiting: str = "", *, lines: bool = False, remaining: bool = False
) -> Iterator[ProgressUpdate]:
    """A bar on stderr while the block runs, on a terminal only.

    Args:
        waiting: Shown while nothing else is.
        lines: Where stderr is not a terminal, write a line every few seconds.
        remaining: Estimate the time left from the steps done.

    Yields:
        The function that moves the bar.
    """
    if not sys.stderr.isatty():
        yield _line_updates(waiting) if lines else lambda *_, **__: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns: list[Any] = [BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    columns += [TimeRemainingColumn()] if remaining else []
    columns += [TextColumn("{task.fields[left]}"), TextColumn("{task.description}")]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(waiting, total=None, left="")

        def update(done: int, total: int | None, text: str, left: str = "") -> None:
            bar.update(task, total=total, completed=done, left=left, description=text[:_MOST_TEXT] or waiting)

        yield update


def _line_updates(waiting: str) -> ProgressUpdate:
    """Writes where work stands as lines, but not too often."""
    start_s = time.monotonic()
    next_s = start_s

    def update(done: int, total: int | None, text: str, left: str = "") -> None:
        nonlocal next_s
        time_s = time.monotonic()
        if done == 0 or time_s >= next_s:
            next_s = time_s + _LINE_EVERY_S
            message(f"{done}/{total} after {time_s - start_s:.0f} s{left and ', ' + left}: {text or waiting}")

    return update
