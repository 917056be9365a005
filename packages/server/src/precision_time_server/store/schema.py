"""Making the tables, and bringing those of earlier releases to what this one reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sqlalchemy import Connection, func, insert, inspect, select, update

from .engines import Database
from .errors import NewerStoreError, StoreError
from .tables import METADATA, SCHEMA_VERSION, STORE

_ADVISORY_LOCK = 0x50545356
"""PostgreSQL: held while the tables are made."""
MIGRATIONS: Mapping[int, Callable[[Connection], None]] = {}
"""By version: what makes its tables those of the next one. Each released version but the last has one."""


def make_tables(connection: Connection, database: Database) -> None:
    """Make what is missing or of an earlier version, one process at a time, in one transaction.

    Raises:
        NewerStoreError: If a newer release made them.
        StoreError: If they are of no version that was released, or not what their version says.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))
    if not inspect(connection).has_table(STORE.name):
        METADATA.create_all(connection)
        connection.execute(insert(STORE).values(id=1, version=SCHEMA_VERSION))
    for version in range(_version(connection, database), SCHEMA_VERSION):
        MIGRATIONS[version](connection)
    _check_tables(connection, database)
    # A database that may only be read is noticed here, not when the first measurement comes.
    connection.execute(update(STORE).values(version=SCHEMA_VERSION))


def check_version(connection: Connection, database: Database) -> None:
    """See that there is a store and that this release reads it.

    Raises:
        StoreError: If not.
    """
    if not inspect(connection).has_table(STORE.name):
        raise StoreError(f"{database} holds no store. To fix: check the URL, or open it once for writing.")
    version = _version(connection, database)
    if version < SCHEMA_VERSION:
        raise StoreError(
            f"The store {database} has version {version}; this release reads version {SCHEMA_VERSION}. To "
            "fix: open it once for writing, which brings it there."
        )


def _version(connection: Connection, database: Database) -> int:
    """The version that a store has: this one, or one from which there is a way to it.

    Raises:
        StoreError: If it is another one; nothing is changed.
    """
    version = connection.scalar(select(STORE.c.version))
    if version is None:
        raise StoreError(f"{database} is damaged: it has no version. To fix: restore it from a backup.")
    if version > SCHEMA_VERSION:
        raise NewerStoreError(
            f"The store {database} has version {version}; this release reads version {SCHEMA_VERSION}, "
            "the store is newer. To fix: upgrade precision-time, or name another store."
        )
    if version < SCHEMA_VERSION and version not in MIGRATIONS:
        raise StoreError(
            f"The store {database} has version {version}, which no release wrote; it is left as it is. The "
            f"rule: {min([*MIGRATIONS, SCHEMA_VERSION])} to {SCHEMA_VERSION}. To fix: restore it from a "
            "backup, or name another store."
        )
    return int(version)


def _check_tables(connection: Connection, database: Database) -> None:
    """See that every table has the columns of this version.

    Raises:
        StoreError: If one lacks some; nothing is changed.
    """
    found = inspect(connection)
    for table in METADATA.sorted_tables:
        has = {each["name"] for each in found.get_columns(table.name)} if found.has_table(table.name) else ()
        lacks = [each.name for each in table.columns if each.name not in has]
        if lacks:
            raise StoreError(
                f"The store {database} is not what its version says: {table.name} lacks {', '.join(lacks)}. "
                "It is left as it is. To fix: restore it from a backup, or name another store."
            )
