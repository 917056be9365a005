"""The SQLite store: nothing lost on the way through it, nothing written half, nothing foreign opened."""

from __future__ import annotations

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace

import pytest

from build_corpus import write_store
from precision_time import predict_time
from precision_time.corpus import store as store_module
from precision_time.corpus.columns import to_json
from precision_time.corpus.measurement import Measurement, Rejected
from precision_time.corpus.store import (
    MeasurementStore,
    corpus_fingerprint,
    corpus_store,
    load_corpus,
    local_store_path,
)
from precision_time.errors import CorpusError
from precision_time.parallel.layout import Layout

STORED_WITHOUT = {
    **dict.fromkeys(("dp", "tp", "pp", "cp", "ep", "vpp", "num_microbatches", "prefetch"), 1),
    **dict.fromkeys(("zero_stage", "dp_shard"), 0),
    **dict.fromkeys(("recompute", "offload"), "none"),
    "sequence_parallel": False,
    "bucket_bytes": 25 * 2**20,
    "data_parallel_engine": "ddp",
    "etp": None,
    "reshard_after_forward": True,
    "schedule": "1f1b",
    "stage_layers": (),
    "cp_comm_type": "ring",
    "expert_capacity_factor": 0.0,
    "expert_nodes": 0,
    "expert_overlap": False,
    "recompute_layers": 0.0,
    "recompute_modules": (),
    "rank_order": ("tp", "cp", "dp", "pp"),
}
"""Of a layout: stores in use leave these values out, so that they must stay the defaults of `Layout`."""


def test_defaults_of_a_layout_are_those_that_stores_leave_out():
    assert {**asdict(Layout()), **STORED_WITHOUT} == asdict(Layout())
    assert STORED_WITHOUT.keys() | {"micro_batch_size"} == asdict(Layout()).keys()
    assert to_json(Layout(micro_batch_size=1.0)) == '{"micro_batch_size":1.0}'


@pytest.fixture
def filled(tmp_path, measurements, imported):
    path = tmp_path / "store.sqlite"
    rejected = [row for row in imported if isinstance(row, Rejected)]
    with MeasurementStore(path) as store:
        assert store.add(measurements, rejected=rejected) == (len(measurements), len(rejected))
    return path


def test_rows_come_back_as_they_went_in(filled, measurements, imported):
    with MeasurementStore(filled, read_only=True) as store:
        assert store.measurements() == measurements
        assert store.rejected() == [row for row in imported if isinstance(row, Rejected)]
        assert len(store) == len(measurements)


def test_one_open_store_serves_eight_threads():
    def ask(place):
        model = ("resnet50", "bert-large")[place % 2]
        prediction = predict_time(model=model, device="A100-SXM4-80GB", gpus=8, batch_size=8)
        return prediction.step_time_s, corpus_store().get(place + 1).row_id

    alone = [ask(place) for place in range(16)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(16))) == alone
    assert corpus_store() is corpus_store()


def test_filters(filled, measurements):
    with MeasurementStore(filled, read_only=True) as store:
        assert store.measurements(model="resnet50", device="T4") == [
            row for row in measurements if (row.model, row.device) == ("resnet50", "T4")
        ]
        assert store.measurements(precision="tf32") == [r for r in measurements if r.precision == "tf32"]
        assert store.measurements(source="vtrain")[0].source == "vtrain"
        assert store.measurements(usable_only=True) == [row for row in measurements if row.usable]
        assert (
            store.measurements(usable_only=True, limit=3) == [row for row in measurements if row.usable][:3]
        )
        assert store.measurements(model="no-such-model") == []


def test_a_store_of_usable_rows_alone_gives_them_all(tmp_path, measurements):
    usable = [row for row in measurements if row.usable]
    with MeasurementStore(tmp_path / "usable.sqlite") as store:
        store.add(usable)
        assert store.measurements(usable_only=True) == usable


def test_a_row_is_found_again_by_its_number(filled, measurements):
    with MeasurementStore(filled, read_only=True) as store:
        rows = store.measurements()
        assert [row.row_id for row in rows] == list(range(1, len(measurements) + 1))
        assert store.get(5) == measurements[4] and store.get(5).row_id == 5
        with pytest.raises(CorpusError, match="no row 10000"):
            store.get(10_000)


def test_fingerprint_follows_the_rows(measurements):
    first = corpus_fingerprint(measurements)
    assert first == corpus_fingerprint(list(measurements))
    assert first != corpus_fingerprint(measurements[1:])
    usable = next(row for row in measurements if row.usable)
    assert corpus_fingerprint([usable]) != corpus_fingerprint([replace(usable, measured_step_time_s=9.0)])


def test_sources_are_counted(filled):
    with MeasurementStore(filled, read_only=True) as store:
        counts = store.sources()
    assert counts["sia"] == {"rows": 1, "usable": 1, "rejected": 1}
    assert counts["maxtext"] == {"rows": 1, "usable": 1, "rejected": 0}


def test_write_store_replaces_only_when_complete(filled, measurements):
    def breaking():
        yield measurements[0]
        raise RuntimeError("power cut")

    before = filled.read_bytes()
    with pytest.raises(RuntimeError):
        write_store(filled, breaking())
    assert filled.read_bytes() == before
    assert list(filled.parent.iterdir()) == [filled]
    write_store(filled, measurements[:2])
    with MeasurementStore(filled, read_only=True) as store:
        assert store.measurements() == measurements[:2]


def test_the_same_rows_give_the_same_file(tmp_path, measurements):
    first, second = tmp_path / "a.sqlite", tmp_path / "b.sqlite"
    write_store(first, measurements)
    write_store(second, measurements)
    assert first.read_bytes() == second.read_bytes()


def test_damaged_rows_are_an_error_with_a_way_out(filled):
    with sqlite3.connect(filled) as connection:
        connection.execute("UPDATE text SET value = '{broken' WHERE value LIKE '{%'")
    connection.close()
    with (
        MeasurementStore(filled, read_only=True) as store,
        pytest.raises(CorpusError, match=r"damaged.*To fix"),
    ):
        store.measurements()


def test_local_store_lies_where_the_environment_says(tmp_path, monkeypatch, measurements):
    monkeypatch.setenv("PRECISION_TIME_HOME", str(tmp_path / "deep" / "home"))
    path = local_store_path()
    assert path.parent == tmp_path / "deep" / "home"
    with MeasurementStore(path) as store:
        store.add(measurements[:1])
    monkeypatch.setattr(store_module, "shipped_store", lambda: MeasurementStore(path, read_only=True))
    assert load_corpus() == measurements[:1]
    assert load_corpus(local=True) == measurements[:1] * 2


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_local_store_has_a_place_on_every_platform(monkeypatch, platform):
    monkeypatch.delenv("PRECISION_TIME_HOME", raising=False)
    monkeypatch.setattr("sys.platform", platform)
    path = local_store_path()
    assert path.parent.name == "precision-time" and path.is_absolute()


def test_measurement_without_step_time_says_so(measurements: list[Measurement]):
    row = next(row for row in measurements if row.measured_step_time_s is None)
    with pytest.raises(CorpusError, match="no step time"):
        _ = row.step_time_s
