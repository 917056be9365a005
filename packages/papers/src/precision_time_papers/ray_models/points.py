"""Measured points: a CSV read into columns, every cell checked before anything is fitted."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from precision_time.errors import ConfigError, CorpusError, UnknownNameError
from precision_time.io import open_input_text

from .features import Column

Floats = NDArray[np.float64]
Ints = NDArray[np.intp]

LEAST_ROWS = 8
"""Below that nothing can be fitted, selected and validated on separate rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Points:
    """Measured points, all arrays of length n."""

    columns: Mapping[str, Column]
    """Numbers or, for categories, texts by name."""
    target: str
    measured: Floats
    """What is to be predicted, above 0; seconds as a rule."""
    lines: tuple[int, ...]
    """Line of each row in its file, the header being 1."""

    def __len__(self) -> int:
        return len(self.measured)

    def take(self, rows: Ints) -> Points:
        """Some of the rows."""
        return Points(
            columns={name: column[rows] for name, column in self.columns.items()},
            target=self.target,
            measured=self.measured[rows],
            lines=tuple(self.lines[row] for row in rows),
        )

    @property
    def configurations(self) -> Ints:
        """Number of the configuration of each row: rows equal in every column are repeats of one."""
        keys = [
            tuple(row) for row in zip(*(column.tolist() for column in self.columns.values()), strict=True)
        ]
        numbers = {key: index for index, key in enumerate(dict.fromkeys(keys))}
        return np.array([numbers[key] for key in keys], dtype=np.intp)


def read_csv(path: str | Path) -> tuple[list[dict[str, str]], tuple[int, ...]]:
    """Rows of a CSV with a header, and their line numbers.

    Raises:
        CorpusError: If the file cannot be read, has no header, or a row has another number of cells.
    """
    try:
        with open_input_text(path, encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows, lines = [], []
            for cells in reader:
                if not cells:
                    continue
                if len(cells) != len(header):
                    raise CorpusError(
                        f"{path}, line {reader.line_num}: {len(cells)} cells under {len(header)} headings. "
                        "To fix: write one cell per column."
                    )
                rows.append(dict(zip(header, cells, strict=True)))
                lines.append(reader.line_num)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{path} cannot be read: {error}. To fix: check the path.") from error
    if not header:
        raise CorpusError(f"{path} is empty. To fix: name a CSV whose first line is a header.")
    return rows, tuple(lines)


def points_of(
    rows: Sequence[Mapping[str, str]],
    lines: Sequence[int],
    *,
    target: str,
    columns: Sequence[str],
    categories: Sequence[str] = (),
    further: Sequence[str] = (),
    where: Mapping[str, Sequence[str]] | None = None,
) -> Points:
    """Checked points of the rows of a CSV.

    Args:
        rows: Cells by column.
        lines: Line of each row in its file.
        target: Column to predict, above 0 in every row.
        columns: Numeric columns to learn from.
        categories: Columns of texts to learn from.
        further: Columns that are carried along as texts (for the grey box), and not learned from.
        where: Column to the words that a row must have there to be kept.

    Raises:
        UnknownNameError: If a column is not in the CSV.
        ConfigError: If too few rows are left, or a column to learn from is constant.
        CorpusError: If a cell is empty or no finite number, or a target is not above 0.
    """
    header = list(rows[0]) if rows else []
    for name in (target, *columns, *categories, *further, *(where or {})):
        if rows and name not in header:
            raise UnknownNameError(
                kind="column", name=name, known=header, hint=f"The data have {', '.join(header)}."
            )
    kept = [
        index
        for index, row in enumerate(rows)
        if all(row[name] in words for name, words in (where or {}).items())
    ]
    if len(kept) < LEAST_ROWS:
        rule = f" after `where` ({len(rows)} in all)" if where else ""
        raise ConfigError(
            f"{len(kept)} rows{rule}, but a model needs at least {LEAST_ROWS}. To fix: measure more points."
        )
    numbered = [lines[index] for index in kept]
    read: dict[str, Column] = {
        name: _numbers([rows[index][name] for index in kept], name, numbered) for name in columns
    }
    read |= {name: np.array([rows[index][name] for index in kept], dtype=object) for name in categories}
    for name, column in read.items():
        if len(set(column.tolist())) == 1:
            raise ConfigError(
                f"The column {name} is {column[0]} in all {len(kept)} rows: nothing can be learned from it. "
                "To fix: remove it, or measure points that differ in it."
            )
    read |= {
        name: np.array([rows[index][name] for index in kept], dtype=object)
        for name in further
        if name not in read
    }
    measured = _numbers([rows[index][target] for index in kept], target, numbered)
    if (measured <= 0.0).any():
        first = int(np.flatnonzero(measured <= 0.0)[0])
        raise CorpusError(
            f"Line {numbered[first]}: {target} = {measured[first]:g}, but a time is above 0. "
            "To fix: correct or remove the row."
        )
    return Points(columns=read, target=target, measured=measured, lines=tuple(numbered))


def _numbers(cells: Sequence[str], name: str, lines: Sequence[int]) -> Floats:
    values = np.empty(len(cells))
    for index, cell in enumerate(cells):
        try:
            values[index] = float(cell)
        except ValueError:
            values[index] = math.nan
        if not math.isfinite(values[index]):
            given = "is empty" if not cell.strip() else f"= {cell!r}"
            raise CorpusError(
                f"Line {lines[index]}: {name} {given}, but it must be a finite number. "
                "To fix: correct or remove the row (`where`)."
            )
    return values


def row_columns(
    rows: Sequence[Mapping[str, Any]], numeric: Sequence[str], words: Sequence[str]
) -> dict[str, Column]:
    """Columns of rows given to a fitted model, checked as those of a CSV.

    Raises:
        ConfigError: If a row lacks a column, or a value is not a finite number.
    """
    columns: dict[str, Column] = {}
    for name in (*numeric, *words):
        for number, row in enumerate(rows, start=1):
            if name not in row:
                raise ConfigError(
                    f"Row {number} lacks {name}. To fix: give {', '.join((*numeric, *words))}, all of them."
                )
    for name in numeric:
        cells = [str(row[name]) for row in rows]
        try:
            columns[name] = _numbers(cells, name, range(1, len(rows) + 1))
        except CorpusError as error:
            raise ConfigError(str(error).replace("Line", "Row", 1)) from error
    for name in words:
        columns[name] = np.array([str(row[name]) for row in rows], dtype=object)
    return columns
