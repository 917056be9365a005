"""Recorded step times of real training runs: read and validated from data/eta_series.jsonl.gz.

    python eta_series.py

lists them. A series is what somebody who watches the run can see: (steps done, seconds since the start), from
a start to a true end. `build_eta_series.py` writes the file, of public logs and runs on this machine.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parent / "data" / "eta_series.jsonl.gz"
BUSY = "own, busy machine"
KINDS = ("own", BUSY, "public", "public, step times only")
"""The last kind logs the time in steps, so pauses between them are unknown and not in the series."""
FEATURES = {
    "warm-up": "the first steps are slower: compilation, caches, autotuning, a cold loader",
    "stall": "a few steps or log intervals take several times the usual time",
    "evaluation": "the run stops to evaluate",
    "checkpoint": "the run stops to save",
    "epochs": "slower at the start or end of every epoch",
    "jitter": "step times vary a lot from one to the next",
    "resolution": "the size of the input changes",
    "batch": "the batch size changes",
    "schedule": "the work of a step changes by a schedule: layers, windows, phases",
    "resumed": "starts from a checkpoint, or goes back to one in the middle",
    "straggler": "something else takes the processor in the middle of the run",
    "drift": "the step time changes slowly",
    "clock": "the clock goes backwards",
    "coarse": "time stamps in whole seconds",
}
MAX_EVENTS = 3_000
MAX_BYTES = 256 * 2**20
"""Of the unpacked file."""


class SeriesError(ValueError):
    """A series that breaks a rule of the format."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """One run, or an uninterrupted part of one, to its true end."""

    name: str
    source: str
    source_ref: str
    """Repository@commit:path, or the function that ran it."""
    project: str
    kind: str
    features: tuple[str, ...]
    total_steps: int
    """Steps done at the true end."""
    events: tuple[tuple[int, float], ...]
    """(steps done, seconds since the start); the first is the start itself, at 0 s."""
    pauses: tuple[tuple[float, float, str], ...]
    """(from second, to second, name) as the run announced them."""
    schedule: Mapping[str, int]
    """Pause to every how many steps, where the run's settings say it."""
    request: Mapping[str, Any] | None
    """Fields of `precision_time.Request`, where model and device are known."""
    steps_per_epoch: int | None
    units: str

    @property
    def duration_s(self) -> float:
        """Seconds from the start to the true end."""
        return self.events[-1][1]

    @property
    def first_step(self) -> int:
        """Steps done before the start: more than 0 in a resumed run."""
        return self.events[0][0]

    def remaining_s(self, index: int) -> float:
        """True seconds left after event `index`."""
        return self.duration_s - self.events[index][1]

    def index_at(self, share: float) -> int:
        """The first event, after the start, at or past `share` of the steps."""
        goal = self.first_step + share * (self.total_steps - self.first_step)
        return next(i for i, (step, _) in enumerate(self.events) if i and step >= goal)

    def to_dict(self) -> dict[str, Any]:
        """The series as one line of the file holds it."""
        return {
            name: (dict(value) if isinstance(value, Mapping) else value) for name, value in vars(self).items()
        }


def series_of(given: Mapping[str, Any]) -> Series:
    """A series from the fields of one line.

    Raises:
        SeriesError: A field that is missing or unknown, or a rule that is broken; names the series.
    """
    name = given.get("name", "a series without a name")
    if missing := Series.__dataclass_fields__.keys() ^ given.keys():
        raise SeriesError(f"{name}: missing or unknown fields {sorted(missing)}.")
    series = Series(
        **{
            **given,
            "features": tuple(given["features"]),
            "events": tuple((step, float(at_s)) for step, at_s in given["events"]),
            "pauses": tuple((float(a), float(b), str(what)) for a, b, what in given["pauses"]),
        }
    )
    for broken in _broken(series):
        raise SeriesError(f"{name}: {broken}")
    return series


def _broken(series: Series) -> Iterator[str]:
    """Rules that the series breaks."""
    events = series.events
    if series.kind not in KINDS:
        yield f"kind is one of {KINDS}, given {series.kind!r}."
    if unknown := set(series.features) - FEATURES.keys():
        yield f"unknown features {sorted(unknown)}."
    if not 3 <= len(events) <= MAX_EVENTS:
        yield f"between 3 and {MAX_EVENTS} events, given {len(events)}."
        return
    if not all(type(step) is int and step >= 0 and math.isfinite(at_s) for step, at_s in events):
        yield "steps are whole numbers from 0 up, and times are finite."
    if events[0][1] != 0.0:
        yield f"starts at 0 s, given {events[0][1]} s."
    if events[-1][0] != series.total_steps:
        yield f"ends at step {series.total_steps}, given {events[-1][0]}."
    backwards = [(a, b) for a, b in zip(events, events[1:], strict=False) if b[1] < a[1]]
    if backwards and "clock" not in series.features:
        yield f"time goes back from {backwards[0][0]} to {backwards[0][1]}."
    lower = [(a, b) for a, b in zip(events, events[1:], strict=False) if b[0] <= a[0]]
    if lower and "resumed" not in series.features:
        yield f"steps do not increase from {lower[0][0]} to {lower[0][1]}."
    if series.duration_s <= 0:
        yield "takes no time."
    if any(not 0 <= a <= b for a, b, _ in series.pauses):
        yield "a pause begins at or after 0 s and ends after it begins."
    if any(every < 1 for every in series.schedule.values()):
        yield "a schedule is of at least 1 step."


def read_series(path: Path = DATA) -> list[Series]:
    """All series of a file, in its order.

    Raises:
        SeriesError: A line that is no series, a name twice, or a file that is too large unpacked.
    """
    with gzip.open(path, "rb") as file:
        text = file.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise SeriesError(f"{path} is larger than {MAX_BYTES} bytes unpacked.")
    read = [series_of(json.loads(line)) for line in text.decode().splitlines()]
    names = [series.name for series in read]
    if twice := {name for name in names if names.count(name) > 1}:
        raise SeriesError(f"names occur twice: {sorted(twice)}.")
    return read


def write_series(path: Path, series: list[Series]) -> None:
    """The same series give the same bytes."""
    lines = (json.dumps(one.to_dict(), separators=(",", ":")) + "\n" for one in series)
    path.write_bytes(gzip.compress("".join(lines).encode(), 9, mtime=0))


def main() -> None:
    """List the series."""
    for one in read_series():
        print(
            f"{one.name:44} {one.kind:8.8} {len(one.events) - 1:5} events {one.total_steps:8} {one.units}s "
            f"{one.duration_s:9.0f} s  {'request' if one.request else '       '}  {' '.join(one.features)}"
        )


if __name__ == "__main__":
    main()
