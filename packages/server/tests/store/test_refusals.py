"""What is no store of ours, may not be written, or goes away: refused in words, and left as it is."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import threading
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from precision_time.corpus.store import MeasurementStore
from precision_time_server.problems import status_of
from precision_time_server.store import engines
from precision_time_server.store.errors import (
    NewerStoreError,
    ReadOnlyStoreError,
    StoreError,
    StoreUnavailableError,
)  # fmt: skip
from precision_time_server.store.store import open_store


def url_of(path):
    return f"sqlite:///{path}"


def all_said(error):
    """What an error and those behind it say, which is what a log shows."""
    said = []
    while error is not None:
        said.append(repr(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return " ".join(said)


@pytest.fixture
def filled(tmp_path):
    """A file with a cluster and two rows."""
    path = tmp_path / "store.sqlite"
    with open_store(url_of(path)) as store:
        store.put_cluster("a", {"x": 1})
        store.add_measurements("a", [{"row": 1}, {"row": 2}])
    return path


def test_a_file_that_is_no_store_is_left_as_it_is(tmp_path):
    notes, songs, measurements = tmp_path / "notes", tmp_path / "songs", tmp_path / "measurements"
    notes.write_text("no database, but long enough to be taken for one\n" * 200, encoding="utf-8")
    with closing(sqlite3.connect(songs)) as connection:
        connection.execute("CREATE TABLE song (title TEXT)")
    MeasurementStore(measurements).close()
    for path, said in (
        (notes, "no database"),
        (songs, "another application"),
        (measurements, "another application"),
    ):
        before = path.read_bytes()
        for read_only in (False, True):
            with pytest.raises(StoreError, match="To fix") as caught:
                open_store(url_of(path), read_only=read_only)
            assert path.name in str(caught.value)
            assert read_only or said in str(caught.value)
            assert status_of(caught.value) == 503
        assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [measurements, notes, songs]


def test_paths_that_can_hold_no_store(tmp_path, filled):
    for wrong in (tmp_path, filled / "below", "/dev/null/below"):
        with pytest.raises(StoreError, match="To fix"):
            open_store(url_of(wrong))
    with pytest.raises(StoreError, match="To fix"):
        open_store(url_of(tmp_path / "none"), read_only=True)
    assert not (tmp_path / "none").exists()


def test_a_damaged_file_is_an_error_of_ours(filled):
    """Overwritten from some place on: opening or reading says so, or what is read was not touched."""
    whole, refused = filled.read_bytes(), 0
    for start in range(0, len(whole), 4096 * 3 // 2):
        filled.write_bytes(whole[:start] + b"\xa5" * (len(whole) - start))
        try:
            with open_store(url_of(filled)) as store:
                found = store.cluster("a"), store.measurements("a")
        except StoreError as error:
            assert str(filled) in str(error)
            assert "damaged" in str(error)
            refused += 1
        else:
            assert found == ({"x": 1}, [(1, {"row": 1}), (2, {"row": 2})])
    assert refused >= 3  # noqa: PLR2004


def test_a_newer_store_is_refused_and_left_as_it_is(shared_url):
    with open_store(shared_url) as store:
        store.put_cluster("a", {"x": 1})
        engine = create_engine(shared_url)
        with engine.begin() as connection:
            connection.execute(text("UPDATE precision_time_store SET version = 1000"))
        with pytest.raises(NewerStoreError, match="1000"):
            store.ping()
    for read_only in (False, True):
        with pytest.raises(NewerStoreError, match=r"version 1000.*newer.*To fix: upgrade"):
            open_store(shared_url, read_only=read_only)
    with engine.begin() as connection:
        assert connection.scalar(text("SELECT version FROM precision_time_store")) == 1000
    engine.dispose()


def test_open_read_only_reads_and_refuses_to_write(shared_url):
    with pytest.raises(StoreError, match="To fix"):
        open_store(shared_url, read_only=True)
    with open_store(shared_url) as store:
        store.put_cluster("a", {"x": 1})
        with open_store(shared_url, read_only=True) as reader:
            assert reader.cluster("a") == {"x": 1}
            store.put_cluster("a", {"x": 2})
            assert reader.cluster("a") == {"x": 2}
            with pytest.raises(ReadOnlyStoreError, match="read only.*To fix"):
                reader.put_cluster("a", {"x": 3})
            # Not only by good will: the connections of a reader may not write.
            with pytest.raises(StoreError), reader._reads() as connection:
                connection.execute(text("DELETE FROM precision_time_cluster"))
        assert store.cluster("a") == {"x": 2}


def as_another_user(call):
    """What `call` says in a process that may write nowhere: root's own rights hide permissions."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        said = "nothing"
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            said = str(call())
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(writer, said.encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def locked_folder(filled):
    """A folder that nobody may write, with a store; pytest's own may not be read by other users."""
    folder = Path(tempfile.mkdtemp())
    shutil.copy(filled, folder / "store.sqlite")
    (folder / "store.sqlite").chmod(0o444)
    folder.chmod(0o555)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_files_and_folders_that_may_not_be_written(locked_folder):
    there, new = url_of(locked_folder / "store.sqlite"), url_of(locked_folder / "new" / "store.sqlite")
    for url in (there, new):
        said = as_another_user(lambda url=url: open_store(url))
        assert said.startswith("ReadOnlyStoreError") and "To fix" in said, said

    def read():
        with open_store(there, read_only=True) as store:
            return store.cluster("a"), store.count_measurements("a")

    assert as_another_user(read) == "({'x': 1}, 2)"


def test_a_file_that_is_deleted_or_replaced_while_open(filled, tmp_path):
    """Rows would go into a file that has no name any more."""
    copy = tmp_path / "copy.sqlite"
    shutil.copy(filled, copy)
    with open_store(url_of(filled)) as store:
        store.add_measurements("a", [{"row": 3}])
        for path in tmp_path.glob("store.sqlite*"):
            path.unlink()
        for call in (store.ping, lambda: store.add_measurements("a", [{"row": 4}])):
            with pytest.raises(StoreUnavailableError, match="To fix") as caught:
                call()
        assert status_of(caught.value) == 503
        copy.rename(filled)
        store.ping()
        assert store.add_measurements("a", [{"row": 3}]) == [3]
    with open_store(url_of(filled)) as store:
        assert [row["row"] for _, row in store.measurements("a")] == [1, 2, 3]


def test_another_process_that_does_not_stop_writing(filled, monkeypatch):
    monkeypatch.setattr(engines, "WAIT_S", 0.2)
    with open_store(url_of(filled)) as store, closing(sqlite3.connect(filled, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="busy.*Nothing was stored.*To fix"):
            store.put_cluster("a", {"x": 2})
        assert store.cluster("a") == {"x": 1}, "readers do not wait"
        other.execute("ROLLBACK")
        store.put_cluster("a", {"x": 2})


@pytest.mark.parametrize(
    "url",
    [
        "", "store.sqlite", "sqlite:///", "sqlite:///a?mode=ro", "mysql://u:hunter2@h/d", "://hunter2",
        "postgresql://u:p@hunter2@h:port/d", "postgresql+asyncpg://u:hunter2@h/d",
    ],
)  # fmt: skip
def test_urls_that_name_no_store(url):
    with pytest.raises(StoreError, match=r"The rule: sqlite:///FILE.*To fix") as caught:
        open_store(url)
    assert "hunter2" not in all_said(caught.value)


@pytest.mark.parametrize("extra", ["", "?password=hunter2&passfile=hunter2", "?colour=red"])
def test_a_server_that_is_not_there(extra):
    with pytest.raises(StoreError, match="127.0.0.1:1/database.*To fix") as caught:
        open_store(f"postgresql://someone:hunter2@127.0.0.1:1/database{extra}")
    assert "hunter2" not in all_said(caught.value)


def test_a_wrong_password_is_not_repeated(postgres_server):
    url = postgres_server.new_database().replace("pass%40word", "hunter2")
    with pytest.raises(StoreUnavailableError, match="password authentication failed.*To fix") as caught:
        open_store(url)
    assert "hunter2" not in all_said(caught.value)


def test_a_user_who_may_not_make_tables(postgres_server):
    url = postgres_server.new_database()
    name = url.rpartition("/")[2]
    postgres_server.run(f"CREATE ROLE {name} LOGIN PASSWORD 'reader'")
    reader = url.replace(url[url.index("//") + 2 : url.index("@")], f"{name}:reader")
    with pytest.raises(ReadOnlyStoreError, match="permission denied.*To fix"):
        open_store(reader)
    with open_store(url) as store:
        store.put_cluster("a", {"x": 1})
    postgres_server.run(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {name}", name)
    with pytest.raises(ReadOnlyStoreError, match="permission denied.*To fix"):
        open_store(reader)
    with open_store(reader, read_only=True) as store:
        assert store.cluster("a") == {"x": 1}


def test_a_server_that_goes_away_and_comes_back(postgres_server):
    with open_store(postgres_server.new_database()) as store:
        store.put_cluster("a", {})
        first = store.add_measurements("a", [{"row": 1}], key="k")
        postgres_server.stop()
        postgres_server.start()
        store.ping()  # nobody called meanwhile: nobody notices
        postgres_server.stop()
        try:
            for call in (store.ping, lambda: store.add_measurements("a", [{"row": 2}], key="l")):
                with pytest.raises(StoreUnavailableError, match="To fix") as caught:
                    call()
            said = all_said(caught.value)
            assert postgres_server.password not in said
            assert caught.value.headers["Retry-After"]
        finally:
            postgres_server.start()
        assert store.add_measurements("a", [{"row": 1}], key="k") == first
        store.add_measurements("a", [{"row": 2}], key="l")
        assert [row["row"] for _, row in store.measurements("a")] == [1, 2]


def test_more_threads_than_connections_wait(postgres_server):
    """And where nothing is freed in time, the error says so."""
    with open_store(postgres_server.new_database()) as store:
        store.put_cluster("a", {})
        threads = [threading.Thread(target=store.add_measurements, args=("a", [{}])) for _ in range(30)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(30)
        assert store.count_measurements("a") == 30
