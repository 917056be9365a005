"""Run the tests in parts, one process each and two at a time, and say one total at the end.

    python tools/unit.py [--at-once N] [--branches FOLDER] [--beside TARGET ...] [PART ...]

A process collects its own tests alone. The parts are in tests/parts.toml. With --branches, what they take of
the branches is counted (tools/branches.py). With --beside, targets of the Makefile run among them, the first
of all: they wait for a network, and a processor that waits is free for a part.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import FrameType

import branches

ROOT = Path(__file__).resolve().parents[1]
SLOW = ROOT / "tests" / "slow.toml"
PARTS = ROOT / "tests" / "parts.toml"
PYTEST = (sys.executable, "-m", "pytest", "-q")
_COUNTED = re.compile(r"(\d+) (passed|failed|skipped|errors?)\b")
_FAILURES = ("failed", "error", "errors")
_FAILED_LINE = re.compile(r"^(?:FAILED|ERROR) .*$|^not for CI:.*$", re.MULTILINE)
_SLOW_LINE = re.compile(r"^(too slow: (.+): [\d.]+ CPU-seconds, .*)$", re.MULTILINE)
_REASON_LINE = re.compile(r"^E   .*$", re.MULTILINE)

MOST_S = 3.0
"""CPU-seconds of a test, its fixtures and its processes: one that takes longer has a line in slow.toml."""
NOISE = 4.0
"""CPU-seconds of a test over those it is allowed on this machine, at most."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one part did."""

    name: str
    code: int
    printed: str
    wall_s: float
    cpu_s: float

    @property
    def counts(self) -> Counter[str]:
        """Tests by outcome, from pytest's last line; a process that ended without one is a failure."""
        last = self.printed.rstrip().rpartition("\n")[2]
        found: Counter[str] = Counter()
        for count, what in _COUNTED.findall(last):
            found["failed" if what in _FAILURES else what] += int(count)
        if self.code and not found["failed"]:
            found["failed"] = 1
        return found

    @property
    def failures(self) -> list[str]:
        """What failed and why, short: the end of a log is what is kept of a run elsewhere."""
        if not self.code:
            return []
        reasons = [line.rstrip()[:200] for line in _REASON_LINE.findall(self.printed)[:6]]
        named = [line[:300] for line in _FAILED_LINE.findall(self.printed)[:8]]
        return [f"{self.name} ended with {self.code}", *(reasons + named or self.printed.splitlines()[-6:])]

    @property
    def too_slow(self) -> dict[str, str]:
        """Tests that took longer than they may, with the line that says so."""
        return {name: line for line, name in _SLOW_LINE.findall(self.printed)}


def slow_tests(took_s: Mapping[str, float], known_s: Mapping[str, float]) -> list[str]:
    """Tests that took more of the processor than they may, beyond noise, in words.

    A slow or busy machine is told by the listed tests, of which half take longer than listed by a factor.
    """
    factor = max(
        1.0, median([took_s[name] / most for name, most in known_s.items() if name in took_s] or [1.0])
    )
    return [
        f"too slow: {name}: {took:.1f} CPU-seconds, {known_s.get(name, MOST_S):g} x {factor:.1f} are allowed"
        for name, took in took_s.items()
        if took > NOISE * factor * known_s.get(name, MOST_S)
    ]


def listed_s() -> dict[str, float]:
    """CPU-seconds of the tests known to be slow, the quickest first."""
    listed = tomllib.loads(SLOW.read_text(encoding="utf-8"))
    return dict(sorted(listed.items(), key=lambda each: each[1]))


def paths_of_parts() -> dict[str, list[str]]:
    """Files and folders of every part, from the root."""
    parts = tomllib.loads(PARTS.read_text(encoding="utf-8"))
    return {
        name: [str(path.relative_to(ROOT)) for glob in part["paths"] for path in sorted(ROOT.glob(glob))]
        for name, part in parts.items()
    }


_groups: set[int] = set()
"""Process groups of the parts that run: a part and all it started, but daemons."""
_ending = threading.Event()


def _end_group(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGTERM)


def _end(number: int, frame: FrameType | None) -> None:
    """Ended from outside: no part goes on alone, none is started."""
    del frame
    _ending.set()
    for group in tuple(_groups):
        _end_group(group)
    sys.exit(128 + number)


def run_part(name: str, command: Sequence[str]) -> Outcome:
    """Run a command as one part, with what it and its children took of the processor."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as printed:
        process = subprocess.Popen(
            command, cwd=ROOT, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
        )
        _groups.add(process.pid)
        if _ending.is_set():  # between its start and its place in the set
            _end_group(process.pid)
        _, status, used = os.wait4(process.pid, 0)
        _groups.discard(process.pid)
        process.returncode = os.waitstatus_to_exitcode(status)
        printed.seek(0)
        return Outcome(
            name=name, code=process.returncode, printed=printed.read(), wall_s=time.monotonic() - started,
            cpu_s=used.ru_utime + used.ru_stime,
        )  # fmt: skip


def run_parts(commands: Mapping[str, Sequence[str]], at_once: int) -> int:
    """Run parts and print each when it ends, then one total; 1 if anything failed."""
    total: Counter[str] = Counter()
    failures: list[str] = []
    slow: set[str] = set()
    with ThreadPoolExecutor(at_once) as pool:
        for future in as_completed([pool.submit(run_part, *each) for each in commands.items()]):
            done = future.result()
            total += done.counts
            failures += done.failures
            slow.update(done.too_slow)
            print(f"== {done.name}: {done.wall_s:.0f} s, {done.cpu_s:.0f} s of the processor\n{done.printed}")
            sys.stdout.flush()
    if slow:
        # The first import after an install compiles a library: not the fault of the test that makes it.
        # Listed tests run with it, or nothing would tell how slow the machine is.
        again = run_part("slow tests again", [*PYTEST, *sorted(slow), *list(listed_s())[:3]])
        failures += [*again.failures, *again.too_slow.values()]
    print(
        f"{total['passed']} passed, {total['failed']} failed, {total['skipped']} skipped", *failures, sep="\n"
    )
    return int(bool(failures))


def main(arguments: Sequence[str]) -> int:
    """Run the parts named, or all."""
    parser = argparse.ArgumentParser(description="Run the tests in parts.")
    parts = paths_of_parts()
    parser.add_argument("part", nargs="*", metavar="PART", help=", ".join(parts))
    parser.add_argument("--at-once", type=int, default=2, help="parts at a time")
    parser.add_argument("--branches", type=Path, metavar="FOLDER", help="count the branches taken, there")
    parser.add_argument(
        "--beside", nargs="+", default=[], metavar="TARGET", help="of the Makefile, to run as well"
    )
    asked = parser.parse_args(arguments)
    if unknown := set(asked.part) - set(parts):
        parser.error(f"no such part: {', '.join(sorted(unknown))}. The parts: {', '.join(parts)}")
    os.environ["PRECISION_TIME_SLOW_TESTS"] = "fail"
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    run = (*branches.command_of(asked.branches.resolve()), *PYTEST[2:]) if asked.branches else PYTEST
    chosen = {target: ["make", "--no-print-directory", target] for target in asked.beside}
    chosen |= {name: [*run, *paths] for name, paths in parts.items() if name in (asked.part or parts)}
    code = run_parts(chosen, asked.at_once)
    low = branches.check(asked.branches.resolve()) if asked.branches and not asked.part else []
    print(*low, sep="\n", end="\n" if low else "")
    return code or int(bool(low))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
