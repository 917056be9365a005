"""The store of a campaign: one SQLite file to which finished points are appended.

SQLite, not CSV: a commit is whole or not at all even where the process or the machine dies in it, readers may
look while a campaign writes, and the file carries its version. A point that is measured again is one more
row; readers see the last row of each.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

from ...errors import CorpusError
from .point import COLUMNS, SCHEMA_VERSION, FinishedPoint, read_points_csv

_APPLICATION_ID = 0x50544350
"""Marks the file as ours ("PTCP")."""
_WAIT_S = 10.0
_MAGIC = b"SQLite format 3\x00"
_TYPES = {"str": "TEXT", "int": "INTEGER", "float": "REAL"}


class CampaignStore:
    """A store, open for writing."""

    def __init__(self, path: str | Path) -> None:
        """Open the file, or start it.

        Raises:
            CorpusError: If it is something else, was written by a newer version, or cannot be written.
        """
        self.path = Path(path)
        with _told(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _check_magic(self.path)
            self._connection = sqlite3.connect(self.path, timeout=_WAIT_S, isolation_level=None)
            self._connection.execute("PRAGMA synchronous = FULL")
            if _version(self._connection, self.path) == 0:
                self._create()

    def _create(self) -> None:
        columns = ", ".join(
            f"{item.name} {_TYPES.get(str(item.type).split()[0], 'TEXT')}" for item in fields(FinishedPoint)
        )
        self._connection.executescript(
            f"BEGIN IMMEDIATE; CREATE TABLE points (id INTEGER PRIMARY KEY, {columns});"
            f"PRAGMA application_id = {_APPLICATION_ID}; PRAGMA user_version = {SCHEMA_VERSION}; COMMIT;"
        )

    def add(self, point: FinishedPoint) -> None:
        """Append one point; it is on the disk when this returns.

        Raises:
            CorpusError: If it cannot be written. The message holds the whole point, so that it is not lost.
        """
        values = [_cell(value) for value in point.to_dict().values()]
        marks = ", ".join("?" * len(COLUMNS))
        try:
            self._connection.execute(f"INSERT INTO points ({', '.join(COLUMNS)}) VALUES ({marks})", values)
        except sqlite3.Error as error:
            raise CorpusError(
                f"The point {point.key}#{point.repeat} was measured and cannot be stored in {self.path}: "
                f"{error}. To "
                "fix: make room on the disk and run the same command again; every point before it is kept. "
                "What was "
                f"measured: {json.dumps(point.to_dict(), separators=(',', ':'))}"
            ) from error

    def points(self) -> list[FinishedPoint]:
        """The last row of each point, in the order in which they were first stored."""
        with _told(self.path):
            return _read(self._connection)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> CampaignStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def read_store(path: str | Path) -> list[FinishedPoint]:
    """The points of a store, or of a CSV that `campaign export` wrote; failed ones too.

    Raises:
        CorpusError: If there is no such file, or it is neither, or a newer version wrote it.
    """
    path = Path(path)
    if not path.is_file():
        raise CorpusError(f"There is no campaign store {path}. To fix: check the path.")
    with _told(path):
        with path.open("rb") as file:
            is_sqlite = file.read(len(_MAGIC)) == _MAGIC
        if not is_sqlite:
            return read_points_csv(path)
        connection = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, timeout=_WAIT_S)
        try:
            if _version(connection, path) == 0:
                return []
            return _read(connection)
        finally:
            connection.close()


def _read(connection: sqlite3.Connection) -> list[FinishedPoint]:
    rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM points ORDER BY id")
    latest: dict[tuple[str, int], FinishedPoint] = {}
    for row in rows:
        values = {name: value for name, value in zip(COLUMNS, row, strict=True) if value is not None}
        point = FinishedPoint.from_dict(values)
        latest[point.identity] = point
    return list(latest.values())


def _cell(value: Any) -> Any:
    return json.dumps(value, separators=(",", ":")) if isinstance(value, (list, dict)) else value


def _check_magic(path: Path) -> None:
    if not path.exists() or path.stat().st_size == 0:
        return
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise CorpusError(f"{path} is no campaign store. To fix: name another file with --store.")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of a store; 0 for an empty file."""
    [[version]] = connection.execute("PRAGMA user_version")
    [[application]] = connection.execute("PRAGMA application_id")
    [[tables]] = connection.execute("SELECT count(*) FROM sqlite_master")
    if application not in (0, _APPLICATION_ID) or (application == 0 and tables):
        raise CorpusError(f"{path} is no campaign store. To fix: name another file with --store.")
    if version > SCHEMA_VERSION:
        raise CorpusError(
            f"{path} was written by a newer precision-time (store version {version}; this release reads up "
            f"to "
            f"{SCHEMA_VERSION}). To fix: upgrade precision-time, or use another --store."
        )
    return int(version)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Errors of the file system and of SQLite as ours."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise CorpusError(
            f"The campaign store {path} cannot be used: {error}. To fix: check the path, its permissions "
            f"and the "
            "space on its disk."
        ) from error
