"""Measurements in one SQLite file: the shipped corpus, read only, or the user's own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Self

from ..cache import clear, data
from ..errors import CorpusError
from ..forks import in_forked_child, unforked
from ..io import data_folder, packaged
from .columns import COLUMNS, INTEGERS, REALS, SIDE, TEXTS, decode, to_json
from .measurement import Measurement, Rejected

SCHEMA_VERSION = 2
_COLUMNS_SINCE = {"peak_memory_bytes": 2}
"""Columns that older versions lack: they read as unknown."""
_OLDER = range(1, SCHEMA_VERSION)
_APPLICATION_ID = 0x50544D45


def _schema() -> str:
    sides = [f"{name} INTEGER NOT NULL REFERENCES text(id)" for name in SIDE]
    integers = [f"{name} INTEGER" for name in INTEGERS]
    reals = [f"{name} REAL" for name in REALS]
    columns = ",\n  ".join([*sides, *integers, *reals, "configuration_key BLOB NOT NULL"])
    return f"""
CREATE TABLE text (id INTEGER PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE measurement (
  id INTEGER PRIMARY KEY,
  {columns}
) STRICT;
CREATE INDEX measurement_model ON measurement (model, device);
CREATE TABLE rejected (
  id INTEGER PRIMARY KEY, row_number INTEGER NOT NULL, reason TEXT NOT NULL, source TEXT NOT NULL,
  source_ref TEXT NOT NULL, model TEXT NOT NULL
) STRICT;
CREATE TABLE source (
  name TEXT PRIMARY KEY, rows INTEGER NOT NULL, usable INTEGER NOT NULL, rejected INTEGER NOT NULL
) STRICT;
"""


class MeasurementStore:
    """An SQLite file of measurements. Use as a context manager, or `close` it.

    A store that is open read only serves all threads, one query at a time.
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        """Open `path`, creating it where it does not exist and may be written.

        Raises:
            CorpusError: If it is missing (read only), not such a store, or of a newer version.
        """
        self.path = Path(path)
        self.read_only = read_only
        self._missing: frozenset[str] = frozenset()
        if read_only and not self.path.is_file():
            raise CorpusError(f"There is no measurement store at {self.path}. To fix: check the path.")
        try:
            if not read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            mode = "ro&immutable=1" if read_only else "rwc"
            uri = f"{self.path.resolve().as_uri()}?mode={mode}"
            self._connection = sqlite3.connect(
                uri, uri=True, isolation_level=None, check_same_thread=not read_only
            )
        except (OSError, sqlite3.Error) as error:
            raise CorpusError(
                f"The measurement store {self.path} cannot be opened: {error}. To fix: check the path."
            ) from error
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise CorpusError(
                f"{self.path} is not a readable measurement store ({error}). To fix: restore or delete it."
            ) from error
        except CorpusError:
            self._connection.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    def _prepare(self) -> None:
        run = self._connection.execute
        application = run("PRAGMA application_id").fetchone()[0]
        version = run("PRAGMA user_version").fetchone()[0]
        empty = run("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        if empty and not self.read_only:
            self._connection.executescript(
                f"BEGIN;{_schema()}PRAGMA application_id={_APPLICATION_ID};"
                f"PRAGMA user_version={SCHEMA_VERSION};COMMIT;"
            )
        elif application != _APPLICATION_ID:
            raise CorpusError(
                f"{self.path} is an SQLite file, but no measurement store. To fix: name another file."
            )
        elif version in _OLDER:
            self._missing = frozenset(name for name, since in _COLUMNS_SINCE.items() if since > version)
            if not self.read_only:
                self._upgrade()
        elif version != SCHEMA_VERSION:
            newer = "newer" if version > SCHEMA_VERSION else "older"
            raise CorpusError(
                f"{self.path} has store version {version}, this release reads version {SCHEMA_VERSION}; "
                f"the file is {newer}. To fix: "
                + ("upgrade precision-time." if newer == "newer" else "import the measurements again.")
            )

    def _upgrade(self) -> None:
        """Bring an older file to this version; what it did not record stays unknown."""
        added = "".join(f"ALTER TABLE measurement ADD COLUMN {name} REAL;" for name in sorted(self._missing))
        self._connection.executescript(f"BEGIN;{added}PRAGMA user_version={SCHEMA_VERSION};COMMIT;")
        self._missing = frozenset()

    def add(
        self, measurements: Iterable[Measurement], *, rejected: Iterable[Rejected] = ()
    ) -> tuple[int, int]:
        """Store rows; either all of them or, on an error, none. Returns how many of each kind.

        Raises:
            CorpusError: If the store is read only or cannot be written.
        """
        if self.read_only:
            raise CorpusError(f"{self.path} is open read only. To fix: add to a local store.")
        run = self._connection.execute
        refused = list(rejected)
        try:
            run("BEGIN IMMEDIATE")
            ids = {value: key for key, value in run("SELECT id, value FROM text")}
            marks = ", ".join("?" * len(COLUMNS))
            insert = f"INSERT INTO measurement ({', '.join(COLUMNS)}) VALUES ({marks})"
            count = 0
            for measurement in measurements:
                run(insert, self._encode(measurement, ids))
                count += 1
            self._connection.executemany(
                "INSERT INTO rejected (row_number, reason, source, source_ref, model) VALUES (?, ?, ?, ?, ?)",
                [(row.row_number, row.reason, row.source, row.source_ref, row.model) for row in refused],
            )
            self._count_sources()
            run("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:
                run("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise CorpusError(
                    f"{self.path} could not be written: {error}. Nothing was stored. "
                    "To fix: check permissions and free space."
                ) from error
            raise
        return count, len(refused)

    def _encode(self, measurement: Measurement, ids: dict[str, int]) -> list[Any]:
        values: list[Any] = []
        for name in SIDE:
            value = getattr(measurement, name)
            text = value if name in TEXTS else to_json(value)
            if text not in ids:
                ids[text] = len(ids) + 1
                self._connection.execute("INSERT INTO text (id, value) VALUES (?, ?)", (ids[text], text))
            values.append(ids[text])
        values += [getattr(measurement, name) for name in (*INTEGERS, *REALS)]
        values.append(bytes.fromhex(measurement.configuration_key))
        return values

    def _count_sources(self) -> None:
        self._connection.execute("DELETE FROM source")
        self._connection.execute(
            """
            INSERT INTO source
            SELECT name, sum(measured), sum(usable), sum(refused) FROM (
              SELECT s.value AS name, 1 AS measured, q.value != 'unusable' AS usable, 0 AS refused
                FROM measurement JOIN text s ON s.id = source JOIN text q ON q.id = quality
              UNION ALL SELECT source, 0, 0, 1 FROM rejected
            ) GROUP BY name ORDER BY name
            """
        )

    def measurements(
        self,
        *,
        model: str | None = None,
        device: str | None = None,
        precision: str | None = None,
        source: str | None = None,
        usable_only: bool = False,
        limit: int | None = None,
    ) -> list[Measurement]:
        """The stored rows that match every filter given, in the order in which they were added."""
        wanted = {"model": model, "device": device, "precision": precision, "source": source}
        given = {name: value for name, value in wanted.items() if value is not None}
        conditions = [f"{name} = (SELECT id FROM text WHERE value = ?)" for name in given]
        if usable_only:
            conditions.append("measured_step_time_s IS NOT NULL")
            conditions.append("quality IS NOT (SELECT id FROM text WHERE value = 'unusable')")
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        return self._read(where, tuple(given.values()), limit=limit)

    def get(self, row_id: int) -> Measurement:
        """The row with this `row_id`.

        Raises:
            CorpusError: If there is none.
        """
        found = self._read("WHERE id = ?", (row_id,), limit=1)
        if not found:
            raise CorpusError(
                f"{self.path} has no row {row_id}. To fix: train the predictor on this corpus again."
            )
        return found[0]

    def _read(self, where: str, values: tuple[Any, ...], *, limit: int | None) -> list[Measurement]:
        columns = ", ".join("NULL" if name in self._missing else name for name in COLUMNS)
        query = f"SELECT {columns}, id FROM measurement {where} ORDER BY id"
        if limit is not None:
            query += f" LIMIT {int(limit)}"
        every = "SELECT id, value FROM text"
        try:
            rows = self._rows(query, values)
            texts = self._texts(rows) if where else dict(self._rows(every))
            return decode(rows, texts)
        except (sqlite3.Error, KeyError, ValueError, TypeError) as error:
            raise CorpusError(
                f"{self.path} is damaged: {error!r}. To fix: restore the file, or reinstall the package."
            ) from error

    def _texts(self, rows: Sequence[Sequence[Any]]) -> dict[int, str]:
        wanted = sorted({identity for row in rows for identity in row[: len(SIDE)]})
        found: dict[int, str] = {}
        for start in range(0, len(wanted), 500):
            part = wanted[start : start + 500]
            marks = ", ".join("?" * len(part))
            found.update(self._rows(f"SELECT id, value FROM text WHERE id IN ({marks})", part))
        return found

    def _rows(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with unforked:
            return self._connection.execute(query, values).fetchall()

    def rejected(self) -> list[Rejected]:
        """Rows that named no configuration, with the reason."""
        rows = self._rows("SELECT row_number, reason, source, source_ref, model FROM rejected ORDER BY id")
        return [
            Rejected(row_number=number, reason=reason, source=source, source_ref=reference, model=model)
            for number, reason, source, reference, model in rows
        ]

    def sources(self) -> dict[str, dict[str, int]]:
        """Rows, usable rows and rejected rows of every source."""
        rows = self._rows("SELECT name, rows, usable, rejected FROM source ORDER BY name")
        return {name: {"rows": n, "usable": usable, "rejected": refused} for name, n, usable, refused in rows}

    def __len__(self) -> int:
        """Stored measurements, usable or not."""
        return int(self._rows("SELECT count(*) FROM measurement")[0][0])


def shipped_store() -> MeasurementStore:
    """The corpus that comes with the package, read only."""
    return MeasurementStore(packaged(__package__, "data/corpus.sqlite"), read_only=True)


def corpus_store() -> MeasurementStore:
    """The shipped corpus, opened once and kept open for look-ups from any thread."""
    with unforked:
        return _kept_open()


@data
def _kept_open() -> MeasurementStore:
    return shipped_store()


in_forked_child(_kept_open, clear)


def corpus_fingerprint(measurements: Iterable[Measurement]) -> str:
    """Short hash of what a fit would see of these rows, in their order: configuration and step time."""
    import hashlib

    digest = hashlib.blake2b(digest_size=8)
    for row in measurements:
        digest.update(f"{row.configuration_key} {row.measured_step_time_s} {row.weight}\n".encode())
    return digest.hexdigest()


def local_store_path() -> Path:
    """Where the user's own measurements are: in $PRECISION_TIME_HOME, or the platform's data folder."""
    return data_folder() / "measurements.sqlite"


def load_corpus(*, local: bool = False) -> list[Measurement]:
    """All measurements of the shipped corpus; with `local`, the user's own after them."""
    with closing(shipped_store()) as store:
        rows = store.measurements()
    if local and local_store_path().is_file():
        with MeasurementStore(local_store_path(), read_only=True) as store:
            rows += store.measurements()
    return rows
