"""Answers of random requests through every door, and where two commits differ.

    python tests/fuzz/doors.py record BEFORE.json [--requests 2000] [--searches 20]
    python tests/fuzz/doors.py compare BEFORE.json AFTER.json [--within 1e-9]

A change of structure keeps every figure. Both commits are asked the same questions; `compare` names each
figure that moved. Record with PYTHONPATH at the source of each commit.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import precision_time
from physics import random_jobs
from precision_time.errors import PrecisionTimeError

FEW = 40
"""Requests of one sweep, one job file and one table."""
WORDS = ("note", "diagnostics", "remedy", "suggestions", "nearest_measurements", "why", "reasons")
"""Parts of an answer that are sentences: compared by what they were made from."""


def figures_of(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of an answer, by its path."""
    if isinstance(value, (int, float)):
        yield path, float(value)
    elif isinstance(value, Mapping):
        for name, part in value.items():
            if name not in WORDS:
                yield from figures_of(part, f"{path}.{name}")
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value[:10]):
            yield from figures_of(part, f"{path}.{index}")


def asked(call: Callable[[], Any]) -> dict[str, float] | str:
    """The numbers of an answer, or the kind of its refusal."""
    try:
        return dict(figures_of(call()))
    except PrecisionTimeError as error:
        return type(error).__name__


def record(count: int, searches: int, seed: int) -> dict[str, Any]:
    """Answers of `count` requests by keyword, in one call, as sweeps, layouts and plans."""
    requests = [fields for fields, _ in random_jobs(np.random.default_rng(seed), count)]
    found: dict[str, Any] = {}
    for index, fields in enumerate(requests):
        found[f"keyword {index}"] = asked(
            lambda fields=fields: precision_time.predict_time(**fields).to_dict()
        )
        print(f"\r{index + 1} of {count}", end="", file=sys.stderr)
    many = precision_time.predict_many(requests)
    for index, answer in enumerate(many):
        found[f"many {index}"] = asked(lambda answer=answer: answer.to_dict())
    for index, fields in enumerate(requests[:FEW]):
        swept = {**fields, "batch_size": [fields.get("batch_size") or 8, 1, 32], "gpus": [1, 8]}
        for name in ("global_batch_size", "nodes"):
            swept.pop(name, None)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "sweep.csv"
            found[f"sweep {index}"] = asked(lambda swept=swept, out=out: _rows(swept, out))
    for index, fields in enumerate(requests[:searches]):
        found[f"layout {index}"] = asked(lambda fields=fields: precision_time.find_layouts(
            **{**_model_and_scale(fields), "gpus": 16}).to_dict())  # fmt: skip
    for index, fields in enumerate(requests[: max(searches // 4, 1)]):
        found[f"plan {index}"] = asked(lambda fields=fields: precision_time.plan(
            fields["model"], steps=1000, devices=["a100-sxm4-80gb", "h100-sxm5-80gb"]).to_dict())  # fmt: skip
    return found


def _rows(swept: Mapping[str, Any], out: Path) -> list[Mapping[str, Any]]:
    precision_time.sweep(**swept, out=out)
    with out.open(newline="", encoding="utf-8") as lines:
        return [{name: _number(cell) for name, cell in row.items()} for row in csv.DictReader(lines)]


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def _model_and_scale(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: fields[name] for name in ("model", "device", "precision") if name in fields}


def differences(before: Mapping[str, Any], after: Mapping[str, Any], within: float) -> list[str]:
    """What moved, in words, one line each."""
    lines = []
    for name in [*before, *(name for name in after if name not in before)]:
        old, new = before.get(name), after.get(name)
        if isinstance(old, str) or isinstance(new, str) or old is None or new is None:
            if old != new:
                lines.append(f"{name}: {_short(old)} -> {_short(new)}")
            continue
        for path in dict.fromkeys([*old, *new]):
            a, b = old.get(path), new.get(path)
            if a is None or b is None or not _equal(a, b, within):
                lines.append(f"{name}: {path}: {a} -> {b}")
    return lines


def _equal(a: float, b: float, within: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=within, abs_tol=1e-300)


def _short(value: Any) -> str:
    return value if isinstance(value, str) else "nothing" if value is None else "an answer"


def main(arguments: Sequence[str]) -> int:
    """Record or compare."""
    parser = argparse.ArgumentParser(description="Answers through every door.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("record")
    one.add_argument("out", type=Path)
    one.add_argument("--requests", type=int, default=2000)
    one.add_argument("--searches", type=int, default=20)
    one.add_argument("--seed", type=int, default=31)
    two = commands.add_parser("compare")
    two.add_argument("before", type=Path)
    two.add_argument("after", type=Path)
    two.add_argument("--within", type=float, default=1e-9)
    given = parser.parse_args(arguments)
    if given.command == "record":
        found = record(given.requests, given.searches, given.seed)
        given.out.write_text(json.dumps(found), encoding="utf-8")
        return 0
    before, after = (json.loads(path.read_text(encoding="utf-8")) for path in (given.before, given.after))
    lines = differences(before, after, given.within)
    by_door = Counter(line.split(" ", 1)[0] for line in lines)
    print("\n".join(lines[:60]))
    print(f"{len(lines)} figures of {len(before)} answers moved: {dict(by_door)}")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
