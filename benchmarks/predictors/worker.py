"""One predictor in its own process: `python worker.py FILE`, tasks and answers as lines of JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from predictors.contract import Told, checked, leaked, of  # noqa: E402


def load(path: Path) -> ModuleType:
    """The predictor in a file."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    entry = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(entry)
    return entry


def answer(entry: ModuleType, task: Mapping[str, Any], known: list[dict[str, Any]]) -> dict[str, Any]:
    """The answers to a task: rows of one publisher, asked with one variant's settings."""
    rows, settings = [Told(row) for row in task["rows"]], entry.VARIANTS[task["variant"]]
    if of(entry, "LEARNS"):
        without = {row["publisher"] for row in rows}
        others = [row for row in known if row["publisher"] not in without]
        refuse_leaks(rows, others)
        entry.fit(others, settings)
    start = time.perf_counter()
    found = checked(rows, entry.predict(rows, settings), of(entry, "NEEDS"))
    return {
        "answers": [asdict(each) for each in found],
        "seconds_per_answer": (time.perf_counter() - start) / max(len(rows), 1),
    }


def refuse_leaks(rows: list[Told], known: list[dict[str, Any]]) -> None:
    """Stop before a predictor is fitted to what it is asked.

    Raises:
        ValueError: If a source or publisher is on both sides.
    """
    both = leaked(rows, known)
    if both:
        raise ValueError(f"leak: {', '.join(sorted(both))} is asked and known at once")


def main() -> None:
    """Answer tasks until there are no more."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # What a peer prints is no answer.
    entry = load(Path(sys.argv[1]))
    known = json.loads(Path(sys.argv[2]).read_text(encoding="utf-8")) if of(entry, "LEARNS") else []
    for line in sys.stdin:
        task = json.loads(line)
        try:
            found = answer(entry, task, known)
        except Exception as error:  # noqa: BLE001 - whatever a predictor does costs its own rows alone
            reason = f"crash: {type(error).__name__}: {error}"[:300]
            found = {"answers": [{"reason": reason}] * len(task["rows"])}
        out.write(json.dumps(found) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
