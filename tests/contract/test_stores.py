"""The store of measurements, a campaign's store and the CSV tables of `measure` satisfy the suite."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from precision_time.corpus.store import MeasurementStore, shipped_store
from precision_time.testing.stores import StoreSuite
from precision_time_integrations.measure.store import CsvTable
from precision_time_papers.campaign.result import TrialResult
from precision_time_papers.campaign.store import CampaignStore, read_store


class TestMeasurementStore(StoreSuite):
    def entries(self):
        with shipped_store() as store:
            return store.measurements(limit=200)[::20]

    def opened(self, path):
        return MeasurementStore(path)

    def opened_read_only(self, path):
        return MeasurementStore(path, read_only=True)

    def add(self, store, entries):
        store.add(entries)

    def stored(self, store):
        return store.measurements()

    def read(self, path):
        with closing(MeasurementStore(path, read_only=True)) as store:
            return store.measurements()


class TestCampaignStore(StoreSuite):
    atomic_add = False

    def entries(self):
        one = TrialResult(
            campaign="made-up",
            key="cnn/synthetic-64x1/w1c1/b8/fp32/adam",
            repeat=0,
            model="cnn",
            dataset="synthetic",
            dataset_fraction=1.0,
            num_samples=64,
            num_workers=1,
            cpus_per_worker=1.0,
            gpus_per_worker=0.0,
            batch_per_worker=8,
            precision="fp32",
            optimizer="adam",
        )
        failed = replace(one, repeat=1, status="failed", error="out of memory\n'quoted', and more")
        return [
            one,
            failed,
            replace(one, repeat=2, epoch_times_s=(1.0, 2.0), hosts=("a", "b"), sizes={"h": 2.0}),
        ]

    def opened(self, path):
        return CampaignStore(path)

    def add(self, store, entries):
        for entry in entries:
            store.add(entry)

    def stored(self, store):
        return store.results()

    def read(self, path):
        return read_store(path)


class TestCsvTable(StoreSuite):
    atomic_add = False
    sqlite = False
    refuses_missing = False

    def entries(self):
        return [{"x": "1", "y": "a, b"}, {"x": "2", "y": 'with "quotes"'}, {"x": "3", "y": ""}]

    def opened(self, path: Path):
        table = CsvTable(path, ("x", "y"))

        @contextmanager
        def opened() -> Iterator[CsvTable]:
            yield table

        return opened()

    def add(self, store, entries):
        for entry in entries:
            store.add(entry)

    def stored(self, store):
        return list(store.rows())

    def read(self, path):
        return list(CsvTable(path, ("x", "y")).rows())
