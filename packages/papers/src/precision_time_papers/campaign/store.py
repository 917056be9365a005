"""The store of a campaign: SQLite, whose commits are atomic even where the machine dies in one.

Readers may look while a campaign writes, and the file carries its version. A trial that is measured again is
one more row; readers see the last row of each trial.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from precision_time.errors import CorpusError
from precision_time.io import open_input
from precision_time_integrations.measure.store import NotStoredError

from .result import COLUMNS, SCHEMA_VERSION, TrialResult, read_results_csv

_APPLICATION_ID = 0x50544350
"""Marks the SQLite file as a campaign's store ("PTCP")."""
_WAIT_S = 10.0
_MAGIC = b"SQLite format 3\x00"
_TYPES = {"str": "TEXT", "int": "INTEGER", "float": "REAL"}
_COLUMN_TYPES = {item.name: _TYPES.get(str(item.type).split()[0], "TEXT") for item in fields(TrialResult)}


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
            # Looked at and made in one turn: another process may be starting the same store. A file that may
            # only be read is noticed here, not after the first trial.
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._prepare(self._connection.execute)
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.close()
                raise

    def _prepare(self, run: Callable[[str], Any]) -> None:
        """Make the table of a new store; give that of an older release the columns that came later."""
        if (version := _version(self._connection, self.path)) == 0:
            columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMN_TYPES.items())
            run(f"CREATE TABLE points (id INTEGER PRIMARY KEY, {columns})")
            run(f"PRAGMA application_id = {_APPLICATION_ID}")
        for name in [name for name in COLUMNS if name not in _columns_of(self._connection)]:
            run(f"ALTER TABLE points ADD COLUMN {name} {_COLUMN_TYPES[name]}")
        if version < SCHEMA_VERSION:
            run(f"PRAGMA user_version = {SCHEMA_VERSION}")

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
