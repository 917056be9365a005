"""Write data/eta_series.jsonl.gz: step times of public logs and of runs on this machine.

    python build_eta_series.py public MIRRORS [NAME ...]
    python build_eta_series.py own [--under "nice -n -15 taskset -c 1"] [NAME ...]

MIRRORS holds a bare clone of each repository of eta_series_sources.toml as OWNER+NAME or OWNER+NAME/repo.
Only the numbers of a log are kept. Series of the file that are not read or run now stay as they are, and
so do those of the busy machine: the same programs, recorded once beside eight others on its two processors.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eta_series import BUSY, DATA, MAX_EVENTS, Series, read_series, series_of, write_series

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "eta_series_sources.toml"
_KEPT_WHOLE = 200
"""First events that thinning never drops."""
_ZONE_S = 900.0
"""Clocks of one log differ by a time zone: a multiple of this."""


def log_text(mirrors: Path, repo: str, commit: str, path: str) -> str:
    """A file of a bare clone, at a commit."""
    folder = mirrors / repo.replace("/", "+")
    for inside in ("repo", ".git"):
        folder = folder / inside if (folder / inside).is_dir() else folder
    shown = subprocess.run(
        ["git", f"--git-dir={folder}", "show", f"{commit}:{path}"], capture_output=True, check=True
    )
    return shown.stdout.decode(errors="replace")


def seconds_of(match: re.Match[str], stamp: str) -> float | None:
    """Absolute or elapsed seconds that a line states: milliseconds, seconds, h:m:s, or a time stamp."""
    found = match.groupdict()
    if found.get("ms") is not None:
        return float(found["ms"]) / 1000
    if found.get("s") is not None:
        return float(found["s"])
    if found.get("hms") is not None:
        days, _, clock = found["hms"].rpartition(" ")
        parts = [float(part) for part in clock.split(":")]
        whole = sum(part * 60.0**power for power, part in enumerate(reversed(parts)))
        return whole + 86_400.0 * int(re.sub(r"\D", "", days) or 0)
    if found.get("ts") is not None:
        given = datetime.datetime.strptime(found["ts"], stamp)
        # A stamp without a year: any leap year will do, since only differences are used.
        given = given.replace(year=2020) if given.year == 1900 else given
        return given.replace(tzinfo=datetime.UTC).timestamp()
    return None


@dataclass(kw_only=True)
class LogReader:
    """Events and pauses of one log, by regular expressions with named groups.

    A line gives its time as `ms`, `s`, `hms` or `ts` (read by `stamp`) or only what its steps took as
    `took`, and its steps as `step`, as `epoch` and `iter` (with `per_epoch`, a group or a number) or
    as `more` since the line before; a line without any of them is one step.
    """

    line: str
    begin: str = ""
    pause_begin: str = ""
    pause_end: str = ""
    pause: str = "evaluation"
    stamp: str = "%Y-%m-%d %H:%M:%S,%f"
    per_epoch: int = 0
    base_epoch: int = 0
    base_step: int = 0
    took_scale: float = 1.0
    took_is_mean: bool = False
    """`took` is seconds per step since the line before."""
    start_s: float | None = None
    """Where a clock of elapsed time starts; else the `begin` line or the first event is the start."""
    start_step: int | None = None
    step_divisor: float = 1.0
    """Of `step`, where the log counts samples."""
    zone: bool = False
    """The `begin` line and the pauses are in UTC, the other lines in local time."""
    clock_restarts: bool = False
    """The log's clock starts at 0 again in the middle."""
    last_run: bool = False
    """The file holds several runs: the last is read."""
    longest_gap_s: float = math.inf
    """The run was off for longer between two lines: what follows is read."""
    events: list[tuple[int, float]] = field(default_factory=list)
    pauses: list[tuple[float, float, str]] = field(default_factory=list)

    def read(self, text: str) -> None:
        """Fill `events` and `pauses`, in the clock of the log."""
        lines = {
            name: re.compile(getattr(self, name))
            for name in ("begin", "pause_begin", "pause_end", "line")
            if getattr(self, name)
        }
        begun: float | None = self.start_s
        last_step, last_s, offset_s = self.start_step or 0, begun or 0.0, 0.0
        paused_at: float | None = None
        zone_s: float | None = None if self.zone else 0.0
        for row in re.split(r"[\r\n]+", text):
            for name, pattern in lines.items():
                if (match := pattern.search(row)) is None:
                    continue
                at_s = seconds_of(match, self.stamp)
                if name == "begin":
                    begun = at_s if begun is None and not self.events else begun
                elif name == "line":
                    step = self._step(match, last_step)
                    again = self.last_run and step <= last_step
                    if self.events and (again or (at_s or 0.0) - last_s > self.longest_gap_s):
                        self.events.clear()
                        self.pauses.clear()
                        begun = begun if again else None
                    if at_s is None:
                        steps = (step - last_step) if self.took_is_mean else 1
                        at_s = last_s + float(match["took"]) * self.took_scale * steps
                    if zone_s is None:
                        zone_s = round((at_s - (begun or 0.0)) / _ZONE_S) * _ZONE_S
                    at_s += offset_s - zone_s
                    if self.clock_restarts and at_s < last_s:
                        offset_s, at_s = last_s, at_s + last_s - offset_s
                    self.events.append((step, at_s))
                    last_step, last_s = step, at_s
                elif at_s is not None and name == "pause_begin":
                    paused_at = at_s
                elif at_s is not None and paused_at is not None:
                    self.pauses.append((paused_at, at_s, self.pause))
                    paused_at = None
        if begun is not None:
            self.events.insert(0, (self.start_step or 0, begun))

    def _step(self, match: re.Match[str], before: int) -> int:
        found = match.groupdict()
        if found.get("step") is not None:
            return self.base_step + round(float(found["step"].replace(",", "")) / self.step_divisor)
        if "epoch" not in found:
            return before + int(found.get("more") or 1)
        per_epoch = int(found.get("per_epoch") or self.per_epoch)
        return (int(found["epoch"]) - self.base_epoch) * per_epoch + int(found["iter"]) + self.base_step


def thinned(events: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """At most `MAX_EVENTS`: the first ones whole, the others evenly, the last always."""
    if len(events) <= MAX_EVENTS:
        return events
    head, tail = events[:_KEPT_WHOLE], events[_KEPT_WHOLE:]
    left = MAX_EVENTS - _KEPT_WHOLE
    return head + [tail[(i + 1) * len(tail) // left - 1] for i in range(left)]


def finished(
    given: Mapping[str, Any], events: list[tuple[int, float]], pauses: list[tuple[float, float, str]]
) -> Series:
    """A series of events in any clock: since the start, in milliseconds, thinned."""
    resumed = "resumed" in given.get("features", ())
    kept = events[:1]
    for step, at_s in events[1:]:
        if step > kept[-1][0] or resumed and step < kept[-1][0]:
            kept.append((step, at_s))
    start_s, end_s = kept[0][1], kept[-1][1]
    return series_of(
        {
            "features": [],
            "schedule": {},
            "request": None,
            "steps_per_epoch": None,
            "units": "step",
            "kind": "public",
            **given,
            "total_steps": kept[-1][0],
            "events": [(step, round(at_s - start_s, 3)) for step, at_s in thinned(kept)],
            "pauses": [
                (round(a - start_s, 3), round(b - start_s, 3), what)
                for a, b, what in pauses
                if start_s <= a < end_s
            ],
        }
    )


def public_series(mirrors: Path, only: list[str]) -> list[Series]:
    """The series of every log of the table of sources whose repository is there."""
    table = tomllib.loads(SOURCES.read_text(encoding="utf-8"))
    built = []
    for row in table["series"]:
        source = dict(row)
        if only and source["name"] not in only:
            continue
        repo, commit, path = source.pop("repo"), source.pop("commit"), source.pop("path")
        options = {**table["formats"][source.pop("format")], **source.pop("read", {})}
        reader = LogReader(**options)
        reader.read(log_text(mirrors, repo, commit, path))
        source["source_ref"] = f"{repo}@{commit}:{path}"
        source.setdefault("project", repo)
        built.append(finished(source, reader.events, reader.pauses))
        print(f"{source['name']}: {len(built[-1].events)} events, {built[-1].duration_s:.0f} s", flush=True)
    return built


def own_series(only: list[str], under: str) -> Iterator[Series]:
    """Each of the trainings of `eta_own_runs.py`, in a fresh interpreter with one thread.

    Args:
        only: Names, or none for all.
        under: What comes before the command, such as `taskset -c 1`.
    """
    told = tomllib.loads(SOURCES.read_text(encoding="utf-8"))["own"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    for name in told:
        if only and name not in only:
            continue
        with tempfile.TemporaryDirectory() as cache:
            ran = subprocess.run(
                [*shlex.split(under), sys.executable, str(HERE / "eta_own_runs.py"), name],
                # Compiled code of an earlier run would hide the first compilation.
                env={**environment, "TORCHINDUCTOR_CACHE_DIR": cache},
                stdout=subprocess.PIPE,
                check=True,
            )
        seen = json.loads(ran.stdout.splitlines()[-1])
        print(f"{name}: on the processor {seen['cpu_share']:.0%} of the time", flush=True)
        given = {
            **told[name],
            "name": name,
            "source_ref": f"packages/integrations/studies/eta_own_runs.py#{name}",
            # Different programs, although of one repository.
            "project": f"own: {name.removeprefix('own-')}",
            "kind": "own",
        }
        yield finished(given, [(step, at_s) for step, at_s in seen["events"]], seen["pauses"])


def merged(path: Path, new: list[Series]) -> list[Series]:
    """The series of the file that the table still names, with those that are new in place of older ones."""
    table = tomllib.loads(SOURCES.read_text(encoding="utf-8"))
    named = {row["name"] for row in table["series"]} | table["own"].keys()
    there = {series.name: series for series in (read_series(path) if path.exists() else [])}
    there = {name: series for name, series in there.items() if name in named or series.kind == BUSY}
    there |= {series.name: series for series in new}
    return sorted(there.values(), key=lambda series: (series.kind, series.name))


def main() -> None:
    """Build what the command line names."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    public = commands.add_parser("public")
    public.add_argument("mirrors", type=Path)
    public.add_argument("names", nargs="*")
    own = commands.add_parser("own")
    own.add_argument("names", nargs="*")
    own.add_argument("--under", default="", help="put before the command, such as 'taskset -c 1'")
    given = parser.parse_args()
    if given.what == "public":
        write_series(DATA, merged(DATA, public_series(given.mirrors, given.names)))
        return
    for series in own_series(given.names, given.under):
        print(f"{series.name}: {len(series.events)} events, {series.duration_s:.0f} s", flush=True)
        write_series(DATA, merged(DATA, [series]))


if __name__ == "__main__":
    main()
