"""Making the tables, and seeing that they are of this release."""

from __future__ import annotations

from sqlalchemy import Connection, func, insert, inspect, select, update

from .engines import Database
from .errors import NewerStoreError, StoreError
from .tables import METADATA, SCHEMA_VERSION, STORE

_ADVISORY_LOCK = 0x50545356
"""PostgreSQL: held while the tables are made."""


def make_tables(connection: Connection, database: Database) -> None:
    """Make what is missing, one process at a time.

    Raises:
        NewerStoreError: If a newer release made them.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    if not inspect(connection).has_table(STORE.name):
        METADATA.create_all(connection)
        connection.execute(insert(STORE).values(id=1, version=SCHEMA_VERSION))
    check_version(connection, database)
    # A database that may only be read is noticed here, not when the first measurement comes.
    connection.execute(update(STORE).values(version=SCHEMA_VERSION))


def check_version(connection: Connection, database: Database) -> None:
    """See that there is a store and that this release reads it.

    Raises:
        StoreError: If not.
    """
    if not inspect(connection).has_table(STORE.name):
        raise StoreError(f"{database} holds no store. To fix: check the URL, or open it once for writing.")
    version = connection.scalar(select(STORE.c.version))
    if version is None:
        raise StoreError(f"{database} is damaged: it has no version. To fix: restore it from a backup.")
    if version > SCHEMA_VERSION:
        raise NewerStoreError(
            f"The store {database} has version {version}; this release reads version {SCHEMA_VERSION}, "
            "the store is newer. To fix: upgrade precision-time, or name another store."
        )
