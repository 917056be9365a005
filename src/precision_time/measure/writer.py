"""Finished points into CSV files, one line at a time: what is measured stays measured."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..corpus.schema import COLUMNS
from ..errors import CorpusError

OP_COLUMNS = (
    "source", "device", "op", "dtype", "shape", "phase", "latency_ms",
    "repeats", "spread", "timed", "framework_version",
)  # fmt: skip
"""The seven columns of operator tables, and how the figure came about."""
FAILURE_COLUMNS = ("source", "device", "point", "reason")


class Table:
    """A CSV file that grows by whole rows, each on the disk before the next point starts."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        """Open `path`, or start it; a last line that was cut off is taken away.

        Raises:
            CorpusError: If the file has other columns or cannot be written.
        """
        self.path = path
        self.columns = tuple(columns)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _cut_torn_line(path)
            if not path.exists() or path.stat().st_size == 0:
                self._append(self.columns)
        except OSError as error:
            raise CorpusError(
                f"{path} cannot be written: {error.strerror}. To fix: name a folder of your own with --out."
            ) from error
        with path.open(encoding="utf-8", newline="") as file:
            header = next(csv.reader(file), [])
        if tuple(header) != self.columns:
            raise CorpusError(
                f"{path} has other columns than this release writes. To fix: name another folder with --out."
            )

    def rows(self) -> Iterator[dict[str, str]]:
        """The rows so far, in file order."""
        with self.path.open(encoding="utf-8", newline="") as file:
            yield from csv.DictReader(file)

    def add(self, cells: Mapping[str, object]) -> None:
        """Append one row; columns that are not given stay empty.

        Raises:
            ValueError: If a cell belongs to no column.
        """
        unknown = cells.keys() - set(self.columns)
        if unknown:
            raise ValueError(f"No column for {sorted(unknown)}.")
        self._append([_text(cells.get(column)) for column in self.columns])

    def _append(self, cells: Sequence[str]) -> None:
        with self.path.open("a", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerow(cells)
            file.flush()
            os.fsync(file.fileno())


class Tables:
    """The three files of one source below a folder, laid out like the published measurements."""

    def __init__(self, folder: Path, source: str) -> None:
        self.steps = Table(folder / f"{source}.csv", COLUMNS)
        self.ops = Table(folder / "ops" / f"{source}.csv", OP_COLUMNS)
        self.failures = Table(folder / "failures" / f"{source}.csv", FAILURE_COLUMNS)

    def done(self, *, failed_too: bool = True) -> set[str]:
        """Keys of the points that need no measuring again.

        Args:
            failed_too: Points that failed count as done.
        """
        failed = {row["point"] for row in self.failures.rows()}
        keys = {"|".join((r["op"], r["dtype"], r["phase"], r["shape"])) for r in self.ops.rows()}
        keys |= {row["run_id"] for row in self.steps.rows() if row["step_time_s"]}
        return keys | failed if failed_too else keys


def _text(value: object) -> str:
    """A cell; line breaks become blanks, so that a row is a line."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    return " ".join(str(value).split())


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("rb+") as file:
            file.truncate(content.rfind(b"\n") + 1)
