"""Published whole trainings beside step rates: what was reported, and what a user would type to ask for it.

Raw material for goodput, not for training: a whole run has restarts, evaluation and loaders in it.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from precision_time.corpus.schema import Row
from precision_time.errors import CorpusError

FILE = Path(__file__).with_name("famous_runs.csv")
PHASE_MARK = "|"
_CHOICES = {
    "trust": ("A", "B", "C"),
    "scope": ("run", "step"),
    "figure_from": ("source", "second hand", "memory"),
    "length_unit": ("tokens", "pixels", "seconds", ""),
}
_NUMBERS = ("tokens", "samples", "value", "year", "seconds")
_PER_PHASE = ("global_batch", "length", "steps")


@dataclass(frozen=True, kw_only=True, slots=True)
class FamousRun:
    """One published training. Phases are parts of a run that differ in length, batch or resolution."""

    name: str
    kind: str
    model: str
    device: str
    devices: int
    precision: str
    global_batch: tuple[float, ...]
    """Samples per optimizer step, of every phase or of all alike; empty where not stated."""
    length: tuple[float, ...]
    """Of a sample, in `length_unit`."""
    length_unit: str
    tokens: float | None
    """Seen in the whole run."""
    samples: float | None
    """Seen in the whole run, every epoch counted."""
    reported: str
    """What the source reports: GPU-hours, days, tokens/s ..."""
    value: float
    source: str
    year: float
    """When the source first appeared, as a decimal year: the software is taken to be of then."""
    figure_from: str
    """Whether the figure was read in the source, second hand, or written down from memory."""
    trust: str
    """A: a printed rate of a job stated in full. B: something is inferred. C: more is assumed or doubtful."""
    scope: str
    """run: `seconds` are of the whole run; step: of one step."""
    seconds: float
    """What `value` comes to in wall-clock time."""
    steps: tuple[float, ...]
    """Optimizer steps in `seconds` by phase; empty where the typed job has none that are comparable."""
    plain: tuple[str, ...]
    """What a user types after `precision-time predict` who says no layout and no stack, a line per phase."""
    typed: tuple[str, ...]
    """The same with the published layout and stack, as far as the source states them; else as `plain`."""
    not_said: str
    """What of the job the typed words leave out; empty where they say it all."""
    notes: str

    @property
    def asked(self) -> tuple[str, ...]:
        """The published layout with the software of its year, a line per phase."""
        return tuple(f"{words} --year {self.year:g}" for words in self.typed)


def famous_runs(path: str | Path | None = None) -> tuple[FamousRun, ...]:
    """The runs of a CSV with a column for every field of `FamousRun`, in file order.

    Args:
        path: The file; None for `famous_runs.csv`.

    Raises:
        CorpusError: If a column is missing or a cell breaks its rule; names the line.
    """
    return _read(FILE if path is None else Path(path))


def _read(path: Path) -> tuple[FamousRun, ...]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        wanted, found = list(FamousRun.__dataclass_fields__), list(reader.fieldnames or ())
        if found != wanted:
            raise CorpusError(
                f"{path}, line 1: the columns are {', '.join(found)}; they must be {', '.join(wanted)}. "
                "To fix: write them in this order."
            )
        runs = []
        for cells in _cells(path, reader):
            if None in cells or None in cells.values():
                raise CorpusError(
                    f"{path}, line {reader.line_num}: the row does not have {len(wanted)} cells. "
                    "To fix: complete it, or quote cells that contain commas."
                )
            runs.append(_run(Row(number=reader.line_num, path=str(path), cells=cells)))
        return tuple(runs)


def _cells(path: Path, reader: csv.DictReader[str]) -> Iterator[dict[str, str]]:
    try:
        yield from reader
    except csv.Error as error:
        raise CorpusError(
            f"{path}, line {reader.line_num} is no CSV: {error}. To fix: check for an unclosed quote."
        ) from error


def _run(row: Row) -> FamousRun:
    for column in ("name", "kind", "model", "device", "source", "plain", "typed"):
        if not row.text(column).strip():
            raise row.error(column, "is empty", "fill it in")
    for column, choices in _CHOICES.items():
        if row.text(column) not in choices:
            raise row.error(column, "is not known", f"write {' or '.join(filter(None, choices))}")
    devices = row.count_or_none("devices")
    numbers = {column: row.positive_or_none(column) for column in _NUMBERS}
    for column, number in {"devices": devices, **numbers}.items():
        if number is None and column not in ("tokens", "samples"):
            raise row.error(column, "is empty", "leave out a run without it")
    phases = {column: _phases(row, column) for column in _PER_PHASE}
    plain, typed = (
        tuple(words.strip() for words in row.text(column).split(PHASE_MARK)) for column in ("plain", "typed")
    )
    if len(plain) != len(typed):
        raise row.error("plain", f"is not of {len(typed)} phases", "write as many lines as are typed")
    for column, values in phases.items():
        # One batch or length may serve all phases, steps are of each.
        if len(values) not in ({0, len(typed)} if column == "steps" else {0, 1, len(typed)}):
            raise row.error(column, f"is not of {len(typed)} phases", "write as many as lines are typed")
    if not phases["steps"] and not row.text("not_said"):
        raise row.error("steps", "is empty", "write in not_said why the run cannot be asked")
    return FamousRun(**{**row.cells, **numbers, **phases, "devices": devices, "plain": plain, "typed": typed})  # type: ignore[arg-type]


def _phases(row: Row, column: str) -> tuple[float, ...]:
    parts = [part.strip() for part in row.text(column).split(PHASE_MARK)] if row.text(column) else []
    values = (row.with_cells(**{column: part}).positive_or_none(column) for part in parts)
    return tuple(value for value in values if value is not None)
