"""Own measurements out of what users have: a CSV of the corpus, or a measurement store."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from ...corpus.importer import read_measurements
from ...corpus.measurement import Measurement
from ...corpus.store import MeasurementStore
from ...errors import CorpusError
from ...hardware.catalog import get_device

_SQLITE = b"SQLite format 3\x00"
_APPLICATION, _MEASUREMENTS = slice(68, 72), b"PTME"
"""Where SQLite keeps the application of a file (fileformat2, 1.3), and that of a measurement store."""


def read_own(path: str | Path, *, device: str | None = None) -> list[Measurement]:
    """The usable measurements of a file.

    Args:
        path: A measurement store, or a CSV in the schema of docs/reference/corpus.md.
        device: Name of the device in the catalog, where the file spells it otherwise.

    Raises:
        CorpusError: If the file is none of these, or a cell breaks its rule; names line and column.
        UnknownNameError: If the device is unknown.
    """
    name = None if device is None else get_device(device).name
    found = [row for row in _read(Path(path)) if row.usable]
    if not found:
        raise CorpusError(f"{path} holds no measured step. To fix: measure some, or name another file.")
    return found if name is None else [replace(row, device=name) for row in found]


def is_database(path: Path, *, of_measurements: bool = False) -> bool:
    """Whether a file is an SQLite database, or one of measurements.

    Raises:
        CorpusError: If it cannot be read.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_APPLICATION.stop)
            kind = head[_APPLICATION] == _MEASUREMENTS or not of_measurements
            return head.startswith(_SQLITE) and kind
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error}. To fix: check the path.") from error


def header_of(path: Path) -> list[str]:
    """The first line of a CSV.

    Raises:
        CorpusError: If it is none.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            return next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise CorpusError(f"{path} is not a CSV file: {error}. To fix: name a CSV or a store.") from error


def _read(path: Path) -> list[Measurement]:
    if is_database(path):
        with MeasurementStore(path, read_only=True) as store:
            return store.measurements()
    return [row for row in read_measurements(path) if isinstance(row, Measurement)]
