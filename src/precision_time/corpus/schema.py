"""Reading measurement CSVs: what a file must look like before anything is made of its rows."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import CorpusError, nearest_names, shown
from ..io import open_input_text, packaged_toml
from ..records import dataclass
from ..request.schema import ALIASES, MOVED

_TABLE = packaged_toml(__package__, "data/columns.toml")
COLUMNS: list[str] = _TABLE["columns"]
REQUIRED: list[str] = _TABLE["required"]
_OWN = {**ALIASES, **MOVED}
OPTION_OF: dict[str, str] = {column: _OWN[column] for column in COLUMNS if column in _OWN}
"""Column -> the field of a request that is the same."""
OPTION_COLUMNS: list[str] = [OPTION_OF.get(column, column) for column in COLUMNS]
"""The columns under the names of options, as this package writes what it measures."""
_TIME_COLUMNS: list[str] = _TABLE["time"]
_CSV_FIELD_LIMIT = 2**20
_BY_FIELD = {_OWN.get(column, column): column for column in COLUMNS}


def column_of(name: str) -> str:
    """The column that a header names: as it is, or as the field of a request is called.

    >>> column_of("gpus"), column_of("batch_size"), column_of("devices")
    ('devices', 'batch_per_device', 'devices')
    """
    return _BY_FIELD.get(_OWN.get(name, name), name)


@dataclass(frozen=True, slots=True)
class Row:
    """The cells of one line, read strictly."""

    number: int
    """Line in the file where the row ends, the header being 1."""
    path: str
    cells: Mapping[str, str]
    curated: bool = False
    """Of our own corpus: the rules of data/curation.toml hold for it, too."""

    def text(self, column: str) -> str:
        """The cell; empty where the column or the value is missing."""
        return self.cells.get(column, "")

    def with_cells(self, **cells: str) -> Row:
        """This row with further or other cells."""
        return replace(self, cells={**self.cells, **cells})

    def number_or_none(self, column: str) -> float | None:
        """The cell as a finite number of at least 0, or None where it is empty.

        Raises:
            CorpusError: If it is anything else.
        """
        text = self.text(column)
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            raise self.error(column, "is not a number", "write a plain decimal number") from None
        if not math.isfinite(value):
            raise self.error(column, "is not a finite number", "leave the cell empty if unknown")
        if value < 0:
            raise self.error(column, "is negative", "leave the cell empty if unknown")
        return value

    def positive_or_none(self, column: str) -> float | None:
        """As `number_or_none`, but 0 is refused too."""
        value = self.number_or_none(column)
        if value == 0:
            raise self.error(column, "must be above 0", "leave the cell empty if unknown")
        return value

    def count_or_none(self, column: str) -> int | None:
        """The cell as a whole number of at least 1, or None where it is empty."""
        value = self.positive_or_none(column)
        if value is None:
            return None
        if not value.is_integer():
            raise self.error(column, "is not a whole number", "write a count such as 8")
        return int(value)

    def json_object(self, column: str) -> dict[str, Any]:
        """The cell as a JSON object; {} where it is empty."""
        if not self.text(column):
            return {}
        value = self._json(column)
        if not isinstance(value, dict):
            raise self.error(column, "is not a JSON object", 'write an object such as {"dp":8}')
        return value

    def value(self, column: str) -> Any:
        """The cell as text; objects and lists as JSON.

        Raises:
            CorpusError: If it begins like one and is none.
        """
        return self._json(column) if self.text(column).startswith(("{", "[")) else self.text(column)

    def _json(self, column: str) -> Any:
        try:
            return json.loads(self.text(column), parse_float=_finite, parse_constant=_finite)
        except (ValueError, RecursionError):
            raise self.error(
                column, "is not JSON of finite numbers", 'write an object such as {"dp":8}'
            ) from None

    def error(self, column: str, rule: str, fix: str) -> CorpusError:
        """The error for a cell that breaks `rule`."""
        cell = shown(self.text(column))
        return CorpusError(f"{self.path}, line {self.number}: {column}={cell} {rule}. To fix: {fix}.")


def _finite(number: str) -> float:
    """A number of a JSON text, which may be too large for one.

    Raises:
        ValueError: If it is infinite, or none.
    """
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(number)
    return value


def read_rows(path: str | Path) -> Iterator[Row]:
    """The rows of a measurement CSV, in file order, under the names of the corpus.

    Raises:
        CorpusError: If the file cannot be read, is not UTF-8 text, is no CSV, lacks a required
            column, or ends in the middle of a row.
    """
    for row in read_raw_rows(path, required=True):
        yield in_corpus_columns(row)


def in_corpus_columns(row: Row) -> Row:
    """The row with every column under its name in the corpus."""
    return replace(row, cells={column_of(name): text for name, text in row.cells.items()})


def read_raw_rows(path: str | Path, *, required: bool = False) -> Iterator[Row]:
    """The rows of a CSV under the names of its own header.

    Args:
        path: Of the file.
        required: Refuse a file without the columns that a row of the corpus needs.

    Raises:
        CorpusError: As `read_rows`.
    """
    name = str(path)
    try:
        with open_input_text(path, encoding="utf-8-sig", newline="") as file:
            yield from rows_of_lines(file, name, required=required)
    except OSError as error:
        raise CorpusError(
            f"{name} cannot be read: {error.strerror}. To fix: check the path and its permissions."
        ) from error
    except UnicodeDecodeError as error:
        raise CorpusError(
            f"{name} is not UTF-8 text (byte {error.start}: {error.reason}). "
            "To fix: save the file as CSV in UTF-8."
        ) from error


def rows_of_lines(lines: Iterable[str], name: str, *, required: bool = False) -> Iterator[Row]:
    """The rows of a CSV, from its lines.

    Raises:
        CorpusError: As `read_rows`.
    """
    csv.field_size_limit(_CSV_FIELD_LIMIT)
    try:
        reader = csv.reader(lines, strict=True)
        header = [column.strip() for column in next(reader, [])]
        _check_header(name, header)
        if required:
            check_required(name, header, [*map(column_of, header)])
        for cells in reader:
            if not cells:
                continue
            _check_width(name, reader.line_num, header, cells)
            stripped = map(str.strip, cells)
            yield Row(number=reader.line_num, path=name, cells=dict(zip(header, stripped, strict=True)))
    except csv.Error as error:
        raise CorpusError(
            f"{name} is not a readable CSV: {error}. To fix: check for an unclosed quote or a truncated file."
        ) from error


def _check_header(name: str, header: list[str]) -> None:
    if not any(header):
        raise CorpusError(
            f"{name} is empty. To fix: write a header row with the columns of docs/reference/corpus.md."
        )
    if len(header) == 1 and any(mark in header[0] for mark in "\t;|"):
        raise CorpusError(
            f"{name}, line 1: the whole header is one cell ({header[0][:60]!r}); columns must be "
            "separated by commas. To fix: save the file with a comma as its delimiter."
        )
    known = [*map(column_of, header)]
    repeated = sorted({column for column in known if column and known.count(column) > 1})
    if repeated:
        raise CorpusError(
            f"{name}, line 1: column {repeated[0]!r} occurs twice, perhaps under "
            "two of its names. To fix: remove one of them."
        )


def check_required(name: str, header: list[str], known: list[str]) -> None:
    """Refuse a table that lacks what every row of the corpus has.

    Raises:
        CorpusError: Names the first column that is missing.
    """
    wanted = [column for column in REQUIRED if column not in known]
    if not any(column in known for column in _TIME_COLUMNS):
        wanted.append(" or ".join(_TIME_COLUMNS))
    if wanted:
        near = nearest_names(wanted[0], [column for column in header if column not in COLUMNS])
        guess = f" Is it spelled {near[0]!r} here?" if near else ""
        unit = ", in seconds or per second" if wanted[0].startswith(_TIME_COLUMNS[0]) else ""
        raise CorpusError(
            f"{name}, line 1: column {wanted[0]!r} is missing; the header has {len(header)} columns "
            f"({', '.join(header[:4])} ...).{guess} To fix: add the column{unit}."
        )


def _check_width(name: str, line: int, header: list[str], cells: list[str]) -> None:
    if len(cells) != len(header):
        raise CorpusError(
            f"{name}, line {line}: {len(cells)} cells where the header has {len(header)} "
            f"(first cell {cells[0][:60]!r}). To fix: complete the row, or quote cells that contain commas."
        )
