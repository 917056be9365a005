"""Which measured models resolve to a workload, and why the others do not.

Usage: python data/model_coverage.py MEASUREMENTS_DIR [--top N] [--all]

Reads models.csv and every measurement file beside it; counts rows, prints what is missing.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from precision_time.errors import PrecisionTimeError
from precision_time.workload.resolve import load_workload

Key = tuple[str, str, str, str, str]


def measured_keys(folder: Path) -> Iterator[Key]:
    """(model, model_config, seq_len, task, dataset) of every row of every measurement file."""
    for path in sorted(folder.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as handle:
            reader = csv.DictReader(handle)
            if "model_config" not in (reader.fieldnames or ()):
                continue
            for row in reader:
                yield row["model"], row["model_config"], row["seq_len"], row["task"], row["dataset"]


def named_models(folder: Path) -> dict[str, int]:
    """Rows behind every name of models.csv."""
    with (folder / "models.csv").open(newline="", encoding="utf-8") as handle:
        return {row["model"]: int(row["rows"]) for row in csv.DictReader(handle)}


def reason(model: str, sizes_json: str, seq_len: str, task: str, dataset: str) -> str:
    """Empty if the model resolves, else the error."""
    try:
        load_workload(
            model,
            seq_len=int(float(seq_len)) if seq_len else None,
            sizes=json.loads(sizes_json) if sizes_json else None,
            task=task,
            dataset=dataset or None,
        )
    except PrecisionTimeError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def main() -> None:
    """Prints the coverage of names and of rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--top", type=int, default=None, help="print so many failing names")
    parser.add_argument("--all", action="store_true", help="print every failing configuration")
    options = parser.parse_args()
    names = named_models(options.folder)
    unknown = {name: why for name in names if (why := reason(name, "", "", "", ""))}
    rows = Counter(measured_keys(options.folder))
    failing = {key: why for key in rows if (why := reason(*key))}
    lost = Counter[str]()
    for key in failing:
        lost[key[0]] += rows[key]
    print(f"names: {len(names) - len(unknown)} of {len(names)} resolve")
    print(f"named rows: {sum(n for m, n in names.items() if m not in unknown)} of {sum(names.values())}")
    print(f"configurations: {len(rows) - len(failing)} of {len(rows)} resolve")
    print(f"rows: {rows.total() - lost.total()} of {rows.total()} ({1 - lost.total() / rows.total():.2%})")
    for name, count in lost.most_common(options.top):
        why = next(why for key, why in failing.items() if key[0] == name)
        print(f"  {count:6d} rows  {name}: {why[:150]}")
    for name in sorted(unknown.keys() - lost.keys())[: options.top]:
        print(f"       name  {name}: {unknown[name][:150]}")
    if options.all:
        for key, why in failing.items():
            print(key, why)


if __name__ == "__main__":
    main()
