"""Tables of the store, the same in SQLite and PostgreSQL.

Documents are JSON in text columns, in ASCII: a database of any encoding returns them as they were. Times are
microseconds since 1970 in UTC. A number is never given twice, also not after a deletion.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)  # fmt: skip

SCHEMA_VERSION = 1
LONGEST_NAME = 200
"""Of clusters, models, servers, labels and keys [characters]."""

_NUMBER = BigInteger().with_variant(Integer, "sqlite")
"""SQLite numbers rows by itself where the type is exactly INTEGER, which has 64 bits there."""
METADATA = MetaData()


def _table(name: str, *parts: Any) -> Table:
    # The prefix keeps out of the way of others' tables in a shared PostgreSQL database.
    return Table(f"precision_time_{name}", METADATA, *parts, sqlite_autoincrement=True)


def _number() -> Column[Any]:
    return Column("id", _NUMBER, primary_key=True, autoincrement=True)


def _of_cluster(**options: Any) -> Column[Any]:
    key = ForeignKey("precision_time_cluster.id", ondelete="CASCADE")
    return Column("cluster_id", _NUMBER, key, nullable=False, **options)


def _text(name: str) -> Column[Any]:
    return Column(name, Text, nullable=False)


def _name(name: str) -> Column[Any]:
    return Column(name, String(LONGEST_NAME), nullable=False)


def _time(name: str) -> Column[Any]:
    return Column(name, BigInteger, nullable=False)


STORE = _table("store", Column("id", Integer, primary_key=True), Column("version", Integer, nullable=False))
"""One row, with the version of these tables."""
CLUSTER = _table("cluster", _number(), _name("name"), _text("document"), UniqueConstraint("name"))
SUBMISSION = _table(
    "submission", _number(), _of_cluster(), _name("key"), _text("rows_sha256"),
    UniqueConstraint("cluster_id", "key"),
)  # fmt: skip
"""Rows that came with an idempotency key."""
MEASUREMENT = _table(
    "measurement", _number(), _of_cluster(),
    Column("submission_id", _NUMBER, ForeignKey("precision_time_submission.id", ondelete="CASCADE")),
    _text("document"), Index("precision_time_measurement_cluster", "cluster_id", "id"),
    Index("precision_time_measurement_submission", "submission_id"),
)  # fmt: skip
CALIBRATION = _table(
    "calibration", _number(), _of_cluster(), _text("body"), _text("card"), _time("created_us"),
    Index("precision_time_calibration_cluster", "cluster_id", "id"),
)  # fmt: skip
ACTIVE = _table(
    "active_calibration", _of_cluster(primary_key=True, autoincrement=False),
    Column("calibration_id", _NUMBER, ForeignKey("precision_time_calibration.id", ondelete="CASCADE"),
           nullable=False, unique=True),
)  # fmt: skip
"""At most one calibration of a cluster: the cluster is the key."""
MODEL = _table(
    "model", _number(), _name("name"), _name("label"), _name("kind"), _text("graph"), _text("facts"),
    _time("created_us"), UniqueConstraint("name"),
)  # fmt: skip
SERVER = _table(
    "server", _number(), _name("cluster"), _name("server"), _text("report"), _time("at_us"),
    UniqueConstraint("cluster", "server"),
)  # fmt: skip
"""Reports of servers; they may report before their cluster is described."""
