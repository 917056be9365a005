"""Send thousands of inputs through every way into the package, and keep what came of them.

    python tests/fuzz/fuzz.py --inputs 20000 --seed 1 --out docs/reference/limits.json

What is sent and what must hold is in `tests/fuzz`. Exits with 1 where a promise does not hold; the first
input of each kind of fault is printed. `tests/fuzz/limits.py` writes the page with the counts.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from hypothesis import HealthCheck, Phase, given, seed, settings

import fuzz_targets as fuzz
from fuzz_promises import BrokenPromiseError
from precision_time.errors import PrecisionTimeError
from precision_time.io import write_atomically

_SHOWN = 400


def run_target(target: fuzz.Target, inputs: int, number: int, folder: Path) -> dict[str, Any]:
    """How many inputs of a target were answered, refused, or broke a promise, and the slowest [s]."""
    counts: Counter[str] = Counter()
    faults: dict[str, str] = {}
    slowest_s = 0.0

    @seed(number)
    @settings(
        max_examples=inputs,
        database=None,
        deadline=None,
        derandomize=False,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(target.inputs)
    def send(given_input: Any) -> None:
        nonlocal slowest_s
        start_s = time.process_time()
        try:
            counts["answered" if target.try_(given_input, folder) else "refused"] += 1
        except Exception as error:  # noqa: BLE001 - counted: a fault of the package
            counts["faults"] += 1
            frames = [f for f in traceback.extract_tb(error.__traceback__) if "precision_time" in f.filename]
            place = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
            what = str(error)[:_SHOWN] if isinstance(error, BrokenPromiseError) else ""
            faults.setdefault(f"{type(error).__name__} {place} {what}", repr(given_input)[:_SHOWN])
        slowest_s = max(slowest_s, time.process_time() - start_s)

    send()
    for fault, example in faults.items():
        print(f"  FAULT {fault}\n    {example}", flush=True)
    return {
        "what": target.what,
        "tried": counts.total(),
        **{name: counts[name] for name in ("answered", "refused", "faults")},
        "slowest_s": round(slowest_s, 2),
    }


def added(before: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """The counts of two runs of a target together."""
    counts = {name: before.get(name, 0) + found[name] for name in ("tried", "answered", "refused", "faults")}
    return {**found, **counts, "slowest_s": max(before.get("slowest_s", 0.0), found["slowest_s"])}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a line for each target, write the results."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0] if __doc__ else "")
    parser.add_argument("--inputs", type=int, default=20_000, help="inputs over all targets")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="names of targets, separated by commas")
    parser.add_argument("--out", type=Path, help="JSON file; to what it holds the counts are added")
    asked = parser.parse_args(arguments)
    out = asked.out.absolute() if asked.out else None
    warnings.simplefilter("ignore")
    chosen = [t for t in fuzz.targets() if not asked.only or t.name in asked.only.split(",")]
    total = sum(target.share for target in fuzz.targets())
    faults = 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = fuzz.fresh(Path(temporary) / "examples")
        os.environ |= {"HOME": temporary, "HF_HUB_OFFLINE": "1"}
        os.chdir(folder)
        for target in chosen:
            count = max(round(asked.inputs * target.share / total), 1)
            found = run_target(target, count, asked.seed, folder)
            faults += found["faults"]
            print(f"{target.name}: {json.dumps({k: v for k, v in found.items() if k != 'what'})}", flush=True)
            if out is not None:
                kept = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
                before = kept.get("inputs", {}).get(target.name, {})
                inputs = {**kept.get("inputs", {}), target.name: added(before, found)}
                write_atomically(out, json.dumps({**kept, "inputs": inputs}, indent=1) + "\n")
        os.chdir("/")
    return 1 if faults else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PrecisionTimeError as error:
        sys.exit(f"Error: {error}")
