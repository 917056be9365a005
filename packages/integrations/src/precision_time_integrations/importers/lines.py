"""Text logs line by line: bounded lines out of any stream, and what a format of lines is.

A `LineFormat` (the `log` part of `projects/data`) makes a `LineReader` per log: it is fed every line,
remembers what the head of the log says of the job, and gives a `LoggedStep` for a line that reports progress.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from precision_time.errors import CorpusError

from .contract import LoggedStep, finite

LONGEST_LINE = 32 * 1024
"""Characters of a line that are kept: what reports progress is short."""
CHUNK_BYTES = 1 << 20
MOST_SETTINGS = 20_000
"""Arguments of one log that are remembered."""
HEAD_LINES = 20_000
"""Lines after a start that are searched for arguments."""
_ENDS = re.compile(r"[\r\n]+")
_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
_WHOLE = ("]", "|", "}", ")")
"""What lines end with in which nothing is missing that is read: bars, columns, objects."""
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


class LineBuffer:
    """Cuts bytes into lines as they come: any line end, ANSI colors and what is too long removed."""

    def __init__(self) -> None:
        self._decoder: codecs.IncrementalDecoder | None = None
        self._rest = ""
        self._skipping = False

    def feed(self, data: bytes) -> list[str]:
        """The lines that these bytes complete."""
        if self._decoder is None:
            if not data:
                return []
            self._decoder = codecs.getincrementaldecoder(encoding_of(data))(errors="replace")
        *whole, self._rest = _ENDS.split(self._rest + self._decoder.decode(data))
        if whole and self._skipping:
            whole, self._skipping = whole[1:], False
        lines = [clean(line) for line in whole if line]
        if len(self._rest) > LONGEST_LINE:
            if not self._skipping:
                lines.append(clean(self._rest))
            self._rest, self._skipping = "", True
        return lines

    def rest(self) -> str:
        """The last line, which nothing ends, where it seems whole: one cut inside of a number would lie."""
        rest, self._rest = clean(self._rest).rstrip(), ""
        return rest if rest.endswith(_WHOLE) and not self._skipping else ""


def encoding_of(head: bytes) -> str:
    """UTF-8, or UTF-16 as PowerShell writes what it redirects."""
    for mark, name in _MARKS:
        if head.startswith(mark):
            return name
    sample = head[:4096]
    if len(sample) > 3 and sample[1::2].count(0) > len(sample) // 3:
        return "utf-16-le"
    return "utf-8"


def clean(line: str) -> str:
    """A line of bounded length without terminal escapes."""
    line = line[:LONGEST_LINE]
    return _ESCAPES.sub("", line) if "\x1b" in line else line


def lines_of(path: Path, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[str]:
    """The lines of a file of any size; the last one too where nothing ends it and it seems whole.

    Raises:
        CorpusError: If it cannot be read.
    """
    buffer = LineBuffer()
    try:
        with path.open("rb") as file:
            while data := file.read(chunk_bytes):
                yield from buffer.feed(data)
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error.strerror or error}. To fix: check it.") from error
    rest = buffer.rest()
    if rest:
        yield rest


_NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


@dataclass(frozen=True, kw_only=True)
class LineFormat:
    """How one tool writes its log."""

    name: str
    """As `--format` takes it."""
    described: Mapping[str, Any]
    """The `log` part of the project: what its keys mean is in `described.py`."""
    reader_of: Callable[[LineFormat], LineReader]
    _patterns: dict[str, tuple[re.Pattern[str], ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def description(self) -> str:
        """The tool, and what its line looks like."""
        return str(self.described["description"])

    @property
    def generic(self) -> bool:
        """Whether other formats have such lines too: it counts where no other format is found."""
        return bool(self.described.get("generic"))

    def patterns(self, part: str) -> tuple[re.Pattern[str], ...]:
        """The regular expressions of a part of the description."""
        if part not in self._patterns:
            given = self.described.get(part, ())
            texts = [given] if isinstance(given, str) else given
            self._patterns[part] = tuple(re.compile(text.replace("{N}", _NUMBER)) for text in texts)
        return self._patterns[part]

    def reader(self) -> LineReader:
        """A reader of one log."""
        return self.reader_of(self)

    def parse(self, line: str) -> LoggedStep | None:
        """The step that a line alone reports."""
        return self.reader().feed(line)


@dataclass(slots=True)
class Found:
    """What a log says of the job, as far as its reader understands it."""

    fields: dict[str, Any] = field(default_factory=dict)
    """Of a request."""
    notes: list[str] = field(default_factory=list)


class LineReader:
    """Reads one log in one format. Subclasses say what a line reports, and perhaps more."""

    def __init__(self, form: LineFormat) -> None:
        described = form.described
        self.form = form
        self.sign: Sequence[str] = described["sign"]
        """A line that reports progress holds one of these; cheap to look for."""
        self.begins: Sequence[str] = described.get("begins", ())
        """A line with one of these starts a program: what its head says begins again."""
        self.ends: Sequence[str] = described.get("ends", ())
        """A line with one of these says that training ended."""
        self.clock_resolution_s: float = described.get("clock_resolution_s", 0.0)
        """Of `LoggedStep.at_s`."""
        self.settings: dict[str, str] = {}
        """What the head says, by the names of the tool."""
        self.total_steps: int | None = None
        self.starts = 0
        """Starts of the program that were seen."""
        self.ended = False
        self._head_lines = HEAD_LINES

    @property
    def certain(self) -> bool:
        """Whether the lines are of this format for sure, and not of any program's."""
        return True

    def feed(self, line: str) -> LoggedStep | None:
        """The step that a line reports, if it does."""
        for word in self.begins:
            if word in line:
                self.starts += 1
                self.settings, self._head_lines, self.ended = {}, HEAD_LINES, False
        for word in self.ends:
            if word in line:
                self.ended = True
        signed = False
        for word in self.sign:
            if word in line:
                signed = True
                break
        step = self._report(line) if signed else None
        if step is None:
            if signed or self._head_lines > 0:
                self._head_lines -= 1
                self._head(line)
            return None
        if step.total_steps:
            self.total_steps = step.total_steps
        self.ended = self.ended and step.step == step.total_steps  # a bar is drawn once more at its end
        return step

    def _report(self, line: str) -> LoggedStep | None:
        """The step that a line with a sign reports."""
        raise NotImplementedError

    def _head(self, line: str) -> None:
        """Remember what another line says of the job."""

    def remember(self, name: str, value: str) -> None:
        """Keep a setting of the tool; the last word counts."""
        if len(self.settings) < MOST_SETTINGS or name in self.settings:
            self.settings[name] = value

    def found(self) -> Found:
        """The settings as fields of a request."""
        return Found()


_TIMES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?"), "ymd"),
    (re.compile(r"(?<!\d)(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?"), "mdy"),
    (re.compile(r"^[IWEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d{1,6}))?"), "md"),
    (re.compile(r"(?<!\d)(\d\d)/(\d\d) (\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?"), "md"),
)
_SOME_YEAR = 2024
"""For times without one: a leap year, so that every date exists."""


def time_of(line: str) -> float | None:
    """The date and time in a line, as seconds since 1970 on the clock of whoever wrote it."""
    for pattern, order in _TIMES:
        found = pattern.search(line[:400])
        if found is None:
            continue
        parts = [int(part) for part in found.groups()[:-1]]
        if order == "mdy":
            parts = [parts[2], parts[0], parts[1], *parts[3:]]
        elif order == "md":
            parts = [_SOME_YEAR, *parts]
        fraction = found.groups()[-1]
        try:
            return datetime(*parts, tzinfo=UTC).timestamp() + float(f"0.{fraction or 0}")  # type: ignore[arg-type,misc]
        except ValueError:
            return None
    return None


def number_after(line: str, name: str) -> float | None:
    """The number behind a name, above 0: `name 3.5`, `name: 3.5`, `name=3.5`; None where there is none.

    >>> number_after("loss: 3.1, time: 0.35", "time:")
    0.35
    """
    found = _after(name).search(line)
    return finite(found[1].replace(",", "")) if found else None


_PATTERNS: dict[str, re.Pattern[str]] = {}


def _after(name: str) -> re.Pattern[str]:
    if name not in _PATTERNS:
        _PATTERNS[name] = re.compile(rf"(?<![\w]){re.escape(name)}\s*[=:]?\s*({_NUMBER})")
    return _PATTERNS[name]


def count(text: str | None) -> int | None:
    """A whole number above 0 of a log, such as `1,000`; None where it is none or beyond belief."""
    number = finite((text or "").replace(",", "").replace("_", ""))
    return int(number) if number is not None and number < 1e15 and number == int(number) else None


def number(text: str | None) -> int | float | None:
    """A number above 0 of a log, whole where it is; None where it is none or beyond belief."""
    found = finite((text or "").replace(",", ""))
    return count(text) or (found if found is not None and found < 1e15 else None)


def seconds_of(text: str) -> float | None:
    """A duration such as `1:02:03`, `02:03` or `3 days, 1:02:03` [s]."""
    days, _, rest = text.rpartition(" day")
    total = 0.0
    for part in rest.removeprefix("s").removeprefix(",").strip().split(":"):
        try:
            total = total * 60.0 + float(part)
        except ValueError:
            return None
    return total + (float(days) * 86400.0 if days.strip().isdigit() else 0.0)


def flags_of(settings: Mapping[str, str], names: Iterable[str]) -> str:
    """Settings that a program printed as the command line that says the same.

    Args:
        settings: Name, with `_` or `-`, to what was printed.
        names: Flags that a table of launchers knows.
    """
    words = []
    for flag in names:
        value = settings.get(flag.removeprefix("--").replace("-", "_"))
        if value is None or value in ("None", "False", "false", "null", ""):
            continue
        words.append(flag if value in ("True", "true") else f"{flag} {value.split()[0]}")
    return " ".join(words)
