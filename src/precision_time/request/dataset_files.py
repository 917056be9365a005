"""A file of the user's own as a data set: its rows counted, the tokens of its texts estimated."""

from __future__ import annotations

import csv
import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..barrier import check_may_read
from ..errors import ConfigError, shown
from ..io import MOST_INPUT_BYTES, once_per_file, open_input_text
from ..records import dataclass

CHARACTERS_PER_TOKEN = 4.0
"""Of English text and code, roughly, whatever the tokenizer."""
_SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv")
_REMEDY = "To fix: one sample per line (.jsonl), a list (.json) or a table (.csv, .tsv); or samples=."


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetFile:
    """What a file says of the samples in it."""

    name: str
    samples: int
    mean_tokens: float | None
    """Of a sample, estimated by its characters; None where no field holds text."""

    @property
    def source(self) -> str:
        """Where the mean is from, for a reader."""
        return f"characters of its texts / {CHARACTERS_PER_TOKEN:g}, {self.samples:,} rows counted"


def is_file(dataset: str | None) -> bool:
    """Whether a data set is named by a file: by its ending, so that nothing is looked up.

    >>> is_file("my.jsonl"), is_file("alpaca"), is_file("squad1.1")
    (True, False, False)
    """
    return dataset is not None and (
        dataset.lower().endswith((*_SUFFIXES, ".parquet")) or dataset.startswith(("./", "../", "/", "~"))
    )


def file_of(dataset: str) -> DatasetFile:
    """The samples of a file, read once as long as it stays the same.

    Raises:
        ConfigError: In a service, or if the file is missing, of another kind, empty or malformed.
    """
    check_may_read(dataset)
    path = Path(dataset).expanduser()
    if path.suffix.lower() not in _SUFFIXES:
        raise ConfigError(f"dataset={shown(dataset)} is a file of a kind that is not read. {_REMEDY}")
    try:
        return once_per_file(_read, path)
    except OSError as error:
        raise ConfigError(
            f"dataset={shown(dataset)} cannot be read: {error.strerror}. To fix: a file that exists, or "
            "the name of a data set."
        ) from error


def _read(path: Path) -> DatasetFile:
    samples = characters = 0
    try:
        for row in _rows(path):
            samples += 1
            characters += sum(_characters(row))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"The data set {path.name} cannot be read: {error}. {_REMEDY}") from error
    if not samples:
        raise ConfigError(f"The data set {path.name} has no rows. {_REMEDY}")
    mean = characters / samples / CHARACTERS_PER_TOKEN
    return DatasetFile(name=path.name, samples=samples, mean_tokens=max(math.ceil(mean), 1) if mean else None)


def _rows(path: Path) -> Iterator[Any]:
    kind = path.suffix.lower()
    most = MOST_INPUT_BYTES if kind == ".json" else None  # the others are read line by line
    with open_input_text(path, encoding="utf-8-sig", newline="", most_bytes=most) as lines:
        if kind in (".csv", ".tsv"):
            csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
            table = csv.reader(lines, delimiter="\t" if kind == ".tsv" else ",")
            next(table, None)
            yield from (row for row in table if row)
            return
        if kind == ".json":
            found = _decoded(path, lines.read(), 1)
            if isinstance(found, dict):  # {"data": [...]}, as many sets are written
                found = next((value for value in found.values() if isinstance(value, list)), None)
            if not isinstance(found, list):
                raise ConfigError(f"The data set {path.name} holds no list of samples. {_REMEDY}")
            yield from found
            return
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield _decoded(path, line, number)


def _decoded(path: Path, text: str, line: int) -> Any:
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        where = line + getattr(error, "lineno", 1) - 1
        raise ConfigError(f"The data set {path.name} is no JSON at line {where}. {_REMEDY}") from error


def _characters(row: Any) -> Iterator[int]:
    """Lengths of the texts of a row, those in its dialogues among them."""
    if isinstance(row, str):
        yield len(row)
    elif isinstance(row, dict | list):
        for value in row.values() if isinstance(row, dict) else row:
            yield from _characters(value)
