"""Stores of every released version are opened; those of none are refused and left as they are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from precision_time_server.store import schema
from precision_time_server.store.errors import NewerStoreError, StoreError
from precision_time_server.store.store import open_store
from precision_time_server.store.tables import SCHEMA_VERSION

VERSIONS = Path(__file__).parent / "versions"


def made(path, version=1):
    """A store as a release of that version left it."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((VERSIONS / f"{version}.sql").read_text(encoding="utf-8"))
    return f"sqlite:///{path}"


def dumped(path):
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def changed(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize("version", range(1, SCHEMA_VERSION + 1))
def test_a_store_of_every_released_version_is_opened(tmp_path, version):
    path = tmp_path / "s.sqlite"
    with open_store(made(path, version)) as store:
        assert [name for name, _ in store.clusters()] == ["pod"]
        rows = store.measurements("pod")
        assert [(number, row["given"]["model"]) for number, row in rows] == [(1, "resnet50"), (2, "resnet50")]
        assert store.active_calibration("pod") == (1, {"points": []})
        assert store.model("uploads/0").label == "mine"
        assert [name for name, _, _ in store.servers("pod")] == ["node1"]
        again = [rows[0][1]] * 2
        assert store.add_measurements("pod", again, key="once") == [1, 2]
        assert store.add_measurements("pod", again) == [3, 4]
        store.ping()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT version FROM precision_time_store").fetchall() == [
            (SCHEMA_VERSION,)
        ]


@pytest.mark.parametrize("version", [0, -5, SCHEMA_VERSION + 1, 2**31])
@pytest.mark.parametrize("read_only", [False, True])
def test_versions_that_no_release_wrote_are_refused_and_left(tmp_path, version, read_only):
    path = tmp_path / "s.sqlite"
    url = made(path)
    changed(path, f"UPDATE precision_time_store SET version = {version}")
    before = dumped(path)
    kind = NewerStoreError if version > 0 else StoreError
    with pytest.raises(kind, match=rf"version {version}[ ,;].*To fix"):
        open_store(url, read_only=read_only).close()
    assert dumped(path) == before


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE precision_time_measurement DROP COLUMN document",
        "ALTER TABLE precision_time_model RENAME TO precision_time_models",
    ],
)
def test_tables_that_are_not_what_their_version_says_are_refused_and_left(tmp_path, statement):
    path = tmp_path / "s.sqlite"
    url = made(path)
    changed(path, statement)
    before = dumped(path)
    with pytest.raises(StoreError, match=r"lacks .*left as it is.*To fix"):
        open_store(url)
    assert dumped(path) == before


def test_migrations_run_one_after_the_other_in_one_transaction(tmp_path, monkeypatch):
    path = tmp_path / "s.sqlite"
    url = made(path)
    before = dumped(path)

    def second(connection):
        connection.execute(text("ALTER TABLE precision_time_cluster ADD COLUMN more TEXT"))

    def third(connection):
        connection.execute(text("UPDATE precision_time_cluster SET more = 'yes'"))

    def broken(connection):
        connection.execute(text("UPDATE precision_time_cluster SET no_such_column = 1"))

    monkeypatch.setattr(schema, "SCHEMA_VERSION", 3)
    monkeypatch.setattr(schema, "MIGRATIONS", {1: second, 2: broken})
    with pytest.raises(StoreError):
        open_store(url)
    assert dumped(path) == before
    monkeypatch.setattr(schema, "MIGRATIONS", {1: second, 2: third})
    with pytest.raises(StoreError, match="open it once for writing"):
        open_store(url, read_only=True)
    open_store(url).close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT more FROM precision_time_cluster").fetchall() == [("yes",)]
        assert connection.execute("SELECT version FROM precision_time_store").fetchall() == [(3,)]
    open_store(url).close()  # and not a second time


def test_every_version_has_its_way_to_this_one():
    released = {int(each.stem) for each in VERSIONS.glob("*.sql")}
    assert released == set(range(1, SCHEMA_VERSION + 1))
    assert set(schema.MIGRATIONS) == released - {SCHEMA_VERSION}
