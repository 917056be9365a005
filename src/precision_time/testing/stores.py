"""Stores of measurements and trials: what was measured must survive whatever happens to the process.

A measured row may have cost hours of a cluster, so that a store never loses one, never keeps half of one, and
never writes into a file that is not its own. The suite needs nothing of a store but the methods to override.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import CorpusError
from .checks import refusal

_FUTURE_VERSION = 1000


class StoreSuite:
    """Properties of one kind of store. Override `entries`, `opened`, `add`, `stored` and `read`."""

    atomic_add = True
    """Whether one `add` stores all of its entries or none; False: entry by entry."""
    sqlite = True
    """Whether the file is SQLite and carries a version."""
    refuses_missing = True
    """Whether `read` refuses a file that does not exist; False: it starts one."""

    def entries(self) -> list[Any]:
        """At least three different entries."""
        raise NotImplementedError

    def opened(self, path: Path) -> AbstractContextManager[Any]:
        """A store that may be written, closed at the end."""
        raise NotImplementedError

    def opened_read_only(self, path: Path) -> AbstractContextManager[Any] | None:
        """A store that must refuse `add`; None: this kind has none."""
        del path
        return None

    def add(self, store: Any, entries: Iterable[Any]) -> None:
        """Store entries in order, in one call where it takes several."""
        raise NotImplementedError

    def stored(self, store: Any) -> list[Any]:
        """What an open store holds, in the order of adding."""
        raise NotImplementedError

    def read(self, path: Path) -> list[Any]:
        """What a file holds, by a reader of its own."""
        raise NotImplementedError

    def _filled(self, path: Path) -> list[Any]:
        entries = self.entries()
        with self.opened(path) as store:
            self.add(store, entries)
        return entries

    def test_entries_come_back_after_reopening(self, tmp_path: Path) -> None:
        """Every field of every entry, in order; the folder is made where it is missing."""
        path = tmp_path / "new" / "store"
        first, *others = self.entries()
        with self.opened(path) as store:
            self.add(store, [first])
        with self.opened(path) as store:
            self.add(store, others)
            assert self.stored(store) == [first, *others]
        assert self.read(path) == [first, *others]

    def test_reading_leaves_the_file_as_it_was(self, tmp_path: Path) -> None:
        """Also its neighbors: no journal, lock or copy stays behind."""
        path = tmp_path / "store"
        self._filled(path)
        before = path.read_bytes()
        self.read(path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]

    def test_an_addition_that_fails_is_not_half_there(self, tmp_path: Path) -> None:
        """All of it or nothing (entry by entry: the whole entries before), and the store goes on working."""
        path = tmp_path / "store"
        first, second, third, *_ = self.entries()

        def breaking() -> Iterator[Any]:
            yield second
            raise RuntimeError("power cut")

        kept = [first] if self.atomic_add else [first, second]
        with self.opened(path) as store:
            self.add(store, [first])
            refusal(RuntimeError, lambda: self.add(store, breaking()), "power cut")
            assert self.stored(store) == kept
            self.add(store, [third])
        assert self.read(path) == [*kept, third]

    def test_a_process_that_dies_loses_nothing_it_had_stored(self, tmp_path: Path) -> None:
        """What `add` returned from is on the disk without `close`; what it was busy with leaves no trace."""
        if not hasattr(os, "fork"):
            return
        path = tmp_path / "store"
        first, second, *_ = self.entries()

        def dying() -> Iterator[Any]:
            yield second
            os._exit(3)

        child = os.fork()
        if not child:
            try:
                store = self.opened(path).__enter__()
                self.add(store, [first])
                self.add(store, dying())
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3  # noqa: PLR2004
        assert self.read(path) == ([first] if self.atomic_add else [first, second])

    def test_others_read_while_a_writer_has_it_open(self, tmp_path: Path) -> None:
        """Threads and a second process see what has been added so far."""
        path = tmp_path / "store"
        entries = self.entries()
        with self.opened(path) as store:
            self.add(store, entries)
            with ThreadPoolExecutor(4) as pool:
                assert list(pool.map(self.read, [path] * 8)) == [entries] * 8
            if hasattr(os, "fork"):
                child = os.fork()
                if not child:
                    same = False
                    try:
                        same = self.read(path) == entries
                    finally:
                        os._exit(0 if same else 1)
                assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert self.stored(store) == entries

    def test_a_read_only_store_refuses_entries(self, tmp_path: Path) -> None:
        """The corpus that ships must not change under a user."""
        path = tmp_path / "store"
        entries = self._filled(path)
        store = self.opened_read_only(path)
        if store is None:
            return
        with store as open_store:
            refusal(CorpusError, lambda: self.add(open_store, entries), "read only", "To fix")
            assert self.stored(open_store) == entries

    def test_foreign_files_are_refused_and_left_as_they_are(self, tmp_path: Path) -> None:
        """A wrong path must not destroy a user's notes or another program's database."""
        text, database = tmp_path / "notes", tmp_path / "database"
        text.write_text("no store, but long enough to be taken for one\n" * 20, encoding="utf-8")
        with closing(sqlite3.connect(database)) as connection:
            connection.execute("CREATE TABLE song (title TEXT)")
        for path in (text, database):
            before = path.read_bytes()
            refusal(CorpusError, partial(self.opened, path), str(path), "To fix")
            refusal(CorpusError, partial(self.read, path), str(path), "To fix")
            assert path.read_bytes() == before
        assert sorted(tmp_path.iterdir()) == [database, text]

    def test_paths_that_hold_no_store_are_refused(self, tmp_path: Path) -> None:
        """A file that is missing, a folder, and a path below a file."""
        path = tmp_path / "store"
        self._filled(path)
        for wrong in (tmp_path, path / "below"):
            refusal(CorpusError, partial(self.opened, wrong), str(wrong), "To fix")
        if self.refuses_missing:
            refusal(CorpusError, lambda: self.read(tmp_path / "none"), "none", "To fix")
            assert not (tmp_path / "none").exists()

    def test_a_newer_version_is_refused_and_left_as_it_is(self, tmp_path: Path) -> None:
        """An old release must not read a newer file wrongly, nor write into it."""
        if not self.sqlite:
            return
        path = tmp_path / "store"
        self._filled(path)
        with closing(sqlite3.connect(path)) as connection:
            connection.execute(f"PRAGMA user_version = {_FUTURE_VERSION}")
        before = path.read_bytes()
        for call in (self.opened, self.read):
            refusal(CorpusError, partial(call, path), str(path), str(_FUTURE_VERSION), "newer", "To fix")
        assert path.read_bytes() == before
