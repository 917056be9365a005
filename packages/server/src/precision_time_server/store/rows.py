"""Statements that several methods of the store need."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table, insert, select
from sqlalchemy.dialects import postgresql, sqlite

from precision_time.errors import shown

from .entries import LARGEST_NUMBER
from .errors import ReusedKeyError, UnknownEntryError
from .tables import CLUSTER, MEASUREMENT, SUBMISSION


def asked(name: Any) -> str:
    """A name to look for: one that no entry can have becomes one that none has."""
    return name if isinstance(name, str) and name.isprintable() else ""


def bounded(value: int) -> int:
    """Larger numbers are in no row."""
    return min(max(int(value), 0), LARGEST_NUMBER)


def put(connection: Connection, table: Table, key: tuple[str, ...], values: Mapping[str, Any]) -> None:
    """Insert a row, or change the one that has its key."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite
    others = {name: value for name, value in values.items() if name not in key}
    connection.execute(
        dialect.insert(table).values(values).on_conflict_do_update(index_elements=key, set_=others)
    )


def locked(connection: Connection, cluster: str) -> int:
    """The row of a cluster, locked until the transaction ends: its rows are numbered as they are committed.

    Without it a reader could see row 8, ask for what comes after it, and never see row 7.
    """
    query = select(CLUSTER.c.id).where(CLUSTER.c.name == asked(cluster)).with_for_update()
    found = connection.scalar(query)
    if found is None:
        raise UnknownEntryError(f"There is no cluster {shown(cluster)}. To fix: put the cluster first.")
    return int(found)


def submitted(connection: Connection, owner: int, key: str, digest: str) -> list[int] | None:
    """The numbers of the rows that came with this key before; None if it is new."""
    table = SUBMISSION.c
    query = select(table.id, table.rows_sha256).where(table.cluster_id == owner, table.key == key)
    found = connection.execute(query).one_or_none()
    if found is None:
        return None
    if found.rows_sha256 != digest:
        raise ReusedKeyError(
            f"The idempotency key {shown(key)} came before, with other measurements. The rule: one key, one "
            "list of rows. Nothing was stored. To fix: send new measurements with a new key."
        )
    rows = select(MEASUREMENT.c.id).where(MEASUREMENT.c.submission_id == found.id).order_by(MEASUREMENT.c.id)
    return list(connection.scalars(rows))


def added(connection: Connection, rows: list[dict[str, Any]]) -> list[int]:
    """Insert measurements; returns their numbers, in order."""
    statement = insert(MEASUREMENT).returning(MEASUREMENT.c.id, sort_by_parameter_order=True)
    return list(connection.scalars(statement, rows))
