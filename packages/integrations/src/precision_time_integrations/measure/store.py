"""Where results are kept: CSV tables of `measure`, and the SQLite store of a campaign.

A CSV table grows by whole rows, each on the disk before the next trial starts. A campaign's store is SQLite:
a commit is atomic even where the process or the machine dies in it, readers may look while a campaign
writes, and the file carries its version. A trial that is measured again is one more row; readers see the last
row of each trial.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

from precision_time.corpus.schema import OPTION_COLUMNS, OPTION_OF
from precision_time.errors import CorpusError
from precision_time.io import open_input, open_input_text, read_input_bytes, table_cell

from .result import COLUMNS, SCHEMA_VERSION, TrialResult, read_results_csv

OP_COLUMNS = (
    "source", "device", "op", "dtype", "shape", "phase", "latency_ms",
    "repeats", "spread", "timed", "framework_version",
)  # fmt: skip
"""The seven columns of operator tables, and how the figure came about."""
FAILURE_COLUMNS = ("source", "device", "point", "reason")
_APPLICATION_ID = 0x50544350
"""Marks the SQLite file as a campaign's store ("PTCP")."""
_WAIT_S = 10.0
_MAGIC = b"SQLite format 3\x00"
_TYPES = {"str": "TEXT", "int": "INTEGER", "float": "REAL"}
_COLUMN_TYPES = {item.name: _TYPES.get(str(item.type).split()[0], "TEXT") for item in fields(TrialResult)}


class NotStoredError(CorpusError):
    """A result was measured and cannot be stored. The message holds all of it, however long it is."""

    def __init__(self, message: str) -> None:
        Exception.__init__(self, message)


class CsvTable:
    """A CSV file that grows by whole rows. What it held before is never deleted."""

    def __init__(self, path: Path, columns: Sequence[str], names: Mapping[str, str] | None = None) -> None:
        """Open `path`, or start it; `names` are what cells are called that are called otherwise here.

        A last row without its line end is completed where it has all columns; a line that a crash cut off is
        moved to the file `path` + ".torn".

        Raises:
            CorpusError: If the file has other columns (it is left as it is) or cannot be read or written.
        """
        self.path = path
        self.columns = tuple(columns)
        self._names = names or {}
        with self._errors():
            path.parent.mkdir(parents=True, exist_ok=True)
            content = read_input_bytes(path) if path.exists() else b""
            self._check_header(content)
            if content and not content.endswith(b"\n"):
                content = self._end_last_line(content)
            if not content:
                self._append(self.columns)

    def _check_header(self, content: bytes) -> None:
        """Refuse a file of other columns before anything is written to it."""
        first, line_end, _ = content.partition(b"\n")
        written = ",".join(self.columns).encode()
        cut_off = not line_end and written.startswith(first)
        if content and not cut_off and tuple(next(csv.reader([first.decode()]), [])) != self.columns:
            raise CorpusError(
                f"{self.path} has other columns than this release writes. To fix: name another folder with "
                "--out."
            )

    def _end_last_line(self, content: bytes) -> bytes:
        """Complete the last line, or move it out of the file. Returns the content of whole lines."""
        whole = content.rfind(b"\n") + 1
        last = content[whole:]
        try:
            cells = next(csv.reader([last.decode()], strict=True), [])
        except (csv.Error, UnicodeDecodeError):
            cells = []
        complete = tuple(cells) == self.columns
        if whole and len(cells) == len(self.columns):
            above = next(csv.reader([content[:whole].splitlines()[-1].decode()]), [""])[-1]
            # A last cell that is the beginning of the one above it was most likely cut off.
            complete = cells[-1] == above or not above.startswith(cells[-1])
        if complete:
            self._write(self.path, b"\n")
            return content + b"\n"
        self._write(self.path.with_name(f"{self.path.name}.torn"), last + b"\n")
        os.truncate(self.path, whole)
        return content[:whole]

    def rows(self) -> Iterator[dict[str, str]]:
        """The rows so far, in file order."""
        with self._errors(), open_input_text(self.path, newline="") as file:
            yield from csv.DictReader(file)

    def add(self, cells: Mapping[str, object]) -> None:
        """Append one row; columns that are not given stay empty.

        Raises:
            ValueError: If a cell belongs to no column.
            NotStoredError: If it cannot be written. The message holds the row, so that it is not lost.
        """
        cells = {self._names.get(name, name): cell for name, cell in cells.items()}
        unknown = cells.keys() - set(self.columns)
        if unknown:
            raise ValueError(f"No column for {sorted(unknown)}.")
        row = [_text(cells.get(column)) for column in self.columns]
        try:
            self._append(row)
        except OSError as error:
            raise NotStoredError(
                f"{self.path} cannot be written: {error.strerror}. To fix: free disk space or correct the "
                "permissions and run the same command again; every row before this one is kept. What was "
                f"measured: {_line(row)}"
            ) from error

    def _append(self, cells: Sequence[str]) -> None:
        self._write(self.path, f"{_line(cells)}\n".encode())

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        """Append to a file, on the disk when this returns; where that fails the file is as it was."""
        size = path.stat().st_size if path.exists() else None
        try:
            with path.open("ab") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            if size is not None:
                with suppress(OSError):
                    os.truncate(path, size)
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Errors of the file system and of the format as ours."""
        try:
            yield
        except OSError as error:
            raise CorpusError(
                f"{self.path} cannot be read and written: {error.strerror}. To fix: name a folder that you "
                "may write to with --out."
            ) from error
        except (UnicodeDecodeError, csv.Error) as error:
            raise CorpusError(
                f"{self.path} is not a CSV file in UTF-8: {error}. To fix: name another folder with --out."
            ) from error


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Inside the block no other process measures into a file; the hold ends with this one, however it ends.

    Raises:
        CorpusError: If another process has it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with open_input(path, most_bytes=None) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CorpusError(
                f"Another process is measuring into {path}. To fix: wait until it has ended, or name another "
                "file; both would measure the same."
            ) from None
        except OSError:  # a file system without locks
            pass
        yield


class CsvStore:
    """The three tables of one source below a folder, laid out like the published measurements."""

    def __init__(self, folder: Path, source: str) -> None:
        self.steps = CsvTable(folder / f"{source}.csv", OPTION_COLUMNS, OPTION_OF)
        self.ops = CsvTable(folder / "ops" / f"{source}.csv", OP_COLUMNS)
        self.failures = CsvTable(folder / "failures" / f"{source}.csv", FAILURE_COLUMNS)

    @property
    def files(self) -> dict[str, str]:
        """What a table holds -> its path."""
        tables = {"steps": self.steps, "ops": self.ops, "failures": self.failures}
        return {what: str(table.path) for what, table in tables.items()}

    def settled(self, *, retry_failed: bool = False) -> set[str]:
        """Keys of the trials that need no measuring again.

        Args:
            retry_failed: Trials that failed are to be measured again.
        """
        keys = {"|".join((r["op"], r["dtype"], r["phase"], r["shape"])) for r in self.ops.rows()}
        keys |= {row["run_id"] for row in self.steps.rows() if row["step_time_s"]}
        return keys if retry_failed else keys | {row["point"] for row in self.failures.rows()}


def _line(cells: Sequence[str]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(map(table_cell, cells))
    return text.getvalue()


def _text(value: object) -> str:
    """A cell; line breaks become blanks, so that a row is a line."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split())


class CampaignStore:
    """The store of a campaign, open for writing."""

    def __init__(self, path: str | Path) -> None:
        """Open the file, or start it.

        Raises:
            CorpusError: If it is something else, was written by a newer version, or cannot be written.
        """
        self.path = Path(path)
        with _store_errors(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size and not _is_sqlite(self.path):
                raise _not_a_store(self.path)
            self._connection = sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)
            self._connection.execute("PRAGMA synchronous = FULL")
            if _version(self._connection, self.path) == 0:
                self._create()
            self._add_columns()
            # A file that may only be read is noticed here, not after the first trial.
            self._connection.executescript("BEGIN IMMEDIATE; ROLLBACK;")

    def _create(self) -> None:
        columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMN_TYPES.items())
        self._connection.executescript(
            f"BEGIN IMMEDIATE; CREATE TABLE points (id INTEGER PRIMARY KEY, {columns});"
            f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )

    def _add_columns(self) -> None:
        """Give a store of an older release the columns that came later; its results have none of them."""
        missing = [name for name in COLUMNS if name not in _columns_of(self._connection)]
        if missing:
            added = "".join(
                f"ALTER TABLE points ADD COLUMN {name} {_COLUMN_TYPES[name]};" for name in missing
            )
            self._connection.executescript(
                f"BEGIN IMMEDIATE; {added} PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
            )

    def add(self, result: TrialResult) -> None:
        """Append one result; it is on the disk when this returns.

        Raises:
            NotStoredError: If it cannot be written. The message holds the whole result.
        """
        values = [_sqlite_value(value) for value in result.to_dict().values()]
        marks = ", ".join("?" * len(COLUMNS))
        try:
            self._connection.execute(f"INSERT INTO points ({', '.join(COLUMNS)}) VALUES ({marks})", values)
        except sqlite3.Error as error:
            raise NotStoredError(
                f"{result.key}#{result.repeat} was measured and cannot be stored in {self.path}: {error}. "
                "To fix: free disk space or correct the permissions and run the same command again. "
                "Every trial before it is kept. What was measured: "
                f"{json.dumps(result.to_dict(), separators=(',', ':'))}"
            ) from error

    def results(self) -> list[TrialResult]:
        """The results so far, the last of each trial, in the order of the first."""
        with _store_errors(self.path):
            return _results(self._connection)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> CampaignStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_store(path: str | Path) -> list[TrialResult]:
    """The results in a campaign's store, or in a CSV that `campaign export` wrote; failed ones too.

    Raises:
        CorpusError: If there is no such file, or it is neither, or a newer version wrote it.
    """
    path = Path(path)
    if not os.path.isfile(path):
        raise CorpusError(f"There is no campaign store {path}. To fix: check the path.")
    with _store_errors(path):
        if not _is_sqlite(path):
            return read_results_csv(path)
        address = f"{path.resolve().as_uri()}?mode=ro"
        with closing(sqlite3.connect(address, uri=True, timeout=_WAIT_S)) as connection:
            return _results(connection) if _version(connection, path) else []


def _results(connection: sqlite3.Connection) -> list[TrialResult]:
    latest: dict[tuple[str, int], TrialResult] = {}
    columns = _columns_of(connection)
    for row in connection.execute(f"SELECT {', '.join(columns)} FROM points ORDER BY id"):
        values = {name: value for name, value in zip(columns, row, strict=True) if value is not None}
        result = TrialResult.from_dict(values)
        latest[result.identity] = result
    return list(latest.values())


def _columns_of(connection: sqlite3.Connection) -> list[str]:
    """Those of ours that a store has; an older release wrote fewer."""
    there = {name for _, name, *_ in connection.execute("PRAGMA table_info(points)")}
    return [name for name in COLUMNS if name in there]


def _sqlite_value(value: Any) -> Any:
    return json.dumps(value, separators=(",", ":")) if isinstance(value, (list, dict)) else value


def _is_sqlite(path: Path) -> bool:
    with open_input(path, most_bytes=None) as file:
        return file.read(len(_MAGIC)) == _MAGIC


def _not_a_store(path: Path) -> CorpusError:
    return CorpusError(f"{path} is not a campaign store. To fix: name another file with --store.")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a store; 0 for an empty file."""
    [[version]] = connection.execute("PRAGMA user_version")
    [[application]] = connection.execute("PRAGMA application_id")
    [[tables]] = connection.execute("SELECT count(*) FROM sqlite_master")
    if application not in (0, _APPLICATION_ID) or (application == 0 and tables):
        raise _not_a_store(path)
    if version > SCHEMA_VERSION:
        raise CorpusError(
            f"{path} was written by a newer precision-time (store version {version}; this release reads up "
            f"to {SCHEMA_VERSION}). To fix: upgrade precision-time, or use another --store."
        )
    return int(version)


@contextmanager
def _store_errors(path: Path) -> Iterator[None]:
    """Errors of the file system and of SQLite as ours."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise CorpusError(
            f"The campaign store {path} cannot be used: {error}. To fix: check the path, its permissions and "
            "the space on its disk."
        ) from error
