"""What a service keeps: clusters with what was measured on them, calibrations, models, reports of servers."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Self

from sqlalchemy import Connection, Engine, Table, delete, func, insert, select, text

from precision_time.errors import shown

from .engines import Database, claim_file, database_of, store_errors
from .entries import (
    MOST_ROWS,
    CalibrationRecord,
    ModelRecord,
    ModelSummary,
    checked_name,
    from_document,
    from_microseconds,
    to_document,
    to_microseconds,
)  # fmt: skip
from .errors import EntryTooLargeError, ReadOnlyStoreError, StoreError, UnknownEntryError
from .quotas import Quotas
from .rows import added, asked, bounded, locked, put, submitted
from .schema import check_version, make_tables
from .tables import ACTIVE, CALIBRATION, CLUSTER, MEASUREMENT, MODEL, SERVER, SUBMISSION


class Store:
    """The store of a service. Every method blocks, may be called by any thread, and raises `StoreError`.

    What a method wrote is on the disk when it returns. Several processes may use one store at once.
    """

    def __init__(self, database: Database, engine: Engine, quotas: Quotas | None = None) -> None:
        self._quotas = quotas or Quotas()
        self.read_only = database.read_only
        self._database = database
        self._closed = False
        self._reading = engine.execution_options(postgresql_readonly=True)
        self._writing = engine.execution_options(writes=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Store({self._database})"

    def close(self) -> None:
        """End the connections."""
        self._closed = True
        self._writing.dispose()

    def ping(self) -> None:
        """Ask the database something.

        Raises:
            StoreUnavailableError: If it does not answer.
            NewerStoreError: If a newer release has changed the store meanwhile.
        """
        with self._reads() as connection:
            check_version(connection, self._database)

    @contextmanager
    def _reads(self) -> Iterator[Connection]:
        self._check_open()
        with store_errors(self._database), self._reading.begin() as connection:
            yield connection

    @contextmanager
    def _adds(self, table: Table, *documents: str) -> Iterator[Connection]:
        """A transaction that adds documents to a table, within the quotas."""
        with (
            self._writes() as connection,
            self._quotas.kept(connection, table, sum(map(len, documents))),
        ):
            yield connection

    @contextmanager
    def _writes(self) -> Iterator[Connection]:
        """A transaction: all of it is stored or, on an error, nothing."""
        self._check_open()
        if self.read_only:
            raise ReadOnlyStoreError(
                f"The store {self._database} is open read only; nothing was stored. "
                "To fix: open it for writing."
            )
        with store_errors(self._database), self._writing.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL lock_timeout = '10s'"))
            yield connection

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError(f"The store {self._database} is closed. To fix: open it again.")

    # Clusters

    def put_cluster(self, name: str, document: Mapping[str, Any]) -> None:
        """Make a cluster, or change its document; what was measured on it stays."""
        values: dict[str, Any] = {
            "name": checked_name("name of a cluster", name),
            "document": to_document("cluster", document),
        }
        with self._adds(CLUSTER, values["document"]) as connection:
            put(connection, CLUSTER, ("name",), values)

    def cluster(self, name: str) -> dict[str, Any] | None:
        """The document of a cluster; None if there is no such cluster."""
        with self._reads() as connection:
            found = connection.scalar(select(CLUSTER.c.document).where(CLUSTER.c.name == asked(name)))
        return None if found is None else from_document(found)

    def clusters(self) -> list[tuple[str, dict[str, Any]]]:
        """Name and document of each, by name."""
        with self._reads() as connection:
            rows = connection.execute(select(CLUSTER.c.name, CLUSTER.c.document)).all()
        return sorted((name, from_document(document)) for name, document in rows)

    def delete_cluster(self, name: str) -> bool:
        """Delete a cluster, its measurements, calibrations and reports; whether there was any."""
        with self._writes() as connection:
            deleted = [
                connection.execute(delete(CLUSTER).where(CLUSTER.c.name == asked(name))).rowcount,
                connection.execute(delete(SERVER).where(SERVER.c.cluster == asked(name))).rowcount,
            ]
        return any(deleted)

    # Measurements

    def add_measurements(
        self, cluster: str, rows: Sequence[Mapping[str, Any]], *, key: str | None = None
    ) -> list[int]:
        """Store rows, all of them or none; they are on the disk when this returns.

        Args:
            cluster: A stored cluster.
            rows: Documents.
            key: Names this submission: the same rows with the same key are stored once.

        Returns:
            The number of each row, in order; each is larger than that of any row that was read before.

        Raises:
            UnknownEntryError: If there is no such cluster.
            ReusedKeyError: If the key came before with other rows.
            EntryError: If a row or the key breaks a rule.
        """
        if len(rows) > MOST_ROWS:
            raise EntryTooLargeError(
                f"{len(rows):,} measurements are too many. The rule: at most {MOST_ROWS:,} in one call. "
                "To fix: add them in parts."
            )
        documents = [to_document("measurement", row) for row in rows]
        if key is not None:
            checked_name("idempotency key", key)
        with self._adds(MEASUREMENT, *documents) as connection:
            owner = locked(connection, cluster)
            submission = None
            if key is not None:
                digest = hashlib.sha256("\n".join(documents).encode()).hexdigest()
                stored = submitted(connection, owner, key, digest)
                if stored is not None:
                    return stored
                values = {"cluster_id": owner, "key": key, "rows_sha256": digest}
                submission = connection.scalar(insert(SUBMISSION).values(values).returning(SUBMISSION.c.id))
            if not documents:
                return []
            return added(
                connection,
                [
                    {"cluster_id": owner, "submission_id": submission, "document": document}
                    for document in documents
                ],
            )

    def measurements(
        self, cluster: str, *, after: int = 0, limit: int | None = None
    ) -> list[tuple[int, dict[str, Any]]]:
        """Number and row of each whose number is larger than `after`, in order; at most `limit`."""
        query = (
            select(MEASUREMENT.c.id, MEASUREMENT.c.document)
            .join(CLUSTER)
            .where(CLUSTER.c.name == asked(cluster), MEASUREMENT.c.id > bounded(after))
            .order_by(MEASUREMENT.c.id)
            .limit(None if limit is None else bounded(limit))
        )
        with self._reads() as connection:
            rows = connection.execute(query).all()
        return [(number, from_document(document)) for number, document in rows]

    def count_measurements(self, cluster: str) -> int:
        """How many rows a cluster has."""
        query = select(func.count()).select_from(MEASUREMENT).join(CLUSTER)
        with self._reads() as connection:
            return int(connection.scalar(query.where(CLUSTER.c.name == asked(cluster))) or 0)

    # Calibrations

    def add_calibration(self, cluster: str, body: Mapping[str, Any], card: Mapping[str, Any]) -> int:
        """Store a calibration with its description, not active; returns its number.

        Raises:
            UnknownEntryError: If there is no such cluster.
        """
        values: dict[str, Any] = {
            "body": to_document("calibration", body),
            "card": to_document("card", card),
            "created_us": to_microseconds(datetime.now(UTC)),
        }
        new = insert(CALIBRATION).returning(CALIBRATION.c.id)
        with self._adds(CALIBRATION, values["body"]) as connection:
            values["cluster_id"] = locked(connection, cluster)
            return int(connection.execute(new, values).scalar_one())

    def calibrations(self, cluster: str) -> list[CalibrationRecord]:
        """All of a cluster without their bodies, in the order in which they were added."""
        table = CALIBRATION.c
        query = (
            select(table.id, table.card, table.created_us, ACTIVE.c.calibration_id)
            .select_from(CALIBRATION)
            .join(CLUSTER)
            .outerjoin(ACTIVE, ACTIVE.c.calibration_id == table.id)
            .where(CLUSTER.c.name == asked(cluster))
            .order_by(table.id)
        )
        with self._reads() as connection:
            rows = connection.execute(query).all()
        return [
            CalibrationRecord(
                id=number,
                card=from_document(card),
                created=from_microseconds(created),
                active=active == number,
            )
            for number, card, created, active in rows
        ]

    def calibration(self, cluster: str, number: int) -> dict[str, Any] | None:
        """The body of a calibration of a cluster; None if it has no such calibration."""
        query = select(CALIBRATION.c.body).join(CLUSTER)
        with self._reads() as connection:
            found = connection.scalar(
                query.where(CLUSTER.c.name == asked(cluster), CALIBRATION.c.id == bounded(number))
            )
        return None if found is None else from_document(found)

    def active_calibration(self, cluster: str) -> tuple[int, dict[str, Any]] | None:
        """Number and body of the one that is active; None if none is."""
        query = (
            select(CALIBRATION.c.id, CALIBRATION.c.body)
            .join(ACTIVE, ACTIVE.c.calibration_id == CALIBRATION.c.id)
            .join(CLUSTER, CLUSTER.c.id == CALIBRATION.c.cluster_id)
            .where(CLUSTER.c.name == asked(cluster))
        )
        with self._reads() as connection:
            found = connection.execute(query).one_or_none()
        return None if found is None else (found[0], from_document(found[1]))

    def activate(self, cluster: str, number: int | None) -> None:
        """Let one calibration of a cluster be active in the place of the one before; None: none of them.

        Raises:
            UnknownEntryError: If there is no such cluster, or it has no such calibration.
        """
        with self._writes() as connection:
            owner = locked(connection, cluster)
            if number is None:
                connection.execute(delete(ACTIVE).where(ACTIVE.c.cluster_id == owner))
                return
            query = select(CALIBRATION.c.id).where(
                CALIBRATION.c.cluster_id == owner, CALIBRATION.c.id == bounded(number)
            )
            if connection.scalar(query) is None:
                raise UnknownEntryError(
                    f"Cluster {shown(cluster)} has no calibration {shown(number)}. "
                    "To fix: list its calibrations."
                )
            put(connection, ACTIVE, ("cluster_id",), {"cluster_id": owner, "calibration_id": number})

    # Models

    def put_model(
        self, name: str, *, label: str, kind: str, graph: Mapping[str, Any], facts: Mapping[str, Any]
    ) -> None:
        """Store a model under a name, in the place of what has this name."""
        values: dict[str, Any] = {
            "name": checked_name("name of a model", name),
            "label": checked_name("label", label, may_be_empty=True),
            "kind": checked_name("kind", kind),
            "graph": to_document("graph", graph),
            "facts": to_document("facts", facts),
            "created_us": to_microseconds(datetime.now(UTC)),
        }
        with self._adds(MODEL, values["graph"]) as connection:
            put(connection, MODEL, ("name",), values)

    def model(self, name: str) -> ModelRecord | None:
        """A model with its operators; None if there is none of this name."""
        query = select(MODEL.c.graph, *_SUMMARY).where(MODEL.c.name == asked(name))
        with self._reads() as connection:
            found = connection.execute(query).one_or_none()
        return None if found is None else ModelRecord(graph=from_document(found[0]), **_summary(found[1:]))

    def models(self) -> list[ModelSummary]:
        """All models without their operators, by name."""
        with self._reads() as connection:
            rows = connection.execute(select(*_SUMMARY)).all()
        return sorted((ModelSummary(**_summary(row)) for row in rows), key=lambda each: each.name)

    def delete_model(self, name: str) -> bool:
        """Delete a model. Returns whether there was one."""
        with self._writes() as connection:
            return bool(connection.execute(delete(MODEL).where(MODEL.c.name == asked(name))).rowcount)

    # Servers

    def put_server(self, cluster: str, server: str, report: Mapping[str, Any], *, at: datetime) -> None:
        """Store what a server said at a time, in the place of what it said before.

        The cluster need not be stored: servers may report before somebody describes it.
        """
        values: dict[str, Any] = {
            "cluster": checked_name("name of a cluster", cluster),
            "server": checked_name("name of a server", server),
            "report": to_document("report", report),
            "at_us": to_microseconds(at),
        }
        with self._adds(SERVER, values["report"]) as connection:
            put(connection, SERVER, ("cluster", "server"), values)

    def servers(self, cluster: str) -> list[tuple[str, dict[str, Any], datetime]]:
        """Name, last report and its time of each server of a cluster, by name."""
        table = SERVER.c
        query = select(table.server, table.report, table.at_us).where(table.cluster == asked(cluster))
        with self._reads() as connection:
            rows = sorted(tuple(row) for row in connection.execute(query))
        return [(server, from_document(report), from_microseconds(at)) for server, report, at in rows]


_SUMMARY = (MODEL.c.name, MODEL.c.label, MODEL.c.kind, MODEL.c.facts, MODEL.c.created_us)


def _summary(row: Sequence[Any]) -> dict[str, Any]:
    name, label, kind, facts, created = row
    return {
        "name": name, "label": label, "kind": kind, "facts": from_document(facts),
        "created": from_microseconds(created),
    }  # fmt: skip


def open_store(url: str, *, read_only: bool = False, quotas: Quotas | None = None) -> Store:
    """The store behind a URL; its tables are made where there are none.

    Args:
        url: `sqlite:///FILE`, `sqlite://` (in memory, lost with the process) or `postgresql://...`.
        read_only: Nothing is made or written, and methods that write refuse.
        quotas: The most that it holds; None for no end.

    Raises:
        StoreUnavailableError: If the database cannot be reached.
        ReadOnlyStoreError: If it may not be written.
        NewerStoreError: If a newer release wrote it.
        StoreError: If it is damaged, another application's, or the URL names none.
    """
    database = database_of(url, read_only=read_only)
    with store_errors(database):
        if database.file is not None and not read_only:
            claim_file(database.file)
        engine = database.engine()
    store = Store(database, engine, quotas)
    try:
        if read_only:
            store.ping()
        else:
            with store._writes() as connection:  # noqa: SLF001
                make_tables(connection, database)
    except BaseException:
        store.close()
        raise
    return store
