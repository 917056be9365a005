"""`import_runs`: the runs of files and folders, whatever wrote them, and the table of their step times."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from precision_time.corpus.own import write_graphs
from precision_time.errors import CorpusError, PrecisionTimeError, in_one_line
from precision_time.io import table_cell, write_atomically
from precision_time.request.request import Request
from precision_time.workload.graph import OpGraph

from .contract import ImportedRun, MeasuredRun
from .registry import importer_of, importers, known_importer

MOST_FILES = 20_000
"""Files of a folder that are looked at."""
_DEEPEST = 12
"""Folders inside of a folder."""
_NO_DATA = frozenset({"node_modules", "__pycache__", "site-packages"})
_ANY_TEXT = "text-log"


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """What was read."""

    runs: tuple[ImportedRun, ...]
    skipped: tuple[str, ...]
    """Files that could not be read, each with the reason."""
    others: int = 0
    """Files in folders that hold no run."""


def import_runs(
    paths: Sequence[str | Path],
    *,
    form: str | None = None,
    given: Mapping[str, Any] | None = None,
    each: Callable[[Path], None] | None = None,
) -> Imported:
    """Every run in files and folders.

    Args:
        paths: Files, and folders that are walked.
        form: Name of an importer; None to recognize each file.
        given: Fields of a request that go before what the files say.
        each: Called with each file before it is read.

    Raises:
        CorpusError: If a file that is named does not exist, or nothing in any of them is a run.
        UnknownNameError: If there is no such importer.
    """
    chosen = None if form is None else known_importer(form)
    found: list[ImportedRun] = []
    skipped: list[str] = []
    others = 0
    for path in [Path(name) for name in paths]:
        if not path.exists():
            raise CorpusError(f"{path} does not exist. To fix: name a log, an export or a folder of them.")
        if not (path.is_file() or path.is_dir()):
            raise CorpusError(f"{path} is no regular file. To fix: precision-time watch follows a pipe.")
        named = not path.is_dir() or chosen is not None
        for file in [path] if chosen is not None else _files(path):
            importer = chosen or importer_of(file)
            if importer is None:
                if named:
                    skipped.append(f"{file}: {_unknown()}")
                others += 1
                continue
            if each is not None:
                each(file)
            try:
                runs = importer.read(file)
            except PrecisionTimeError as error:
                if not named and importer.name == _ANY_TEXT:
                    others += 1
                else:
                    skipped.append(in_one_line(error))
                continue
            found += _placed(runs, path, file)
    if not found:
        raise CorpusError(_nothing(paths, skipped))
    return Imported(
        runs=tuple(run.with_fields(given or {}) for run in found), skipped=tuple(skipped), others=others
    )


def _placed(runs: Sequence[ImportedRun], path: Path, file: Path) -> list[ImportedRun]:
    """The runs of a file in a folder, with the place of the file."""
    if path == file:
        return list(runs)
    inside = file.relative_to(path).parent.as_posix()
    return list(runs) if inside == "." else [replace(run, origin=f"{inside}/{run.origin}") for run in runs]


def _files(path: Path) -> Iterator[Path]:
    """The files of a folder and its folders, and folders that an importer takes whole; no links."""
    if not path.is_dir():
        yield path
        return
    count = 0
    for folder, folders, names in os.walk(path):
        here = Path(folder)
        if importer_of(here) is not None:
            folders.clear()
            yield here
            continue
        depth = len(here.relative_to(path).parts)
        folders[:] = sorted(
            name for name in folders if depth < _DEEPEST and not name.startswith(".") and name not in _NO_DATA
        )
        for name in sorted(names):
            file = here / name
            if name.startswith(".") or file.is_symlink() or not file.is_file():
                continue
            count += 1
            if count > MOST_FILES:
                raise CorpusError(
                    f"{path} holds more than {MOST_FILES:,} files. To fix: name the folders of the runs."
                )
            yield file


def _unknown() -> str:
    return f"no known format. Known: {', '.join(item.name for item in importers())}"


def _nothing(paths: Sequence[str | Path], skipped: Sequence[str]) -> str:
    named = ", ".join(str(path) for path in paths)[:500]
    if len(skipped) == 1 and "To fix:" in skipped[0]:
        return skipped[0]
    why = f" {' '.join(skipped[:3])}" if skipped else ""
    return (
        f"No run was found in {named}.{why} To fix: name a log or an export; the formats are listed by "
        "precision-time import --formats."
    )


def measured_runs(runs: Sequence[ImportedRun]) -> list[MeasuredRun]:
    """The runs that have a time of their steps."""
    return [measured for run in runs if (measured := run.measured()) is not None]


def write_measurements(path: str | Path, runs: Sequence[MeasuredRun]) -> None:
    """Write complete runs as a table that `calibrate`, `evaluate` and `--calibration` read.

    A model that is a file goes along as an operator graph, in NAME.models.json: tables name no files.

    Raises:
        CorpusError: If none is complete.
        OutputError: If it cannot be written.
        PrecisionTimeError: If the model of a file cannot be read.
    """
    path = Path(path)
    complete = [run for run in runs if run.complete]
    if not complete:
        missing = sorted({name for run in runs for name in run.missing})
        raise CorpusError(
            f"{path} is not written: no run says all that a measurement needs, missing are "
            f"{', '.join(missing) or 'times of steps'}. To fix: {remedy(missing)}."
        )
    graphs: dict[str, OpGraph] = {}
    rows = [_row_of(run, graphs) for run in complete]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([[table_cell(row.get(name, "")) for name in columns] for row in rows])
    write_atomically(path, text.getvalue())
    write_graphs(path, graphs)


def _row_of(run: MeasuredRun, graphs: dict[str, OpGraph]) -> dict[str, str]:
    """The row of a run; the graph of a model that is a file is added to the others."""
    row = run.to_row()
    if not Path(row["model"]).is_file():
        return row
    workload = Request.of(run.request_fields()).resolve().workload
    name = f"{workload.name}-{workload.graph.seq_len}" if workload.graph.seq_len else workload.name
    graphs[name] = workload.graph
    return {**row, "model": name}


_EXAMPLES = {"device": "H100-SXM5-80GB", "gpus": "8", "model": "llama3-8b", "batch_size": "4"}


def remedy(missing: Sequence[str]) -> str:
    """How fields are given that a log does not say."""
    words = " ".join(f"--set {name}={_EXAMPLES.get(name, 'VALUE')}" for name in missing)
    return f"give them, as in {words}" if words else "import a log with times"
