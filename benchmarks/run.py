"""Measure this machine against the speed targets and write benchmarks/results.json.

Every figure is the best of its repeats: the machine may be busy with something else, never less than idle.
Where a benchmark needs a package that is not installed, it is left out and said so.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import cases
from precision_time import __version__
from precision_time.cli.output import write_rows

RESULTS = Path(__file__).with_name("results.json")
_SHOWN_CHARACTERS = 500
"""Of the end of a failed benchmark's stderr."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Result:
    """One figure beside its target."""

    name: str
    value: float
    unit: str
    target: float
    met: bool


def in_new_process(code: str) -> dict[str, float]:
    """Run `code` in a fresh interpreter: the JSON object in its last line, if it prints one, and `wall_s`.

    Raises:
        RuntimeError: If it fails.
    """
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    wall_s = time.perf_counter() - start
    if done.returncode:
        raise RuntimeError(f"failed with\n{done.stderr[-_SHOWN_CHARACTERS:]}")
    *_, last = done.stdout.splitlines() or [""]
    figures: dict[str, float] = json.loads(last) if last.startswith("{") else {}
    return {"wall_s": wall_s, **figures}


def best(measure: Callable[[], dict[str, float]], repeats: int) -> dict[str, float]:
    """The smallest value of each figure over the repeats."""
    runs = [measure() for _ in range(repeats)]
    return {name: min(run[name] for run in runs) for name in runs[0]}


def run(case: cases.Case) -> list[Result]:
    """The figures of one benchmark."""
    figures = best(lambda: in_new_process(case.code), case.repeats)
    return [
        Result(
            name=f"{case.name}{target.suffix}",
            value=figures[target.figure] * target.scale,
            unit=target.unit,
            target=target.limit,
            met=figures[target.figure] * target.scale <= target.limit,
        )
        for target in case.targets
    ]


def machine() -> dict[str, str | int | None]:
    """What the figures were measured on."""
    return {
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "precision_time": __version__,
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _commit() -> str | None:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def main() -> int:
    """Run the benchmarks and print a table; write the results of a whole run. 1 if a target was missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="benchmarks to run; all if none is named")
    options = parser.parse_args()
    chosen = [case for case in cases.CASES if not options.names or case.name in options.names]
    results: list[Result] = []
    failed: list[str] = []
    for case in chosen:
        if missing := [name for name in case.needs if find_spec(name) is None]:
            print(f"{case.name}: left out, {', '.join(missing)} not installed", file=sys.stderr)
            continue
        try:
            results += run(case)
        except RuntimeError as error:
            print(f"{case.name}: {error}", file=sys.stderr)
            failed.append(case.name)
    rows = [
        (
            each.name,
            f"{each.value:.3g} {each.unit}",
            f"{each.target:g} {each.unit}",
            "yes" if each.met else "NO",
        )
        for each in results
    ]
    write_rows("", ("benchmark", ">measured", ">target", "met"), rows)
    if not options.names and not failed:
        document = {"machine": machine(), "results": [asdict(each) for each in results]}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return int(bool(failed) or not all(each.met for each in results))


if __name__ == "__main__":
    sys.exit(main())
