"""Results of Ray Tune and Ray Train: the folder of a trial, or of an experiment.

A report is one call of `tune.report` or `train.report`: its steps are counted by a metric `step`,
`global_step` or the like. Without one there is no step time, for a report may stand for an epoch.
Pickled files beside the results are never opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from precision_time.errors import CorpusError

from .bounded import csv_rows, is_folder, is_regular, json_lines, names_in, small_json
from .contract import ImportedRun, Importer, LoggedStep, finite, unreadable
from .curves import GLOBAL_STEPS, thinned
from .parameters import fields_of_parameters

_RESULT, _PROGRESS, _PARAMS = "result.json", "progress.csv", "params.json"
_OWN = {"training_iteration", "time_this_iter_s"}
_MOST_TRIALS = 10_000


def _trials(path: Path) -> Iterator[Path]:
    """The trial that a folder is, or those in it."""
    if _is_trial(path):
        yield path
        return
    count = 0
    for name in names_in(path):
        if is_folder(path / name) and _is_trial(path / name):
            count += 1
            if count > _MOST_TRIALS:
                raise unreadable(path, f"holds more than {_MOST_TRIALS:,} trials", "name some of them")
            yield path / name


def _is_trial(folder: Path) -> bool:
    return is_regular(folder / _PARAMS) and any(is_regular(folder / name) for name in (_RESULT, _PROGRESS))


def _read_folder(path: Path) -> list[ImportedRun]:
    runs = [_read_trial(folder) for folder in _trials(path)]
    if not runs:
        raise unreadable(path, "holds no trial of Ray", "name an experiment in ray_results, or a trial")
    return runs


def _read_trial(folder: Path) -> ImportedRun:
    name = _RESULT if is_regular(folder / _RESULT) and (folder / _RESULT).stat().st_size else _PROGRESS
    rows = list(json_lines(folder / name) if name == _RESULT else csv_rows(folder / name))
    notes: list[str] = []
    try:
        settings = small_json(folder / _PARAMS)
    except CorpusError as error:
        settings = {}
        notes.append(f"{_PARAMS} was left out: {error}"[:300])
    return _run(rows, settings, folder.name, folder.name, notes)


def _read_file(path: Path) -> list[ImportedRun]:
    rows = list(json_lines(path) if path.suffix == ".json" else csv_rows(path))
    if not rows or not rows[0].keys() >= _OWN:
        raise unreadable(path, "is no result of Ray", "name result.json or progress.csv of a trial")
    settings = rows[0].get("config")
    return [_run(rows, settings if isinstance(settings, Mapping) else {}, path.parent.name, path.name, [])]


def _run(rows: list[dict[str, Any]], settings: Any, name: str, origin: str, notes: list[str]) -> ImportedRun:
    settings = settings if isinstance(settings, Mapping) else {}
    inner = settings.get("train_loop_config")
    fields, of_settings = fields_of_parameters({**(inner if isinstance(inner, Mapping) else {}), **settings})
    counter = next(
        (key for key in GLOBAL_STEPS if sum(finite(row.get(key)) is not None for row in rows) > 1), ""
    )
    steps: list[LoggedStep] = []
    for row in rows:
        step, at_s = finite(row.get(counter)), finite(row.get("time_total_s"))
        if step is not None and at_s is not None and not (steps and int(step) == steps[-1].step):
            steps.append(LoggedStep(step=int(step), at_s=at_s))
    if steps:
        notes.append(f"steps are those of the metric {counter!r}, times those of time_total_s")
    else:
        times = [time for row in rows if (time := finite(row.get("time_this_iter_s")))]
        mean = f" (a report takes {median(times):.4g} s)" if times else ""
        notes.append(f"reports say no number of steps{mean}: report a metric 'step' to have a step time")
    return ImportedRun(
        name=name, origin=origin, importer="ray", fields=fields, steps=thinned(steps),
        notes=(*of_settings, *notes),
    )  # fmt: skip


def _is_folder(path: Path, head: bytes) -> bool:
    if head or not path.is_dir():
        return False
    try:
        return next(_trials(path), None) is not None
    except CorpusError:
        return False


def _is_file(path: Path, head: bytes) -> bool:
    line = head.split(b"\n", 1)[0]
    return path.name in (_RESULT, _PROGRESS) and all(word.encode() in line for word in _OWN)


IMPORTERS = (
    Importer(
        name="ray",
        description="Ray Tune and Ray Train: a trial in ray_results, or an experiment of several",
        matches=_is_folder,
        read=_read_folder,
        folders=True,
    ),
    Importer(
        name="ray-file",
        description="Ray Tune and Ray Train: result.json or progress.csv of a trial",
        matches=_is_file,
        read=_read_file,
    ),
)
