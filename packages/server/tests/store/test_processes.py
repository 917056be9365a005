"""Several processes on one store, and processes that are killed while they write."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import Counter
from contextlib import closing

import pytest

from precision_time_server.store import engines
from precision_time_server.store.store import open_store

pytestmark = pytest.mark.slow

OPENING = """
import sys
from precision_time_server.store.store import open_store
url, writer = sys.argv[1:]
print("ready", flush=True)
sys.stdin.readline()
store = open_store(url)
"""
WRITING = (
    OPENING
    + """
store.put_cluster("a", {})
for step in range(25):
    numbers = store.add_measurements("a", [{"of": writer, "step": step}] * 2)
    print(*numbers, flush=True)
    again = store.add_measurements("a", [{"of": "both", "step": step}], key=str(step))
    print(*again, flush=True)
"""
)
ENDLESS = (
    OPENING
    + """
store.put_cluster("a", {})
step = 0
while True:
    print(*store.add_measurements("a", [{"step": step, "part": part} for part in range(5)]), flush=True)
    step += 1
"""
)


@pytest.fixture
def processes(shared_url):
    """Two processes that have imported what they need and wait for one line."""
    started = []

    def start(code):
        for writer in "xy":
            started.append(
                subprocess.Popen(
                    [sys.executable, "-c", code, shared_url, writer],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                )
            )  # fmt: skip
        for each in started:
            assert each.stdout.readline() == "ready\n", each.stderr.read()
        for each in started:
            each.stdin.write("go\n")
            each.stdin.flush()
        return started

    yield start
    for each in started:
        each.kill()
        each.communicate()


def numbers_in(lines):
    return [int(number) for line in lines for number in line.split()]


def test_two_processes_start_one_store_and_write_at_once(processes, shared_url):
    """Neither loses a row or stores one twice; a key that both send is stored for one of them."""
    acknowledged = []
    for each in processes(WRITING):
        out, errors = each.communicate(timeout=120)
        assert each.returncode == 0, errors
        acknowledged += [numbers_in([line]) for line in out.splitlines()]
    with open_store(shared_url) as store:
        rows = store.measurements("a")
    assert {number for number, _ in rows} == {number for line in acknowledged for number in line}
    assert Counter((row["of"], row["step"]) for _, row in rows) == Counter(
        {(of, step): 1 if of == "both" else 2 for of in ("x", "y", "both") for step in range(25)}
    )


def test_a_new_file_waits_for_one_that_is_claiming_it(tmp_path, monkeypatch):
    """Between its claim and its log another process may begin: SQLite itself would refuse at once."""
    with (
        closing(sqlite3.connect(tmp_path / "new", isolation_level=None, check_same_thread=False)) as other,
        closing(sqlite3.connect(tmp_path / "new", isolation_level=None)) as ours,
    ):
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.1, other.execute, ["COMMIT"]).start()
        engines.write_ahead(ours)
        assert ours.execute("PRAGMA journal_mode").fetchall() == [("wal",)]
    monkeypatch.setattr(engines, "WAIT_S", 0.05)
    with (
        closing(sqlite3.connect(tmp_path / "held", isolation_level=None)) as other,
        closing(sqlite3.connect(tmp_path / "held", isolation_level=None)) as ours,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            engines.write_ahead(ours)


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="the system has no SIGKILL")
def test_a_killed_process_has_lost_nothing_it_acknowledged(processes, shared_url):
    """Both writers die in the middle of the load; a call is stored as a whole, or nothing of it."""
    acknowledged, started = [], processes(ENDLESS)
    for each in started:
        acknowledged += [each.stdout.readline() for _ in range(15)]
    for each in started:
        os.kill(each.pid, signal.SIGKILL)
    for each in started:
        out, _ = each.communicate(timeout=60)
        # The last line may be cut: only a whole one was acknowledged.
        acknowledged += [line for line in out.splitlines(keepends=True) if line.endswith("\n")]
        assert each.returncode == -signal.SIGKILL
    with open_store(shared_url) as store:
        rows = store.measurements("a")
        store.add_measurements("a", [{"after": "the crash"}])
    stored = [number for number, _ in rows]
    assert len(acknowledged) >= 30
    assert set(numbers_in(acknowledged)) <= set(stored)
    parts = Counter(row["part"] for _, row in rows)
    assert set(parts) == set(range(5))
    assert len(set(parts.values())) == 1, "a call was stored in part"
