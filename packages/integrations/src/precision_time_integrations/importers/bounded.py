"""Files of other programs, read within bounds: no pipes or devices, and no more than a stated size.

A link that a user names is read; readers of folders pass over links in them (`is_regular`, `is_folder`).
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import os
import re
import sqlite3
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from precision_time.errors import CorpusError
from precision_time.io import read_yaml

from .contract import MOST_STEPS, unreadable

SMALL_BYTES = 16 * 1024 * 1024
"""Of a file that is read at once: a configuration, a table."""
_LARGE_BYTES = 8 * 1024**3
"""Of a file that is read in pieces, once it is unpacked."""
_USUAL_RATIO = 200
"""JSON and text shrink by less than this in gzip; a file made to fill a disk shrinks by a thousand."""
_RATIO_FROM_BYTES = 64 * 1024**2
_PIECE_BYTES = 1024 * 1024
_MOST_VALUE_BYTES = 64 * 1024**2
_SQL_PIECE = 100_000
_MOST_SQL_PIECES = 200_000
"""Instructions of SQLite's machine that one query may take, in pieces."""
_NO_SPACE = re.compile(r"[^ \t\r\n]")
_GZIP = b"\x1f\x8b"
_SQLITE = b"SQLite format 3\x00"


def is_regular(path: Path) -> bool:
    """Whether a path is a file itself: no symbolic link, folder, pipe or device."""
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except OSError:
        return False


def is_folder(path: Path) -> bool:
    """Whether a path is a folder itself, no symbolic link to one."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError:
        return False


def _check_regular(path: Path) -> None:
    """Refuse what is no file, before it is opened: a pipe would wait for ever.

    Raises:
        CorpusError: If it is none, or not there.
    """
    try:
        regular = stat.S_ISREG(os.stat(path).st_mode)
    except OSError as error:
        raise unreadable(path, f"cannot be read: {error.strerror or error}", "check the path") from error
    if not regular:
        raise unreadable(path, "is no regular file", "name one")


def names_in(folder: Path, *, most: int = 100_000) -> list[str]:
    """Names in a folder, sorted; empty where it cannot be listed.

    Raises:
        CorpusError: If there are more than `most`.
    """
    names: list[str] = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) > most:
                raise unreadable(folder, f"holds more than {most:,} files", "name one run in it")
    return sorted(names)


def small_text(path: Path, *, most: int = SMALL_BYTES) -> str:
    """A whole text file; bytes that are not UTF-8 are replaced.

    Raises:
        CorpusError: If it is no regular file, larger than `most`, or cannot be read.
    """
    _check_regular(path)
    try:
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise unreadable(path, f"cannot be read: {error.strerror or error}", "check the path") from error
    if len(content) > most:
        raise unreadable(path, f"is larger than {most // 1024:,} KiB", "name a file of the stated kind")
    return content.decode("utf-8-sig", errors="replace")


def small_json(path: Path) -> Any:
    """A whole JSON file.

    Raises:
        CorpusError: If it is none, or as `small_text`.
    """
    try:
        return json.loads(small_text(path))
    except (ValueError, RecursionError) as error:
        raise unreadable(path, f"is no JSON: {error}", "check that it is complete") from error


def small_yaml(path: Path) -> Any:
    """A whole YAML file: plain values only, aliases counted.

    Raises:
        CorpusError: If it is none, or as `small_text`.
    """
    try:
        return read_yaml(small_text(path, most=1024 * 1024))
    except (ValueError, RecursionError) as error:
        raise unreadable(path, f"is no YAML: {error}", "check that it is complete") from error


def opened(path: Path) -> IO[bytes]:
    """A regular file for reading, unpacked where it is gzip.

    Raises:
        CorpusError: If it is no regular file or cannot be read.
    """
    _check_regular(path)
    try:
        with path.open("rb") as file:
            packed = file.read(2) == _GZIP
        return cast("IO[bytes]", gzip.open(path)) if packed else path.open("rb")
    except OSError as error:
        raise unreadable(path, f"cannot be read: {error.strerror or error}", "check the path") from error


def pieces(path: Path) -> Iterator[str]:
    """The text of a file piece by piece, unpacked where it is gzip.

    Raises:
        CorpusError: If it cannot be read, is cut, or unpacks to far more than such files do.
    """
    size = path.stat().st_size if path.exists() else 0
    total = 0
    with opened(path) as file:
        while True:
            try:
                piece = file.read(_PIECE_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise unreadable(path, f"is damaged gzip: {error}", "copy it again") from error
            except OSError as error:
                raise unreadable(path, f"cannot be read: {error.strerror or error}", "check it") from error
            if not piece:
                return
            total += len(piece)
            if total > min(_LARGE_BYTES, max(_RATIO_FROM_BYTES, _USUAL_RATIO * size)):
                raise unreadable(
                    path,
                    f"unpacks to more than {total // 1024**2:,} MiB from {size:,} bytes, as no trace does",
                    "record fewer steps",
                )
            yield piece.decode("utf-8", errors="replace")


def unpacked_head(head: bytes) -> bytes:
    """The first bytes of a file as they read once unpacked; must not raise."""
    if not head.startswith(_GZIP):
        return head
    try:
        return zlib.decompressobj(wbits=31).decompress(head, 64 * 1024)
    except zlib.error:
        return b""


class JsonStream:
    """The top level of a large JSON file, value by value: its one long list is never held whole.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pieces = pieces(path)
        self._text = ""
        self._at = 0
        self._ended = False
        self._decode = json.JSONDecoder().raw_decode

    def entries(self, long_list: str) -> Iterator[tuple[str | None, Any]]:
        """The entries of the object by key, those of `long_list` one by one under the key None.

        A file that is a list itself is read as that list.

        Raises:
            CorpusError: If it is no JSON, ends in the middle, or has a single value of more than 64 MiB.
        """
        start = self._next()
        if start == "[":
            yield from ((None, item) for item in self._items())
            return
        if start != "{":
            raise unreadable(self._path, "is no JSON object or list", "name a trace")
        while (mark := self._next()) != "}":
            if mark == ",":
                continue
            if mark != '"':
                raise self._broken()
            self._at -= 1
            key = self._value()
            if self._next() != ":":
                raise self._broken()
            if key == long_list and self._peek() == "[":
                self._at += 1
                yield from ((None, item) for item in self._items())
            else:
                yield str(key), self._value()

    def _items(self) -> Iterator[Any]:
        while (mark := self._next()) != "]":
            if mark != ",":
                self._at -= 1
                yield self._value()

    def _more(self) -> bool:
        if self._ended:
            return False
        piece = next(self._pieces, None)
        if piece is None:
            self._ended = True
            return False
        self._text, self._at = self._text[self._at :] + piece, 0
        return True

    def _peek(self) -> str:
        """The next character that is no white space, left where it is."""
        while True:
            if found := _NO_SPACE.search(self._text, self._at):
                self._at = found.start()
                return self._text[self._at]
            self._at = len(self._text)
            if not self._more():
                raise self._broken()

    def _next(self) -> str:
        mark = self._peek()
        self._at += 1
        return mark

    def _value(self) -> Any:
        self._peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except RecursionError as error:
                raise unreadable(self._path, "is nested too deeply", "name a trace") from error
            except ValueError as error:
                # Cut by the end of the piece, or no JSON at all: only more text can tell.
                if len(self._text) - self._at > _MOST_VALUE_BYTES or not self._more():
                    raise self._broken() from error
                continue
            # A number may go on in the next piece.
            if end < len(self._text) or not self._more():
                self._at = end
                return value

    def _broken(self) -> CorpusError:
        return unreadable(self._path, "is no JSON, or is cut in the middle", "copy or record it again")


def csv_rows(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV with a header, at most a million.

    Raises:
        CorpusError: If it cannot be read or is none.
    """
    _check_regular(path)
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            for number, row in enumerate(csv.DictReader(file, restval="")):
                if number >= MOST_STEPS:
                    raise unreadable(path, f"has more than {MOST_STEPS:,} rows", "name a shorter table")
                yield {str(name): str(cell) for name, cell in row.items() if name}
    except (OSError, csv.Error) as error:
        raise unreadable(path, f"is no CSV: {error}", "check it") from error


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The objects of a file with one JSON object a line; a last line that is cut is left out.

    Raises:
        CorpusError: If it cannot be read, or a line before the last is no JSON object.
    """
    _check_regular(path)
    bad = 0
    try:
        with path.open("rb") as file:
            number = 0
            while line := file.readline(_MOST_VALUE_BYTES):
                number += 1
                if bad or number > MOST_STEPS:
                    what = f"line {bad} is no JSON object" if bad else f"has more than {MOST_STEPS:,} lines"
                    raise unreadable(path, what, "name a file with one JSON object a line")
                try:
                    found = json.loads(line) if line.strip() else {}
                except (ValueError, RecursionError):
                    found = None
                if isinstance(found, dict):
                    yield found
                else:
                    bad = number
    except OSError as error:
        raise unreadable(path, f"cannot be read: {error.strerror or error}", "check it") from error


@contextlib.contextmanager
def database(path: Path) -> Iterator[sqlite3.Connection]:
    """An SQLite file, opened to be read only, with a bound on what a query may take.

    Raises:
        CorpusError: If it is no database, is damaged, or a query takes too long.
    """
    _check_regular(path)
    passed = 0

    def stop() -> int:
        nonlocal passed
        passed += 1
        return int(passed > _MOST_SQL_PIECES)

    try:
        name = path.resolve().as_uri() + "?mode=ro"
        with contextlib.closing(sqlite3.connect(name, uri=True)) as connection:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA query_only = ON")
            connection.set_progress_handler(stop, _SQL_PIECE)
            connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
            yield connection
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the second of names of tables and columns
        raise unreadable(
            path, f"is no SQLite database, or is damaged: {error}", "copy it again while nothing writes to it"
        ) from error


def tables_of(path: Path, head: bytes) -> set[str]:
    """Names of the tables of an SQLite file; empty for any other. Must not raise."""
    if not head.startswith(_SQLITE):
        return set()
    try:
        with database(path) as connection:
            found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' LIMIT 10000")
            return {str(name) for (name,) in found}
    except CorpusError:
        return set()


def columns_of(connection: sqlite3.Connection, table: str) -> set[str]:
    """Names of the columns of a table; empty where there is no such table."""
    return {str(name) for (name,) in connection.execute("SELECT name FROM pragma_table_info(?)", (table,))}
