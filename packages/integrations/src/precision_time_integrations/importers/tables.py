"""Tables that trainers write: Lightning's metrics.csv, Ultralytics' results.csv."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from precision_time.errors import CorpusError
from precision_time.io import open_input_text, read_input, read_yaml

from .contract import MOST_STEPS, ImportedRun, Importer, LoggedStep, finite, unreadable
from .lines import count
from .settings import known_model

_STEP_TIMES = (
    "step_time",
    "train_step_time",
    "time_per_step",
    "iter_time",
    "batch_time",
    "train_step_timing in s",
    "train/step_time",
    "train/iter_time",
    "train/batch_time",
)
"""Columns that loggers of users call the time of a step [s]."""
_CLOCKS = ("time", "train/time", "elapsed_time", "wall_time", "timestamp", "created_at")
"""Columns of a time that grows over the run [s]."""
_SETTINGS_BYTES = 2**20
_REMEDY = "give the CSV as the trainer wrote it"


def rows_of(path: Path) -> Iterator[dict[str, str]]:
    """The rows of a CSV, names and cells stripped; a last row that nothing ends may be cut: it is left out.

    Raises:
        CorpusError: If it cannot be read.
    """
    try:
        with open_input_text(path, encoding="utf-8-sig", errors="replace", newline="") as file:
            whole = (line.replace("\0", "") for line in file if line.endswith(("\n", "\r")))
            for row in csv.DictReader(whole, skipinitialspace=True):
                yield {str(name).strip(): str(cell or "").strip() for name, cell in row.items() if name}
    except (OSError, csv.Error) as error:
        raise CorpusError(f"{path} is no CSV file: {error}. To fix: {_REMEDY}.") from error


def read_metrics(path: Path) -> list[ImportedRun]:
    """The run of Lightning's CSVLogger; its rows have times only where the user logged them.

    Raises:
        CorpusError: If it has no column `step`.
    """
    steps: list[LoggedStep] = []
    stride, seen = 1, 0
    names: set[str] = set()
    for row in rows_of(path):
        names |= row.keys()
        number = finite(row.get("step"))
        step = int(number) + 1 if number is not None else 1 if row.get("step") in ("0", "0.0") else None
        time_s = next((found for name in _STEP_TIMES if (found := finite(row.get(name)))), None)
        at_s = next((found for name in _CLOCKS if (found := finite(row.get(name)))), None)
        if step is None or (steps and step == steps[-1].step):
            continue
        if time_s is None and at_s is None and (set(_STEP_TIMES) | set(_CLOCKS)) & names:
            continue  # a row of other metrics
        if seen % stride == 0:
            steps.append(LoggedStep(step=step, at_s=at_s, step_time_s=time_s))
        seen += 1
        if len(steps) >= MOST_STEPS:
            steps, stride = steps[::2], 2 * stride
    if "step" not in names:
        raise unreadable(path, "has no column step", _REMEDY)
    notes = []
    if not any(step.at_s or step.step_time_s for step in steps):
        notes.append(
            "no column has times: log one (self.log('step_time', ...)), or import the log of the console"
        )
    fields: dict[str, Any] = {"framework": "pytorch"}
    return [_run(path, "lightning-csv", fields, steps, notes)]


def read_ultralytics(path: Path) -> list[ImportedRun]:
    """The run of a results.csv: elapsed time per epoch; args.yaml beside it says model and batch.

    Raises:
        CorpusError: If it cannot be read.
    """
    fields, total, notes = _arguments(path.with_name("args.yaml"))
    steps = []
    for row in rows_of(path):
        epoch, at_s = count(row.get("epoch")), finite(row.get("time"))
        if epoch is None and row.get("epoch") == "0":
            epoch = 0  # versions that count from 0 have no time
        if epoch is not None:
            steps.append(LoggedStep(step=epoch, at_s=at_s, total_steps=total))
    notes.append("times are of whole epochs, with their validation")
    if not any(step.at_s for step in steps):
        notes.append("its version (before 8.3.9) writes no times: import the log of the console")
    elif "samples" not in fields:
        notes.append(
            "steps of an epoch are not known: give --set samples= (training images), batch_size and gpus"
        )
    return [_run(path, "ultralytics", fields, steps, notes, reports_epochs=True)]


def _arguments(path: Path) -> tuple[dict[str, Any], int | None, list[str]]:
    """Fields of a request, epochs and notes out of args.yaml."""
    fields: dict[str, Any] = {"framework": "pytorch"}
    if not path.is_file() or path.stat().st_size > _SETTINGS_BYTES:
        return fields, None, ["args.yaml is not beside it"]
    try:
        tree = read_yaml(read_input(path, errors="replace"))
    except (ValueError, RecursionError):
        return fields, None, ["args.yaml beside it is no YAML"]
    said = tree if isinstance(tree, dict) else {}
    devices = [part for part in str(said.get("device") or "0").strip("[]() ").split(",") if part.strip()]
    if str(said.get("device")) != "cpu":
        fields["gpus"] = len(devices)
    if batch := count(str(said.get("batch"))):
        fields["global_batch_size"] = batch
    if side := count(str(said.get("imgsz"))):
        fields["image_size"] = side
    if said.get("amp") is True:
        fields["precision"] = "fp16-mixed"
    name = Path(str(said.get("model") or "")).stem
    if name and (known := known_model(name)):
        fields["model"] = known
    elif name:
        fields["model"] = name
    return fields, count(str(said.get("epochs"))), []


def _run(
    path: Path, importer: str, fields: dict[str, Any], steps: list[LoggedStep], notes: list[str], **more: Any
) -> ImportedRun:
    return ImportedRun(
        name=path.parent.name or path.stem,
        origin=path.name,
        importer=importer,
        fields=fields,
        steps=tuple(steps),
        notes=tuple(notes),
        **more,
    )


def _header(head: bytes) -> list[str]:
    line = head.split(b"\n", 1)[0].decode("utf-8-sig", "replace")
    return [name.strip().strip('"') for name in line.split(",")]


def _is_metrics(path: Path, head: bytes) -> bool:
    names = _header(head)
    return (
        path.suffix.lower() == ".csv" and "step" in names and ("epoch" in names or path.name == "metrics.csv")
    )


def _is_ultralytics(path: Path, head: bytes) -> bool:
    names = _header(head)
    return path.suffix.lower() == ".csv" and names[:1] == ["epoch"] and any("/" in name for name in names)


IMPORTERS: tuple[Importer, ...] = (
    Importer(
        name="ultralytics",
        description="Ultralytics (YOLO): results.csv, with args.yaml beside it",
        matches=_is_ultralytics,
        read=read_ultralytics,
    ),
    Importer(
        name="lightning-csv",
        description="Lightning's CSVLogger: metrics.csv, where times were logged",
        matches=_is_metrics,
        read=read_metrics,
    ),
)
