"""kill -9 in the middle of writes, and disks that are full: what was acknowledged stays, what is there opens.

A child writes one entry after the other and says so of each; it is killed at a random moment, or may only
write so many bytes. Then the file is opened as a user would.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from precision_time.corpus.importer import read_measurements
from precision_time.corpus.measurement import Measurement
from precision_time.corpus.store import MeasurementStore
from precision_time.errors import NotFittedError, PrecisionTimeError
from precision_time.io import write_atomically
from precision_time_integrations.measure.store import CsvTable
from precision_time_papers.campaign.result import TrialResult
from precision_time_papers.campaign.store import CampaignStore, read_store

_ROWS = Path(__file__).parents[2] / "packages/papers/tests/evaluation/data/runs.csv"
_SIZE = 20_000
_LONGEST_S = 60
_OURS, _NOT_OURS = 3, 4
"""Exit codes of a child whose write was refused: with an error of ours, or with another."""


class Writer(NamedTuple):
    """Something that is written entry by entry."""

    name: str
    what: str
    write: Callable[[Path], Iterator[None]]
    """Writes entry 0, 1, 2 ... of a folder, one each time it is asked."""
    stored: Callable[[Path], int]
    """How many entries a folder holds; raises where it is damaged."""
    longest_s: float = 0.05
    """A kill comes within this time of the first entry."""
    most_full: float = 5.0
    """Power of ten of the bytes that a file may have at most on a full disk; entries are larger."""


def _table(folder: Path) -> CsvTable:
    return CsvTable(folder / "rows.csv", ("number", "text"))


def _write_table(folder: Path) -> Iterator[None]:
    table = _table(folder)
    for number in range(_SIZE):
        table.add({"number": number, "text": f"row {number} " * 20})
        yield


def _table_rows(folder: Path) -> int:
    rows = [*_table(folder).rows()]
    assert [row["number"] for row in rows] == [str(number) for number in range(len(rows))], rows[-2:]
    assert all(row["text"] == " ".join((f"row {row['number']} " * 20).split()) for row in rows)
    return len(rows)


def _trial(number: int) -> TrialResult:
    return TrialResult(
        campaign="kills", key=f"trial {number}", repeat=0, model="cnn", dataset="synthetic",
        dataset_fraction=1.0, num_samples=64, num_workers=1, cpus_per_worker=1.0, gpus_per_worker=0.0,
        batch_per_worker=8, precision="fp32", optimizer="adam", sizes={}, device="CPU", step_time_s=0.02,
        samples_per_s=400.0, train_time_s=0.16,
    )  # fmt: skip


def _write_campaign(folder: Path) -> Iterator[None]:
    with CampaignStore(folder / "store.db") as store:
        for number in range(_SIZE):
            store.add(_trial(number))
            yield


def _trials(folder: Path) -> int:
    path = folder / "store.db"
    if not path.exists():
        return 0
    with CampaignStore(path):  # may be written to again
        found = read_store(path)
    assert found == [_trial(number) for number in range(len(found))]
    return len(found)


@cache
def _measured() -> list[Measurement]:
    return [row for row in read_measurements(_ROWS) if isinstance(row, Measurement)][:3]


def _write_measurements(folder: Path) -> Iterator[None]:
    with MeasurementStore(folder / "own.sqlite") as store:
        for _ in range(_SIZE):
            store.add(_measured())
            yield


def _measurements(folder: Path) -> int:
    if not (folder / "own.sqlite").exists():
        return 0
    with MeasurementStore(folder / "own.sqlite") as store:
        whole, rest = divmod(len(store), len(_measured()))
    assert rest == 0, "half of what is stored at once"
    return whole


def _write_file(folder: Path) -> Iterator[None]:
    for number in range(_SIZE):
        write_atomically(folder / "answers.json", json.dumps([number] * 50_000))
        yield


def _file(folder: Path) -> int:
    path = folder / "answers.json"
    if not path.exists():
        return 0
    numbers = json.loads(path.read_text(encoding="utf-8"))
    assert len(numbers) == 50_000 and len(set(numbers)) == 1
    return int(numbers[0]) + 1


def _write_registry(folder: Path) -> Iterator[None]:
    from dataclasses import replace

    from precision_time_papers.predictddl.registry import Registry

    shipped = Registry.default()
    kind = shipped.types()[0]
    trained = shipped.load(kind)
    registry = Registry(own=folder)
    for _ in range(_SIZE):
        registry.save(replace(trained, version=0))
        yield


def _versions(folder: Path) -> int:
    from precision_time_papers.predictddl.registry import Registry

    entries = Registry(own=folder).entries()
    assert not [entry.problem for entry in entries if entry.problem]
    for entry in entries[-1:]:
        Registry(own=folder).load(entry.dataset_type, entry.version)
    return len(entries)


def _write_predictor(folder: Path) -> Iterator[None]:
    from dataclasses import replace

    from precision_time.learn.artifact import shipped_predictor

    trained = shipped_predictor()
    ids = trained.measurements.measurement_ids
    for number in range(_SIZE):
        marked = ids.copy()
        marked[0] = number  # in the arrays and in the card
        replace(
            trained,
            measurements=replace(trained.measurements, measurement_ids=marked),
            model_card={**trained.model_card, "mark": number},
        ).save(folder)
        yield


def _predictor(folder: Path) -> int:
    from precision_time.learn.artifact import load_predictor

    try:
        found = load_predictor(folder)
    except NotFittedError:  # refused by name, which is no loss before the first is complete
        return 0
    assert found.measurements.measurement_ids[0] == found.model_card["mark"], "arrays of one, card of another"
    return int(found.model_card["mark"]) + 1


WRITERS = (
    Writer("tables", "tables of `measure` (CSV)", _write_table, _table_rows),
    Writer("campaigns", "stores of campaigns (SQLite)", _write_campaign, _trials),
    Writer("measurements", "stores of measurements (SQLite)", _write_measurements, _measurements),
    Writer("files", "files written in one step: answers, calibrations, layouts, models", _write_file, _file),
    Writer("registry", "registry of PredictDDL", _write_registry, _versions, 0.5, 3.0),
    Writer("predictors", "own predictors", _write_predictor, _predictor, 3.0),
)


def _child(writer: Writer, folder: Path, told: int, most_bytes: int | None) -> None:
    """What the child does: writes, and sends a byte for each entry that was acknowledged."""
    code = _NOT_OURS
    signal.alarm(_LONGEST_S)
    try:
        if most_bytes is not None:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # the write fails instead, as on a full disk
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        for _ in writer.write(folder):
            os.write(told, b".")
    except PrecisionTimeError:
        code = _OURS
    except BaseException:  # noqa: BLE001 - the exit code tells
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


@contextmanager
def _running(writer: Writer, folder: Path, most_bytes: int | None = None) -> Iterator[tuple[int, int]]:
    """The child's number, and where it says what was acknowledged."""
    read, told = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _child(writer, folder, told, most_bytes)
    os.close(told)
    try:
        yield child, read
    finally:
        os.close(read)


def _count(read: int) -> int:
    count = 0
    while part := os.read(read, 65536):
        count += len(part)
    return count


def kill_once(writer: Writer, folder: Path, after_s: float) -> None:
    """Kill a writer some time after its first entry.

    Raises:
        AssertionError: If something acknowledged is lost, or what is there is damaged.
    """
    with _running(writer, folder) as (child, read):
        first = len(os.read(read, 1))
        time.sleep(after_s)
        os.kill(child, signal.SIGKILL)
        acknowledged = first + _count(read)
        os.waitpid(child, 0)
    stored = writer.stored(folder)
    assert stored >= acknowledged, f"{acknowledged} entries were acknowledged, {stored} are there"


def fill_once(writer: Writer, folder: Path, most_bytes: int) -> None:
    """Let no file grow beyond some size: the writer says so in our words, and keeps what it had.

    Raises:
        AssertionError: If not.
    """
    with _running(writer, folder, most_bytes) as (child, read):
        acknowledged = _count(read)
        _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == _OURS, f"exit code {os.waitstatus_to_exitcode(status)}"
    stored = writer.stored(folder)
    assert stored >= acknowledged, f"{acknowledged} entries were acknowledged, {stored} are there"


def counts_of(writer: Writer, *, kills: int, fills: int, seed: int = 0) -> dict[str, Any]:
    """How many kills and full disks a writer survived, and of how many."""
    chance = random.Random(seed)
    found: dict[str, Any] = {
        "what": writer.what,
        "kills": kills,
        "killed_well": 0,
        "full": fills,
        "full_well": 0,
    }
    times: list[tuple[str, Callable[[Path], None]]] = [
        ("killed_well", lambda folder: kill_once(writer, folder, chance.uniform(0.0, writer.longest_s)))
    ] * kills
    times += [
        (
            "full_well",
            lambda folder: fill_once(writer, folder, int(10 ** chance.uniform(2.0, writer.most_full))),
        )
    ] * fills
    for name, once in times:
        folder = Path(tempfile.mkdtemp())
        try:
            once(folder)
            found[name] += 1
        except (AssertionError, PrecisionTimeError) as error:
            found.setdefault("faults", []).append(f"{name}: {error}"[:300])
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return found


def all_counts(plan: Mapping[str, tuple[int, int]]) -> dict[str, dict[str, Any]]:
    """The counts of the writers of a plan: name to kills and full disks."""
    return {
        writer.name: counts_of(writer, kills=plan[writer.name][0], fills=plan[writer.name][1])
        for writer in WRITERS
        if writer.name in plan
    }
