"""The store: what is added stays, the last row of a trial counts, and what is not ours is refused."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from precision_time.errors import CorpusError
from precision_time_integrations.measure.store import NotStoredError, only_writer
from precision_time_papers.campaign import store as store_module
from precision_time_papers.campaign.result import TrialResult, write_results
from precision_time_papers.campaign.store import CampaignStore, read_store

Make = Callable[..., TrialResult]


def test_a_trial_measured_again_replaces_the_failed_one_without_erasing_it(
    tmp_path: Path, result_of: Make
) -> None:
    path = tmp_path / "trials.sqlite"
    failed, other = (
        result_of(status="failed", error="out of memory", step_time_s=None),
        result_of(repeat=1),
    )
    with CampaignStore(path) as store:
        for trial in (failed, other, replace(failed, status="ok", error="", step_time_s=1.0)):
            store.add(trial)
        assert [each.status for each in store.results()] == ["ok", "ok"]
        assert [each.repeat for each in store.results()] == [0, 1]
    assert sqlite3.connect(path).execute("SELECT count(*) FROM points").fetchone() == (3,)


def test_a_store_of_the_first_release_takes_results_of_this_one(tmp_path: Path, result_of: Make) -> None:
    path = tmp_path / "trials.sqlite"
    later = ("machine", "cpu_limit", "vector_isa", "link_bytes_per_s", "evaluation_s", "evaluation_samples")
    with CampaignStore(path) as store:
        store.add(result_of())
        for name in (*later, "checkpoint_s", "checkpoint_bytes"):
            store._connection.execute(f"ALTER TABLE points DROP COLUMN {name}")
        store._connection.execute("PRAGMA user_version = 1")
    [old] = read_store(path)
    assert (old.machine, old.evaluation_s) == ("", None)
    new = result_of(repeat=1, machine="avx2", evaluation_s=0.5)
    with CampaignStore(path) as store:
        store.add(new)
        assert store.results() == [old, new]


def test_two_that_start_one_store_at_once_both_open_it(
    tmp_path: Path, result_of: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever finds the file empty makes its table before another one may look."""
    path, usual, both = tmp_path / "trials.sqlite", store_module._version, threading.Barrier(2)

    def looked_at(connection: sqlite3.Connection, file: Path) -> int:
        found = usual(connection, file)
        with suppress(threading.BrokenBarrierError):
            both.wait(timeout=0.3)  # for another that has found the same
        return found

    def add(repeat: int) -> None:
        with CampaignStore(path) as store:
            store.add(result_of(repeat=repeat))

    monkeypatch.setattr(store_module, "_version", looked_at)
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(add, (0, 1))) == [None, None]
    assert sorted(each.repeat for each in read_store(path)) == [0, 1]


def test_two_processes_do_not_measure_into_one_store(tmp_path: Path) -> None:
    path = tmp_path / "trials.sqlite"
    store = "precision_time_integrations.measure.store"
    code = f"from {store} import *; import sys; only_writer(Path(sys.argv[1])).__enter__()"
    other = [sys.executable, "-c", code, str(path)]
    with CampaignStore(path), only_writer(path):
        refused = subprocess.run(other, check=False, capture_output=True, text=True)
        assert f"Another process is measuring into {path}. To fix: wait" in refused.stderr
        assert read_store(path) == []
    assert subprocess.run(other, check=True).returncode == 0


def test_a_full_disk_loses_nothing(tmp_path: Path, result_of: Make) -> None:
    path = tmp_path / "trials.sqlite"
    with CampaignStore(path) as store:
        store.add(result_of())
        [[pages]] = store._connection.execute("PRAGMA page_count")
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        stored = 1
        with pytest.raises(CorpusError, match="cannot be stored.*full.*To fix") as caught:
            for stored in range(1, 200):
                store.add(result_of(repeat=stored, step_time_s=0.25))
        assert '"step_time_s":0.25' in str(caught.value)
        assert f'"repeat":{stored},' in str(caught.value)
        assert len(store.results()) == stored
    assert len(read_store(path)) == stored


def test_a_long_result_that_cannot_be_stored_is_in_the_error_whole(tmp_path: Path, result_of: Make) -> None:
    result = result_of(epoch_times_s=tuple(0.001 * index for index in range(3000)))
    with CampaignStore(tmp_path / "trials.sqlite") as store:
        store._connection.execute("PRAGMA query_only = ON")
        with pytest.raises(NotStoredError) as caught:
            store.add(result)
    _, _, measured = str(caught.value).partition("What was measured: ")
    assert TrialResult.from_dict(json.loads(measured)) == result


def test_a_csv_is_read_like_a_store(tmp_path: Path, result_of: Make) -> None:
    path = tmp_path / "trials.csv"
    with path.open("w", encoding="utf-8") as file:
        write_results([result_of()], file)
    assert read_store(path) == [result_of()]
