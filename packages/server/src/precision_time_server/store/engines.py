"""Connections to the database behind a URL, and what its errors mean."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.pool import QueuePool

from precision_time.errors import required_module
from precision_time.forks import in_forked_child

from .errors import ReadOnlyStoreError, StoreError, StoreUnavailableError

APPLICATION_ID = 0x50545356
"""In the header of our SQLite files: "PTSV"."""
WAIT_S = 10.0
"""For another writer, a free connection, or a server that does not answer."""
_WAIT_IN_MEMORY_S = 60.0
_MEMORY = ":memory:"
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_READ_ONLY_STATES = {"25006", "42501"}
"""PostgreSQL: a read-only transaction, insufficient privilege."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Database:
    """Where a store is. Nothing that it says of itself holds a user or a password."""

    url: URL
    read_only: bool

    @property
    def file(self) -> Path | None:
        """The SQLite file; None in memory and for PostgreSQL."""
        if self.url.get_backend_name() != "sqlite" or self.url.database in (None, _MEMORY):
            return None
        return Path(str(self.url.database))

    def __str__(self) -> str:
        """For messages."""
        if self.url.get_backend_name() == "sqlite":
            return str(self.file or "in memory")
        return (
            f"postgresql://{self.url.host or 'localhost'}:{self.url.port or 5432}/{self.url.database or ''}"
        )

    __repr__ = __str__

    def engine(self) -> Engine:
        """Connections, checked before they are used."""
        if self.url.get_backend_name() == "sqlite":
            return _sqlite_engine(self)
        required_module(
            "psycopg", package="psycopg", extra="precision-time-server[postgres]", purpose="reach PostgreSQL"
        )
        usual = {"connect_timeout": "5", "application_name": "precision-time", "tcp_user_timeout": "15000"}
        engine = create_engine(
            self.url.update_query_dict({**usual, **self.url.query}),
            pool_pre_ping=True, pool_size=5, max_overflow=5, pool_timeout=WAIT_S, hide_parameters=True,
        )  # fmt: skip
        in_forked_child(engine, _start_anew)
        return engine


def _start_anew(engine: Engine) -> None:
    """In a forked child: connections of its own, and those of its parent left alone."""
    engine.dispose(close=False)


def database_of(text: str, *, read_only: bool) -> Database:
    """The database that a URL names.

    Raises:
        StoreError: If it names none that is supported. The URL is not repeated: it may hold a password.
    """
    rule = (
        "The rule: sqlite:///FILE, sqlite:// (in memory) or postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
        "with %40 for @, %2F for / and %3A for : in a password. To fix: correct the URL."
    )
    try:
        url = make_url(text)
    except (exc.ArgumentError, ValueError):
        raise StoreError(f"The store's URL cannot be read. {rule}") from None
    backend, _, driver = url.drivername.partition("+")
    if backend in {"postgresql", "postgres"} and driver in {"", "psycopg"}:
        return Database(url=url.set(drivername="postgresql+psycopg"), read_only=read_only)
    if backend != "sqlite" or driver not in {"", "pysqlite"}:
        raise StoreError(f"No store is kept in {url.drivername}. {rule}")
    if url.database == "" or url.query or url.host:
        raise StoreError(f"The store's URL names no file. {rule}")
    return Database(url=url, read_only=read_only)


def _sqlite_engine(database: Database) -> Engine:
    file = database.file
    engine = create_engine(
        "sqlite://", creator=lambda: _connected(database), poolclass=QueuePool,
        # In memory, each connection is a database of its own: there is one, which threads take in no order.
        pool_timeout=WAIT_S if file else _WAIT_IN_MEMORY_S,
        pool_size=5 if file else 1, max_overflow=15 if file else 0, hide_parameters=True,
    )  # fmt: skip

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that starts by reading could not wait for another writer later on.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    if file:
        in_forked_child(engine, _start_anew)

        @event.listens_for(engine, "checkout")
        def same_file(connection: Any, record: Any, _: Any) -> None:
            # A connection goes on writing into a file that was deleted, and all of it would be lost.
            del connection
            found = _identity(file)
            if record.info.setdefault("file", found) != found:
                raise exc.DisconnectionError

    return engine


def _identity(file: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _connected(database: Database) -> sqlite3.Connection:
    if database.file is None:
        connection = _opened(_MEMORY)
    elif not database.read_only:
        connection = _opened(f"{database.file.resolve().as_uri()}?mode=rw")
    else:
        connection = _opened_read_only(database.file)
    try:
        _configure(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    # What was answered survives a power cut: WAL with NORMAL would lose the last transactions.
    connection.execute("PRAGMA synchronous = FULL")


def _opened(address: str) -> sqlite3.Connection:
    return sqlite3.connect(
        address, uri=address != _MEMORY, timeout=WAIT_S, isolation_level=None, check_same_thread=False
    )


def _opened_read_only(file: Path) -> sqlite3.Connection:
    """Where the folder may not be written either, SQLite cannot make the index of its log."""
    address = f"{file.resolve().as_uri()}?mode=ro"
    connection = _opened(address)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        connection.close()
        if Path(f"{file}-wal").exists():
            raise
        return _opened(f"{address}&immutable=1")
    return connection


def claim_file(file: Path) -> None:
    """Make a file that is missing, and see that it is ours or empty before anything is written into it.

    Raises:
        StoreError: If it is another application's, or no database.
        sqlite3.Error: If it cannot be opened.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(_opened(f"{file.resolve().as_uri()}?mode=rwc")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        [[application]] = connection.execute("PRAGMA application_id")
        [[tables]] = connection.execute("SELECT count(*) FROM sqlite_master")
        if application != APPLICATION_ID:
            if application or tables:
                raise StoreError(
                    f"{file} is a database of another application. To fix: name another file for the store."
                )
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
        write_ahead(connection)


def write_ahead(connection: sqlite3.Connection) -> None:
    """Switch a file to a write-ahead log, after every other process that is in the middle of a transaction.

    SQLite waits here for readers only: beside a writer it says at once that the file is busy.

    Raises:
        sqlite3.OperationalError: If the file is still busy after `WAIT_S`.
    """
    end_s = time.monotonic() + WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _BUSY or time.monotonic() > end_s:
                raise
            time.sleep(0.01)


@contextmanager
def store_errors(database: Database) -> Iterator[None]:
    """Errors of the database, the driver and the file system in our words.

    Raises:
        StoreError: In place of them.
    """
    try:
        yield
    except exc.TimeoutError:
        raise StoreUnavailableError(
            f"The store {database} is busy: no connection was free within {WAIT_S:g} s. "
            "To fix: try again, or send fewer calls at once."
        ) from None
    except exc.DBAPIError as error:
        raise _translated(error.orig, database) from error
    except (sqlite3.Error, OSError) as error:
        raise _translated(error, database) from error
    except exc.SQLAlchemyError as error:
        raise StoreError(
            f"The store {database} cannot be used: {_said(error, database)}. To fix: check the URL."
        ) from None


def _translated(error: BaseException | None, database: Database) -> StoreError:
    said = _said(error, database)
    code = getattr(error, "sqlite_errorcode", None)
    code = None if code is None else code & 0xFF
    state = getattr(error, "sqlstate", None)
    if code in _BUSY:
        return StoreUnavailableError(
            f"The store {database} is busy: another process wrote for more than {WAIT_S:g} s. Nothing was "
            "stored. To fix: try again."
        )
    if code in _DAMAGED:
        return StoreError(
            f"{database} is damaged or no database ({said}). To fix: restore it from a backup, or name "
            "another file for the store."
        )
    if code == sqlite3.SQLITE_READONLY or state in _READ_ONLY_STATES or isinstance(error, PermissionError):
        return ReadOnlyStoreError(
            f"The store {database} may not be written ({said}). To fix: give the service's user the right to "
            "write there (for SQLite also to the folder), or name another store."
        )
    if code == sqlite3.SQLITE_FULL:
        return StoreUnavailableError(
            f"The store {database} has no space left. Nothing was stored. To fix: free disk space."
        )
    where = "the file and its folder" if database.file else "that the server runs, and the URL"
    return StoreUnavailableError(
        f"The store {database} cannot be reached ({said}). To fix: check {where}; then try again."
    )


def _said(error: BaseException | None, database: Database) -> str:
    """The first line of what a driver says, without the password."""
    text = " ".join(str(error).strip().splitlines()[:1])
    hidden = [database.url.password, *(v for k, v in database.url.query.items() if "pass" in k)]
    for secret in hidden:
        if secret:
            text = text.replace(str(secret), "***")
    return text
