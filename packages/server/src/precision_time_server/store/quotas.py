"""How much a store takes: a caller who sends without end fills no disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Table, func, select, text

from .errors import QuotaError
from .tables import CLUSTER, MEASUREMENT, METADATA, MODEL

_WAYS_OUT = {
    "clusters": "delete those that nobody asks (DELETE /v1/clusters/NAME)",
    "measurements": "delete clusters that nobody asks (DELETE /v1/clusters/NAME)",
    "models": "delete those that nobody asks (DELETE /v1/models/ID)",
    "bytes": "delete clusters and models that nobody asks",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Quotas:
    """The most that a store holds; None for no end."""

    rows: int | None = None
    """Measurements of all clusters together."""
    clusters: int | None = None
    models: int | None = None
    size_bytes: int | None = None
    """On the disk."""

    @contextmanager
    def kept(self, connection: Connection, table: Table, new_bytes: int) -> Iterator[None]:
        """Let a transaction write within the quotas; beyond them nothing of it is stored.

        Args:
            connection: In the transaction.
            table: What is written to: what takes the place of something else is always taken.
            new_bytes: Of the documents.

        Raises:
            QuotaError: With the limit and the way out.
        """
        if self.size_bytes is not None and _size_bytes(connection) + new_bytes > self.size_bytes:
            raise _error("bytes", self.size_bytes, "--limit store=MIB")
        what, most = {
            CLUSTER.name: ("clusters", self.clusters),
            MEASUREMENT.name: ("measurements", self.rows),
            MODEL.name: ("models", self.models),
        }.get(table.name, ("", None))
        before = 0 if most is None else _count(connection, table)
        yield
        if most is not None and max(before, most) < _count(connection, table):
            raise _error(what, most, f"--limit {'rows' if what == 'measurements' else what}=N")


def _error(what: str, most: int, option: str) -> QuotaError:
    return QuotaError(
        f"The service would hold more than {most:,} {what}. The rule: no more in all; nothing was stored. To "
        f"fix: {_WAYS_OUT[what]}, or let the operator raise the limit ({option})."
    )


def _count(connection: Connection, table: Table) -> int:
    return int(connection.scalar(select(func.count()).select_from(table)) or 0)


def _size_bytes(connection: Connection) -> int:
    """What the tables take, without what was deleted (in PostgreSQL: that was vacuumed)."""
    if connection.dialect.name == "postgresql":
        sizes = (func.pg_total_relation_size(table.name) for table in METADATA.sorted_tables)
        return sum(int(connection.scalar(select(size)) or 0) for size in sizes)
    pages, free, page_bytes = (
        int(connection.scalar(text(f"PRAGMA {name}")) or 0)
        for name in ("page_count", "freelist_count", "page_size")
    )
    return (pages - free) * page_bytes
