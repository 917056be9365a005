"""What every store does, whatever database it is in."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from sqlalchemy import func, select

from precision_time_server.store.entries import LARGEST_BYTES, MOST_ROWS
from precision_time_server.store.errors import (
    EntryError,
    EntryTooLargeError,
    ReusedKeyError,
    StoreError,
    UnknownEntryError,
)  # fmt: skip
from precision_time_server.store.store import open_store
from precision_time_server.store.tables import METADATA, MODEL

AWKWARD = {
    "text": "\u0000 \ud800 é 日本 'quoted' \"too\" ; DROP TABLE",
    "numbers": [0.1, 1e-300, 2**70, -0.0],
    "nested": {"": [None, True, {}]},
}
"""What a database could change: NUL and half characters, large and small numbers, empty names."""


@pytest.fixture
def store(store_url):
    with open_store(store_url) as found:
        yield found


def test_clusters_come_back_as_they_were_put(store):
    names = ["b", "B", "é", "a b", "%", "_", "a' OR 1=1 --", "x" * 200]
    for name in names:
        store.put_cluster(name, {"of": "before"})
        store.put_cluster(name, {"of": name, **AWKWARD})
    assert store.clusters() == [(name, {"of": name, **AWKWARD}) for name in sorted(names)]
    assert store.cluster("b") == {"of": "b", **AWKWARD}
    for unknown in ("c", "", "x" * 201, "\x00", "\ud800", None, 3):
        assert store.cluster(unknown) is None
        assert store.measurements(unknown) == store.calibrations(unknown) == store.servers(unknown) == []
        assert not store.delete_cluster(unknown)


def test_a_cluster_goes_with_all_that_belongs_to_it_and_nothing_else(store):
    at = datetime.now(UTC)
    for name in ("kept", "gone"):
        store.put_cluster(name, {})
        last = store.add_measurements(name, [{"of": name}], key="k")
        number = store.add_calibration(name, {"body": name}, {})
        store.activate(name, number)
        store.put_server(name, "node1", {}, at=at)
    kept = store.measurements("kept"), store.active_calibration("kept"), store.servers("kept")
    assert store.delete_cluster("gone")
    assert not store.delete_cluster("gone")
    with store._reads() as connection:
        for table in set(METADATA.sorted_tables) - {MODEL}:
            assert connection.scalar(select(func.count()).select_from(table)) == 1, table
    store.put_cluster("gone", {})
    assert store.count_measurements("gone") == 0
    assert store.calibrations("gone") == store.servers("gone") == []
    assert store.active_calibration("gone") is None
    assert store.add_measurements("gone", [{"row": 2}], key="k") > last, "a number was given twice"
    assert store.add_calibration("gone", {}, {}) > number
    assert kept == (store.measurements("kept"), store.active_calibration("kept"), store.servers("kept"))


def test_measurements_are_numbered_in_order_and_read_in_pages(store):
    store.put_cluster("a", {})
    store.put_cluster("b", {})
    rows = [{"row": number, **AWKWARD} for number in range(700)]
    numbers = store.add_measurements("a", rows[:500])
    store.add_measurements("b", [{"row": "other"}])
    numbers += store.add_measurements("a", rows[500:])
    assert numbers == sorted(set(numbers))
    found, after = [], 0
    while page := store.measurements("a", after=after, limit=200):
        assert len(page) <= 200
        found += page
        after = page[-1][0]
    assert found == list(zip(numbers, rows, strict=True)) == store.measurements("a")
    assert store.count_measurements("a") == 700
    assert store.add_measurements("a", []) == []
    assert store.measurements("a", after=2**80) == store.measurements("a", limit=0) == []


def test_a_key_stores_its_rows_once(store):
    store.put_cluster("a", {})
    store.put_cluster("b", {})
    rows = [{"row": 1}, {"row": 2}]
    first = store.add_measurements("a", rows, key="x" * 200)
    assert store.add_measurements("a", rows, key="x" * 200) == first
    assert store.add_measurements("a", [], key="none") == store.add_measurements("a", [], key="none") == []
    with pytest.raises(ReusedKeyError, match="other measurements.*To fix"):
        store.add_measurements("a", [{"row": 3}], key="x" * 200)
    assert store.count_measurements("a") == 2
    assert store.add_measurements("b", [{"row": 3}], key="x" * 200) != first, "a key is of one cluster"
    assert len({*first, *store.add_measurements("a", rows)}) == 4, "without a key each call is new"


def test_of_rows_that_break_a_rule_none_is_stored(store):
    store.put_cluster("a", {})
    for wrong in ({"x": float("nan")}, {"x": {1, 2}}, [1], {"x": "y" * 2**16}, None):
        with pytest.raises(EntryError, match="To fix"):
            store.add_measurements("a", [{"row": 1}, wrong, {"row": 2}], key="k")
    assert store.count_measurements("a") == 0
    store.add_measurements("a", [{"row": 1}], key="k")


def test_at_most_one_calibration_of_a_cluster_is_active(store):
    for name in ("a", "b"):
        store.put_cluster(name, {})
    before = datetime.now(UTC)
    first, second = (store.add_calibration("a", {"body": n, **AWKWARD}, {"card": n}) for n in (1, 2))
    foreign = store.add_calibration("b", {}, {})
    assert store.active_calibration("a") is None
    for number in (first, second, second, first):
        store.activate("a", number)
        assert store.active_calibration("a") == (number, {"body": 1 + (number == second), **AWKWARD})
        assert [each.id for each in store.calibrations("a") if each.active] == [number]
    for wrong in (foreign, 0, -1, 10**6, 2**80):
        with pytest.raises(UnknownEntryError, match="To fix"):
            store.activate("a", wrong)
        assert store.calibration("a", wrong) is None
    assert [(each.id, each.card) for each in store.calibrations("a")] == [
        (first, {"card": 1}),
        (second, {"card": 2}),
    ]
    assert all(before <= each.created <= datetime.now(UTC) for each in store.calibrations("a"))
    assert store.active_calibration("a")[0] == first
    store.activate("a", None)
    assert store.active_calibration("a") is None
    assert store.calibration("a", second) == {"body": 2, **AWKWARD}


def test_nothing_is_added_to_a_cluster_that_is_not_stored(store):
    for call in (
        lambda: store.add_measurements("none", [{}]),
        lambda: store.add_calibration("none", {}, {}),
        lambda: store.activate("none", None),
    ):
        with pytest.raises(UnknownEntryError, match="'none'.*To fix"):
            call()


def test_models_and_reports_replace_those_of_their_name(store):
    for label in ("old", ""):
        store.put_model("uploads/1", label=label, kind="onnx", graph={"g": label, **AWKWARD}, facts={"f": 1})
    store.put_model("uploads/0", label="é", kind="pt2", graph={}, facts={})
    found = store.model("uploads/1")
    assert (found.label, found.kind, found.graph, found.facts) == ("", "onnx", {"g": "", **AWKWARD}, {"f": 1})
    assert [each.name for each in store.models()] == ["uploads/0", "uploads/1"]
    assert store.delete_model("uploads/1")
    assert not store.delete_model("uploads/1")
    assert store.model("uploads/1") is None

    at = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=timezone(timedelta(hours=5)))
    store.put_server("not stored", "b", {"said": 1}, at=at)
    store.put_server("not stored", "b", {"said": 2}, at=at + timedelta(microseconds=1))
    store.put_server("not stored", "a", AWKWARD, at=at)
    assert store.servers("not stored") == [
        ("a", AWKWARD, at), ("b", {"said": 2}, at + timedelta(microseconds=1)),
    ]  # fmt: skip


def test_names_break_no_rule(store):
    at = datetime.now(UTC)
    for name in ("", "x" * 201, "a\nb", "\x00", "\ud800", "a\x1b[2J", None, 7, b"a"):
        for call in (
            lambda name=name: store.put_cluster(name, {}),
            lambda name=name: store.put_model(name, label="", kind="onnx", graph={}, facts={}),
            lambda name=name: store.put_server("a", name, {}, at=at),
        ):
            with pytest.raises(EntryError, match=r"1 to 200 printable characters.*To fix"):
                call()


def test_what_is_too_large_is_refused_before_it_is_sent(store):
    store.put_cluster("a", {})
    with pytest.raises(EntryTooLargeError, match="4,194,304"):
        store.put_cluster("a", {"x": "y" * LARGEST_BYTES["cluster"]})
    with pytest.raises(EntryTooLargeError, match="100,000"):
        store.add_measurements("a", [{}] * (MOST_ROWS + 1))
    deep: dict = {}
    for _ in range(100_000):
        deep = {"x": deep}
    with pytest.raises(EntryError, match="JSON"):
        store.put_cluster("a", deep)
    with pytest.raises(EntryError, match="time zone"):
        store.put_server("a", "b", {}, at=datetime(2026, 1, 1))
    assert store.cluster("a") == {}


def test_threads_lose_nothing_and_store_nothing_twice(store):
    """Eight writers, two readers that page on as rows come, and a key that all writers send."""
    store.put_cluster("a", {})
    calibrations = [store.add_calibration("a", {}, {}) for _ in range(4)]
    done, seen = threading.Event(), []

    def follow():
        found, after = [], 0
        while True:
            time.sleep(0.001)  # a store in memory hands its one connection to threads in no order
            last = done.is_set()
            for number, row in store.measurements("a", after=after, limit=7):
                found.append((number, row["of"]))
                after = number
            if last and not store.measurements("a", after=after):
                seen.append(found)
                return

    def write(writer):
        numbers = []
        for step in range(6):
            numbers += [(n, writer) for n in store.add_measurements("a", [{"of": writer}] * 2)]
            store.activate("a", calibrations[(writer + step) % 4])
        return numbers, store.add_measurements("a", [{"of": "all"}] * 3, key="same")

    with ThreadPoolExecutor(10) as pool:
        readers = [pool.submit(follow) for _ in range(2)]
        try:
            answers = list(pool.map(write, range(8)))
        finally:
            done.set()
        for reader in readers:
            reader.result(timeout=60)
    same = answers[0][1]
    assert all(each == same for _, each in answers)
    expected = sorted([*((n, "all") for n in same), *(pair for numbers, _ in answers for pair in numbers)])
    assert len({number for number, _ in expected}) == 8 * 6 * 2 + 3
    assert [(number, row["of"]) for number, row in store.measurements("a")] == expected
    assert seen == [expected, expected]
    assert sum(each.active for each in store.calibrations("a")) == 1


def test_a_closed_store_says_so(store):
    store.ping()
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.ping()


NAMES = st.sampled_from(["a", "b", "é"])
VALUES = st.none() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5)
DOCUMENTS = st.dictionaries(st.text(max_size=3), VALUES, max_size=2)


class Machine(RuleBasedStateMachine):
    """Any order of calls against dictionaries."""

    def __init__(self, store):
        super().__init__()
        self.store, self.clusters, self.models = store, {}, {}
        for name, _ in store.clusters():
            store.delete_cluster(name)
        for each in store.models():
            store.delete_model(each.name)

    def refused(self, name, call):
        if name not in self.clusters:
            with pytest.raises(UnknownEntryError):
                call()
            return True
        return False

    @rule(name=NAMES, document=DOCUMENTS)
    def put_cluster(self, name, document):
        self.store.put_cluster(name, document)
        new = {"rows": [], "keys": {}, "calibrations": {}, "active": None}
        self.clusters.setdefault(name, new)["document"] = document

    @rule(name=NAMES)
    def delete_cluster(self, name):
        assert self.store.delete_cluster(name) == (self.clusters.pop(name, None) is not None)

    @rule(name=NAMES, rows=st.lists(DOCUMENTS, max_size=3), key=st.none() | st.sampled_from("xy"))
    def add_measurements(self, name, rows, key):
        def add():
            return self.store.add_measurements(name, rows, key=key)

        if self.refused(name, add):
            return
        known = self.clusters[name]
        if key not in known["keys"]:
            numbers = add()
            assert len(numbers) == len(rows)
            known["rows"] += zip(numbers, rows, strict=True)
            if key is not None:
                known["keys"][key] = (numbers, repr(rows))
        elif known["keys"][key][1] == repr(rows):
            assert add() == known["keys"][key][0]
        else:
            with pytest.raises(ReusedKeyError):
                add()

    @rule(name=NAMES, body=DOCUMENTS)
    def add_calibration(self, name, body):
        def add():
            return self.store.add_calibration(name, body, {"of": name})

        if not self.refused(name, add):
            self.clusters[name]["calibrations"][add()] = body

    @rule(name=NAMES, data=st.data())
    def activate(self, name, data):
        numbers = sorted(n for each in self.clusters.values() for n in each["calibrations"])
        number = data.draw(st.sampled_from([None, *numbers]))
        if self.refused(name, lambda: self.store.activate(name, number)):
            return
        known = self.clusters[name]
        if number is None or number in known["calibrations"]:
            self.store.activate(name, number)
            known["active"] = number
        else:
            with pytest.raises(UnknownEntryError):
                self.store.activate(name, number)

    @rule(name=NAMES, graph=DOCUMENTS)
    def put_model(self, name, graph):
        self.store.put_model(name, label="", kind="onnx", graph=graph, facts={})
        self.models[name] = graph

    @rule(name=NAMES)
    def delete_model(self, name):
        assert self.store.delete_model(name) == (self.models.pop(name, None) is not None)

    @invariant()
    def same(self):
        assert self.store.clusters() == [
            (name, self.clusters[name]["document"]) for name in sorted(self.clusters)
        ]
        for name, known in self.clusters.items():
            assert self.store.measurements(name) == known["rows"]
            active = known["active"]
            assert self.store.active_calibration(name) == (
                None if active is None else (active, known["calibrations"][active])
            )
            assert [(each.id, each.active) for each in self.store.calibrations(name)] == [
                (number, number == active) for number in sorted(known["calibrations"])
            ]
        assert {each.name: self.store.model(each.name).graph for each in self.store.models()} == self.models


def test_any_order_of_calls_does_what_dictionaries_do(store):
    few = settings(max_examples=4, stateful_step_count=15, deadline=None)
    run_state_machine_as_test(lambda: Machine(store), settings=few)
