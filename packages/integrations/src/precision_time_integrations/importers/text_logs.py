"""Text logs as runs: every known format is tried on every line, and the steps are parted into runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path

from ..projects import parts
from .contract import MOST_STEPS, ImportedRun, Importer, LoggedStep, unreadable
from .lines import Found, LineFormat, LineReader, encoding_of, lines_of


def _reader(place: str) -> Callable[[LineFormat], LineReader]:
    """The class of a reader, by its module here and its name; loaded when a log is read."""
    module, _, name = place.partition(":")

    def made(form: LineFormat) -> LineReader:
        reader: LineReader = getattr(import_module(f"{__package__}.{module}"), name)(form)
        return reader

    return made


FORMATS = tuple(
    LineFormat(
        name=log.get("name", project),
        described=log,
        reader_of=_reader(log.get("reader", "described:DescribedLog")),
    )
    for project, log in parts("log").items()
)
"""Every format of lines; where several fit a log, the first counts."""
_SETTLED = 100
"""Steps after which a format that other programs do not write is the only one that is looked for."""
_MINOR = 0.1
"""A format with fewer than this share of the reports of another is a coincidence."""
_SUFFIXES = frozenset({".log", ".txt", ".out", ".err", ".output", ".json", ".jsonl", ""})
MOST_RUNS = 1000
"""Runs of one file that are read."""


@dataclass(slots=True)
class _Part:
    """The reports of one run while they come."""

    number: int
    line: int
    steps: list[LoggedStep] = field(default_factory=list)
    found: Found = field(default_factory=Found)
    resumed: list[int] = field(default_factory=list)
    seen: int = 0
    stride: int = 1

    def add(self, step: LoggedStep) -> None:
        if self.seen % self.stride == 0:
            self.steps.append(step)
            if len(self.steps) >= MOST_STEPS:
                self.steps, self.stride = self.steps[::2], 2 * self.stride
        self.seen += 1


class Reading:
    """One log that is read in one format."""

    def __init__(self, form: LineFormat) -> None:
        self.format = form
        self.reader: LineReader = form.reader()
        self.parts: list[_Part] = []
        self.reports = 0
        self.last: LoggedStep | None = None
        self._starts = 0
        self._first = 0

    def feed(self, line: str, number: int) -> LoggedStep | None:
        """The step that a line reports; the same step of another process is none.

        Args:
            line: Without its end.
            number: Of the line in the file.
        """
        if self.parts and self._same_start() and any(word in line for word in self.reader.begins):
            self.parts[-1].found = self.reader.found()  # before the head of the next run takes its place
        step = self.reader.feed(line)
        if step is None or (self.last is not None and step.step == self.last.step and self._same_start()):
            return None
        self._place(step, number)
        return step

    def _same_start(self) -> bool:
        return self.reader.starts == self._starts

    def _place(self, step: LoggedStep, number: int) -> None:
        """Put a step into its run: the present one, or a new one."""
        back = self.last is not None and step.step <= self.last.step
        if not self.parts or (back and step.step <= self._first):
            if len(self.parts) < MOST_RUNS:
                self.parts.append(_Part(number=len(self.parts) + 1, line=number))
            self._first = step.step
            self.parts[-1].found = self.reader.found()
        elif back:
            self.parts[-1].resumed.append(step.step)
        self._starts = self.reader.starts
        self.last = step
        self.reports += 1
        self.parts[-1].add(step)

    def runs(self, path: Path) -> list[ImportedRun]:
        """The runs so far."""
        if self.parts and self._same_start():
            self.parts[-1].found = self.reader.found()
        return [self._run(part, path) for part in self.parts]

    def _run(self, part: _Part, path: Path) -> ImportedRun:
        notes = list(part.found.notes)
        if part.resumed:
            notes.append(
                f"went back to a checkpoint {len(part.resumed)} times, first at step {part.resumed[0]}"
            )
        if part.stride > 1:
            notes.append(f"one of {part.stride} reports was kept")
        return ImportedRun(
            name=path.stem if len(self.parts) == 1 else f"{path.stem}-{part.number}",
            origin=f"{path.name}, line {part.line}",
            importer=self.format.name,
            fields=part.found.fields,
            steps=tuple(part.steps),
            notes=tuple(dict.fromkeys(notes)),
            clock_resolution_s=self.reader.clock_resolution_s,
        )


class LogReading:
    """One log that is read in all formats at once, until it is clear which one it has."""

    def __init__(self, formats: Sequence[LineFormat] = FORMATS) -> None:
        self._readings = [Reading(form) for form in formats]
        self._number = 0

    def feed(self, line: str) -> LoggedStep | None:
        """The step that a line reports in the format that fits best so far."""
        self._number += 1
        if len(self._readings) == 1:
            return self._readings[0].feed(line, self._number)
        found = {reading: step for reading in self._readings if (step := reading.feed(line, self._number))}
        if not found:
            return None
        best = self.best
        if best is not None and not best.format.generic and best.reports == _SETTLED:
            self._readings = [
                each for each in self._readings if each is best or each.reports >= _SETTLED * _MINOR
            ]
        return found.get(best) if best is not None else None

    @property
    def best(self) -> Reading | None:
        """The format that fits best; None while none does."""
        fitting = [each for each in self._readings if each.reports and each.reader.certain]
        specific = [each for each in fitting if not each.format.generic] or fitting
        most = max((each.reports for each in specific), default=0)
        return next((each for each in specific if each.reports >= _MINOR * most), None)


def read_log(path: Path, formats: Sequence[LineFormat] = FORMATS) -> list[ImportedRun]:
    """Every run of a text log of any size.

    Raises:
        CorpusError: If it cannot be read, or no line of it is of a known format.
    """
    reading = LogReading(formats)
    for line in lines_of(path):
        reading.feed(line)
    best = reading.best
    if best is None:
        raise unreadable(
            path,
            "has no line that reports the progress of a training in "
            + (f"the format {formats[0].name}" if len(formats) == 1 else "a known format"),
            f"name the log of {known_formats(FORMATS)}; other files: precision-time import --formats",
        )
    return best.runs(path)


def known_formats(formats: Iterable[LineFormat]) -> str:
    """Their names."""
    return ", ".join(form.name for form in formats)


def looks_like_text(path: Path, head: bytes) -> bool:
    """Whether a file may be a text log, by its name and its first bytes."""
    if path.suffix.lower() not in _SUFFIXES and not path.suffix.lstrip(".").isdigit():
        return False
    return bool(head) and (encoding_of(head) != "utf-8" or head.count(0) * 100 <= len(head))


def _never(path: Path, head: bytes) -> bool:
    del path, head
    return False


IMPORTERS: tuple[Importer, ...] = (
    *(
        Importer(
            name=form.name,
            description=form.description,
            matches=_never,  # by name only: `text-log` finds out which it is
            read=partial(read_log, formats=(form,)),
        )
        for form in FORMATS
    ),
    Importer(
        name="text-log",
        description="any of these logs, recognized by its lines",
        matches=looks_like_text,
        read=read_log,
    ),
)
