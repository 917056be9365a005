"""The doctor (`explain --measured`) on public threads whose cause was found (threads.toml).

`python benchmarks/doctor/run.py` prints where the right cause stands in each, for the open half and the half
that was held back; `--json` the figures that the test holds.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_time.errors import PrecisionTimeError
from precision_time.explain.doctor import Diagnosis, applies, diagnose
from precision_time.io import packaged_toml
from precision_time.request.request import Request

THREADS = Path(__file__).parent / "threads.toml"
_NEAR = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One thread, and what the doctor says of it."""

    url: str
    held_back: bool
    causes: tuple[str, ...]
    """Any of them is right."""
    found: Diagnosis

    @property
    def rank(self) -> int | None:
        """Of the right cause, 1 for the first; None where it is not named."""
        named = [cause.name for cause in self.found.causes]
        places = [named.index(name) + 1 for name in self.causes if name in named]
        return min(places, default=None)


def held_back(url: str) -> bool:
    """Whether a thread decided nothing: by the last byte of its address' SHA-256."""
    return hashlib.sha256(url.encode()).digest()[-1] % 8 in (3, 5, 7)


def threads() -> list[dict[str, Any]]:
    """The rows of the file."""
    rows: list[dict[str, Any]] = tomllib.loads(THREADS.read_text(encoding="utf-8"))["thread"]
    return rows


def cases() -> Iterator[Case]:
    """Every thread with its diagnosis."""
    for row in threads():
        told = {name: row[name] for name in ("data_wait_s", "utilization") if name in row}
        try:
            found = diagnose(**row["job"], measured_s=row["measured_s"], **told)
        except PrecisionTimeError as error:
            raise SystemExit(f"{row['url']}: {error}") from error
        yield Case(url=row["url"], held_back=held_back(row["url"]), causes=tuple(row["cause"]), found=found)


def figures(found: list[Case]) -> Mapping[str, Mapping[str, int]]:
    """Threads, and in how many the right cause is first and near the first, by half."""
    halves = {
        "open": [case for case in found if not case.held_back],
        "held_back": [case for case in found if case.held_back],
        "all": found,
    }
    return {
        name: {
            "threads": len(half),
            "first": sum(case.rank == 1 for case in half),
            "first_three": sum(case.rank is not None and case.rank <= _NEAR for case in half),
        }
        for name, half in halves.items()
    }


def weights() -> dict[str, float]:
    """Counted in the open half: (threads that a cause was + 1) / (threads that it applies to + 4)."""
    was, where = Counter[str](), Counter[str]()
    causes = packaged_toml("precision_time.explain", "data/causes.toml")["cause"]
    for row in (row for row in threads() if not held_back(row["url"])):
        request = Request.of(row["job"])
        job = request.resolve()
        where.update({cause["name"] for cause in causes if applies(cause, request, job)})
        was.update(row["cause"][:1])
    return {
        name: round((was[name] + 1) / (where[name] + 4), 2) for name in {cause["name"] for cause in causes}
    }


def main(arguments: list[str]) -> None:
    """Print a line for each thread, then the figures."""
    if "--weights" in arguments:
        print(json.dumps(weights(), indent=1))
        return
    found = list(cases())
    if "--json" in arguments:
        print(json.dumps(figures(found), indent=1))
        return
    open_alone = "--open" in arguments
    for case in found:
        if open_alone and case.held_back:
            continue
        if "--all" in arguments:
            print(case.found)
        first: Any = case.found.causes[0] if case.found.causes else None
        said = "-" if first is None else f"{first.name} {first.probability:.0%}"
        half = "held" if case.held_back else "open"
        print(
            f"{half} rank {case.rank or '-'!s:>2}  {'/'.join(case.causes):<16} said {said:<20} "
            f"{case.found.ratio:6.2f} x {case.found.verdict:<12} {case.url.removeprefix('https://github.com/')}"
        )
    print(json.dumps(figures(found)["open"] if open_alone else figures(found)))


if __name__ == "__main__":
    main(sys.argv[1:])
