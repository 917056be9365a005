"""Runs of Weights & Biases: the folder of a run (offline or synchronised), exported histories.

The time of a step is that between rows of the history (`_runtime`, `_timestamp`); system metrics are sampled
on a clock of their own and are no steps. Rows are counted in optimizer steps where the trainer logs them
(`train/global_step`, `trainer/global_step`), else in calls of `wandb.log`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from precision_time.errors import CorpusError

from .bounded import csv_rows, is_regular, json_lines, names_in, opened, small_json, small_yaml
from .contract import MOST_STEPS, ImportedRun, Importer, LoggedStep, finite, unreadable
from .curves import EVALUATION, GLOBAL_STEPS, CurveSteps, Point, reports
from .parameters import device_called, fields_of_parameters
from .wire import DamagedRecordError, first, inner, leveldb_records, message, text, whole

_HEADER = b":W&B"
_HISTORY, _CONFIG, _RUN, _ENVIRONMENT = 2, 5, 17, 26
"""Fields of wandb_internal.Record (wandb/proto/wandb_internal.proto)."""
_ITEM, _HISTORY_STEP, _UPDATE = 1, 2, 1
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16
_RUN_CONFIG, _RUN_NAME = 4, 8
_GPU_TYPE, _GPU_COUNT = 18, 19
_CLOCKS = ("_runtime", "_timestamp")
_EXTENSION = ".wandb"
_OWN = "_"


class _History:
    """What the records of a run's file hold."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.config: dict[str, Any] = {}
        self.gpu: str = ""
        self.gpus = 0
        self.name = ""
        self.notes: list[str] = []

    def read(self, path: Path) -> None:
        """Add the transaction log of a run; one that is cut is read as far as it goes."""
        count = 0
        with opened(path) as file:
            try:
                for record in leveldb_records(file):
                    count += 1
                    self._add(message(record))
            except (DamagedRecordError, OSError) as error:
                if not count:
                    raise unreadable(path, f"is no log of a W&B run: {error}", "name another") from error
                self.notes.append(f"{path.name[:80]}: {error}; {count} records before it were read")

    def _add(self, record: dict[int, list[int | bytes]]) -> None:
        if _HISTORY in record:
            history = inner(first(record, _HISTORY))
            row = _items(history.get(_ITEM, ()))
            if _HISTORY_STEP in history:
                row.setdefault("_step", whole(first(inner(first(history, _HISTORY_STEP)), 1)))
            if len(self.rows) < MOST_STEPS:
                self.rows.append(row)
        if _CONFIG in record:
            self.config |= _items(inner(first(record, _CONFIG)).get(_UPDATE, ()))
        if _RUN in record:
            run = inner(first(record, _RUN))
            self.config |= _items(inner(first(run, _RUN_CONFIG)).get(_UPDATE, ()))
            self.name = text(first(run, _RUN_NAME)) or text(first(run, 1))
        if _ENVIRONMENT in record:
            environment = inner(first(record, _ENVIRONMENT))
            self.gpu = text(first(environment, _GPU_TYPE)) or self.gpu
            self.gpus = whole(first(environment, _GPU_COUNT)) or self.gpus


def _items(items: Iterable[int | bytes]) -> dict[str, Any]:
    """Keys with values of JSON; nested keys joined by a slash."""
    found: dict[str, Any] = {}
    for item in items:
        fields = inner(item)
        name = text(first(fields, _KEY)) or "/".join(text(part) for part in fields.get(_NESTED_KEY, ()))
        try:
            found[name] = json.loads(text(first(fields, _VALUE_JSON)))
        except (ValueError, RecursionError):
            continue
    return found


def steps_of_rows(rows: Iterable[Mapping[str, Any]], *, epochs: float | None = None) -> CurveSteps:
    """The reports of a history.

    Args:
        rows: Of the history: numbers or texts by name, `_runtime` or `_timestamp` among them.
        epochs: Of the run, where its settings say it.
    """
    points: list[Point] = []
    pauses: list[float] = []
    counter = clock = ""
    own = []
    for row in rows:
        if clock or (clock := next((name for name in _CLOCKS if finite(row.get(name))), "")):
            own.append(row)
    counter = next((name for name in GLOBAL_STEPS if sum(_has(row, name) for row in own[:1000]) > 1), "_step")
    for row in own:
        at_s = finite(row.get(clock))
        step = finite(row.get(counter)) or (0.0 if _has(row, counter) else None)
        if at_s is None or step is None:
            continue
        names = [name for name in row if not name.startswith(_OWN) and name != counter and _has(row, name)]
        if names and all(EVALUATION.search(name) for name in names if name != "epoch"):
            pauses.append(at_s)
        else:
            points.append(Point(int(step), at_s))
    if len({point.step for point in points}) < 2:
        return CurveSteps(notes=("the history has fewer than two rows of training with a time",))
    counts_epochs = epochs is not None and max(point.step for point in points) <= epochs
    counted = "optimizer steps"
    if counter == "_step":
        counted = f"calls of wandb.log, counted as {'epochs' if counts_epochs else counted}"
    return CurveSteps(
        steps=reports(points, () if counts_epochs else pauses),
        notes=(f"{counter}: {counted}; times of {clock}",),
        reports_epochs=counts_epochs,
    )


def _has(row: Mapping[str, Any], name: str) -> bool:
    return row.get(name) not in (None, "")


def _read_folder(folder: Path) -> list[ImportedRun]:
    history = _History()
    for name in names_in(folder):
        if name.startswith("run-") and name.endswith(_EXTENSION) and is_regular(folder / name):
            history.read(folder / name)
    files = folder / "files"
    for name, read in (("config.yaml", small_yaml), ("wandb-metadata.json", small_json)):
        if not is_regular(files / name):
            continue
        try:
            found = read(files / name)
        except CorpusError as error:
            history.notes.append(f"{name} was left out: {error}"[:300])
            continue
        if isinstance(found, Mapping) and name == "config.yaml":
            history.config = {**found, **history.config}
        elif isinstance(found, Mapping):
            history.gpu = history.gpu or str(found.get("gpu") or "")
            history.gpus = history.gpus or int(finite(found.get("gpu_count")) or 0)
    run = _run(history, folder.name, folder.name)
    return [run if run.steps else _with_summary(run, files)]


def _with_summary(run: ImportedRun, files: Path) -> ImportedRun:
    """A run without a history: the mean of its summary, where there is one."""
    if not is_regular(files / "wandb-summary.json"):
        return run
    summary = small_json(files / "wandb-summary.json")
    summary = summary if isinstance(summary, Mapping) else {}
    counter = next((name for name in GLOBAL_STEPS if finite(summary.get(name))), "_step")
    steps, runtime_s = finite(summary.get(counter)), finite(summary.get("_runtime"))
    if steps is None or runtime_s is None:
        return run
    report = LoggedStep(step=int(steps), step_time_s=runtime_s / steps, steps=int(steps))
    note = (
        f"no history: the mean over the whole run ({counter} of the summary), start and evaluations included"
    )
    return ImportedRun(
        name=run.name, origin=run.origin, importer=run.importer, fields=run.fields, steps=(report,),
        notes=(*run.notes, note),
    )  # fmt: skip


def _read_log(path: Path) -> list[ImportedRun]:
    history = _History()
    history.read(path)
    return [_run(history, path.stem, path.name)]


def _run(history: _History, name: str, origin: str) -> ImportedRun:
    fields, notes = fields_of_parameters(history.config)
    device = device_called(history.gpu)
    if device:
        fields.setdefault("device", device)
        # Of the machine: a job on several of them says its world size in its settings.
        fields.setdefault("gpus", history.gpus or 1)
        notes += (f"{fields['gpus']} GPUs are those of the machine that wrote the run",)
    elif history.gpu:
        notes += (f"GPU {history.gpu[:60]!r} is in no catalog",)
    found = steps_of_rows(history.rows, epochs=fields.get("epochs"))
    return ImportedRun(
        name=history.name or name,
        origin=origin,
        importer="wandb",
        fields=fields,
        steps=found.steps,
        notes=(*notes, *found.notes, *history.notes[:10]),
        reports_epochs=found.reports_epochs,
    )


def _read_table(path: Path) -> list[ImportedRun]:
    return [_of_rows(path, csv_rows(path))]


def _read_lines(path: Path) -> list[ImportedRun]:
    return [_of_rows(path, json_lines(path))]


def _of_rows(path: Path, rows: Iterator[Mapping[str, Any]]) -> ImportedRun:
    found = steps_of_rows(rows)
    return ImportedRun(
        name=path.stem,
        origin=path.name,
        importer="wandb",
        steps=found.steps,
        notes=(*found.notes, "a history holds no settings: give those of the run"),
    )


def _is_folder(path: Path, head: bytes) -> bool:
    if head or not path.is_dir():
        return False
    try:
        if any(name.startswith("run-") and name.endswith(_EXTENSION) for name in names_in(path)):
            return True
    except CorpusError:
        return False
    return is_regular(path / "files" / "wandb-metadata.json") or is_regular(
        path / "files" / "wandb-summary.json"
    )


def _is_table(path: Path, head: bytes) -> bool:
    columns = [cell.strip(b'"\r ') for cell in head.split(b"\n", 1)[0].split(b",")]
    return b"_step" in columns and (b"_runtime" in columns or b"_timestamp" in columns)


def _is_lines(path: Path, head: bytes) -> bool:
    line = head.split(b"\n", 1)[0]
    return line.startswith(b"{") and b'"_step"' in line and (b'"_runtime"' in line or b'"_timestamp"' in line)


IMPORTERS = (
    Importer(
        name="wandb",
        description="Weights & Biases: the folder of a run (wandb/run-*, wandb/offline-run-*)",
        matches=_is_folder,
        read=_read_folder,
        folders=True,
    ),
    Importer(
        name="wandb-log",
        description="Weights & Biases: the file run-ID.wandb of a run",
        matches=lambda path, head: head.startswith(_HEADER),
        read=_read_log,
    ),
    Importer(
        name="wandb-csv",
        description="Weights & Biases: a history exported as CSV (with _step and _runtime or _timestamp)",
        matches=_is_table,
        read=_read_table,
    ),
    Importer(
        name="wandb-jsonl",
        description="Weights & Biases: run.scan_history() written as JSON lines",
        matches=_is_lines,
        read=_read_lines,
    ),
)
