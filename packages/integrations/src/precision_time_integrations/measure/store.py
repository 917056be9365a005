"""CSV tables of `measure`: they grow by whole rows, each on the disk before the next trial starts."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from precision_time.corpus.schema import OPTION_COLUMNS, OPTION_OF
from precision_time.errors import CorpusError
from precision_time.io import open_input, open_input_text, read_input_bytes, table_cell

OP_COLUMNS = (
    "source", "device", "op", "dtype", "shape", "phase", "latency_ms",
    "repeats", "spread", "timed", "framework_version",
)  # fmt: skip
"""The seven columns of operator tables, and how the figure came about."""
FAILURE_COLUMNS = ("source", "device", "point", "reason")


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
