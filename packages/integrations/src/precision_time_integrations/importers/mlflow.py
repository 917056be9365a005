"""Runs of MLflow: its folder of files, its SQLite store, the table of a search, and exported runs.

The time of a step is that between time stamps of a metric (milliseconds); settings are the parameters.
Artifacts are never opened: a run may name any place for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from precision_time.errors import CorpusError

from .bounded import (
    csv_rows,
    database,
    is_folder,
    is_regular,
    names_in,
    small_json,
    small_text,
    small_yaml,
    tables_of,
)
from .contract import ImportedRun, Importer, LoggedStep, finite, unreadable
from .curves import Curve, CurveSteps, steps_of_curves
from .parameters import device_called, fields_of_parameters

_META = "meta.yaml"
_TABLES = {"runs", "metrics", "params", "experiments"}
_MILLI = 1e-3
_MOST_RUNS = 10_000
_MOST_POINTS = 2_000_000
_METRIC_BYTES = 64 * 1024**2
_DEEP = 4
_GPU_TAGS = ("gpu_name", "gpu_type", "gpu", "device", "mlflow.databricks.gpu")


def _run_of(
    name: str,
    origin: str,
    *,
    settings: Mapping[str, Any],
    tags: Mapping[str, str],
    curves: Mapping[str, Curve],
    last: Mapping[str, float],
    more_notes: tuple[str, ...] = (),
) -> ImportedRun:
    fields, notes = fields_of_parameters(settings)
    if device := next(filter(None, (device_called(tags.get(tag)) for tag in _GPU_TAGS)), None):
        fields.setdefault("device", device)
    found = steps_of_curves(curves, epochs=fields.get("epochs"))
    if not found.steps:
        steps, of_totals = steps_of_totals(last, fields.get("steps"))
        found = CurveSteps(steps=steps, notes=of_totals or found.notes)
    return ImportedRun(
        name=name,
        origin=origin,
        importer="mlflow",
        fields=fields,
        steps=found.steps,
        notes=(*notes, *found.notes, *more_notes),
        clock_resolution_s=_MILLI,
        reports_epochs=found.reports_epochs,
    )


def steps_of_totals(
    metrics: Mapping[str, float], steps: int | None
) -> tuple[tuple[LoggedStep, ...], tuple[str, ...]]:
    """One report out of the totals that Hugging Face's trainer logs at the end of a run.

    Args:
        metrics: Name to last value.
        steps: Of the run, where the settings say it.
    """
    by_name = {re.split(r"[/]", name)[-1]: value for name, value in metrics.items()}
    rate = finite(by_name.get("train_steps_per_second"))
    runtime_s = finite(by_name.get("train_runtime"))
    if rate is None and not (runtime_s and steps):
        return (), ()
    time_s = runtime_s / steps if runtime_s and steps else 1.0 / (rate or 1.0)
    report = LoggedStep(step=steps or 1, step_time_s=time_s, steps=steps or 1)
    return (report,), ("the mean of the whole run, start and evaluations included: no time of each step",)


def _read_folder(path: Path) -> list[ImportedRun]:
    runs = [_read_run(folder) for folder in _run_folders(path)]
    if not runs:
        raise unreadable(path, "holds no run of MLflow", "name mlruns, an experiment in it, or a run")
    return runs


def _run_folders(path: Path) -> Iterator[Path]:
    """The run that a folder is, or the runs of its experiments; deleted ones left out."""
    if is_regular(path / _META) and is_folder(path / "metrics"):
        yield path
        return
    count = 0
    for level in (path, *(path / name for name in names_in(path))):
        if level != path and not is_folder(level):
            continue
        for name in names_in(level) if level == path or is_regular(level / _META) else ():
            if name.startswith(".") or not is_folder(level / name / "metrics"):
                continue
            if is_regular(level / name / _META):
                count += 1
                if count > _MOST_RUNS:
                    raise unreadable(path, f"holds more than {_MOST_RUNS:,} runs", "name one experiment")
                yield level / name


def _read_run(folder: Path) -> ImportedRun:
    meta = small_yaml(folder / _META)
    meta = meta if isinstance(meta, Mapping) else {}
    skipped: list[str] = []
    curves: dict[str, Curve] = {}
    last: dict[str, float] = {}
    for name, file in _entries(folder / "metrics"):
        try:
            text = small_text(file, most=_METRIC_BYTES)
        except CorpusError:
            skipped.append(f"metric {name[:60]!r} could not be read")
            continue
        curves[name] = Curve()
        for line in text.splitlines():
            cells = line.split()
            if len(cells) < 2:
                continue
            try:
                step = int(cells[2]) if len(cells) > 2 else len(curves[name])
                curves[name].add(step, int(cells[0]) * _MILLI)
                last[name] = float(cells[1])
            except (ValueError, OverflowError):
                skipped.append(f"a line of metric {name[:60]!r} is cut or is none")
    params, tags = (
        {name: _short_text(file) for name, file in _entries(folder / kind)} for kind in ("params", "tags")
    )
    name = str(meta.get("run_name") or tags.get("mlflow.runName") or meta.get("run_id") or folder.name)
    return _run_of(
        name[:200], folder.name, settings=params, tags=tags, curves=curves, last=last,
        more_notes=tuple(dict.fromkeys(skipped))[:5],
    )  # fmt: skip


def _entries(folder: Path, *, deep: int = _DEEP) -> Iterator[tuple[str, Path]]:
    """Names and files below a folder: a name with a slash is a folder with a file; links are left out."""
    for name in names_in(folder):
        path = folder / name
        if is_regular(path):
            yield name, path
        elif deep and is_folder(path):
            yield from ((f"{name}/{rest}", file) for rest, file in _entries(path, deep=deep - 1))


def _short_text(path: Path) -> str:
    try:
        return small_text(path, most=64 * 1024).strip()
    except CorpusError:
        return ""


def _read_database(path: Path) -> list[ImportedRun]:
    with database(path) as connection:
        found = connection.execute(
            "SELECT run_uuid, name FROM runs WHERE lifecycle_stage IS NOT 'deleted' "
            "ORDER BY start_time, run_uuid LIMIT ?",
            (_MOST_RUNS,),
        ).fetchall()
        runs = []
        for uuid, name in found:
            params, tags = (
                {str(key): str(value) for key, value in connection.execute(query, (uuid,)).fetchmany(20_000)}
                for query in (
                    "SELECT key, value FROM params WHERE run_uuid = ?",
                    "SELECT key, value FROM tags WHERE run_uuid = ?",
                )
            )
            curves: dict[str, Curve] = {}
            last: dict[str, float] = {}
            rows = connection.execute(
                "SELECT key, step, timestamp, value FROM metrics WHERE run_uuid = ? "
                "ORDER BY timestamp, step LIMIT ?",
                (uuid, _MOST_POINTS),
            )
            for key, step, stamp, value in rows:
                if isinstance(step, int) and isinstance(stamp, int):
                    curves.setdefault(str(key), Curve()).add(step, stamp * _MILLI)
                    last[str(key)] = value
            runs.append(
                _run_of(
                    str(name or uuid)[:200], f"{path.name}, run {uuid}", settings=params, tags=tags,
                    curves=curves, last=last,
                )
            )  # fmt: skip
    if not runs:
        raise unreadable(path, "holds no run", "name the store of your experiments")
    return runs


def _read_search(path: Path) -> list[ImportedRun]:
    """Rows of `mlflow experiments csv` or of `search_runs().to_csv`: totals, no time of each step."""
    runs = []
    for row in csv_rows(path):
        if not row.get("run_id"):
            raise unreadable(path, "has a row without run_id", "name the table of a search")
        parts: dict[str, dict[str, str]] = {"metrics": {}, "params": {}, "tags": {}}
        for column, cell in row.items():
            kind, _, name = column.partition(".")
            if kind in parts and cell:
                parts[kind][name] = cell
        name = parts["tags"].get("mlflow.runName") or row["run_id"]
        last = {key: value for key, cell in parts["metrics"].items() if (value := finite(cell)) is not None}
        runs.append(
            _run_of(
                name, f"{path.name}, run {row['run_id']}", settings=parts["params"], tags=parts["tags"],
                curves={}, last=last,
            )
        )  # fmt: skip
    return runs


def _read_export(path: Path) -> list[ImportedRun]:
    """`run.json` of mlflow-export-import."""
    content = small_json(path)
    run = content.get("mlflow") if isinstance(content, Mapping) else None
    if not isinstance(run, Mapping) or not isinstance(run.get("metrics"), Mapping):
        raise unreadable(path, "is no exported run of MLflow", "name run.json of export-run")
    curves: dict[str, Curve] = {}
    last: dict[str, float] = {}
    for name, points in run["metrics"].items():
        for point in points if isinstance(points, list) else ():
            stamp, step = finite(point.get("timestamp")), point.get("step")
            if stamp is not None and isinstance(step, int):
                curves.setdefault(str(name), Curve()).add(step, stamp * _MILLI)
                last[str(name)] = point.get("value")
    params, tags, info = (
        run[kind] if isinstance(run.get(kind), Mapping) else {} for kind in ("params", "tags", "info")
    )
    name = str(info.get("run_name") or info.get("run_id") or path.parent.name)
    return [_run_of(name, path.name, settings=params, tags=tags, curves=curves, last=last)]


def _is_folder(path: Path, head: bytes) -> bool:
    if head or not path.is_dir():
        return False
    try:
        return next(_run_folders(path), None) is not None
    except CorpusError:
        return False


def _is_search(path: Path, head: bytes) -> bool:
    columns = head.split(b"\n", 1)[0].split(b",")
    return b"run_id" in columns and b"experiment_id" in columns


IMPORTERS = (
    Importer(
        name="mlflow",
        description="MLflow: the folder mlruns, an experiment or a run in it",
        matches=_is_folder,
        read=_read_folder,
        folders=True,
    ),
    Importer(
        name="mlflow-sqlite",
        description="MLflow: its SQLite store (mlflow.db)",
        matches=lambda path, head: tables_of(path, head) >= _TABLES,
        read=_read_database,
    ),
    Importer(
        name="mlflow-csv",
        description="MLflow: the table of `mlflow experiments csv` or of search_runs (totals only)",
        matches=_is_search,
        read=_read_search,
    ),
    Importer(
        name="mlflow-run",
        description="MLflow: run.json of mlflow-export-import",
        matches=lambda path, head: path.name == "run.json" and b'"mlflow"' in head,
        read=_read_export,
    ),
)
