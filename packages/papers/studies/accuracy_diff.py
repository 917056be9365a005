"""What a change does to accuracy: the same measured runs with the code and data of two commits, side by side.

    python packages/papers/studies/accuracy_diff.py BASE [--rows 4000] [--json FILE]

BASE is checked out in a work tree of its own, with the environment of this one. Both sides price the same
stratified runs (at most so many of every source that the whole is about --rows) and predict them out of fold,
every source and every model held out in turn, with trees fitted to the sample. Runs are matched by reference
and configuration, so that a corpus that grew is compared where both have them. Prints errors over rows and
over sources of formulas and predictions, and the groups that got worse by most.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[3]
ROWS, FOLDS, SEED = 4000, 3, 0
PROTOCOLS_ASKED = ("source", "model")
COLUMNS = ("formulas", *(f"unseen {protocol}" for protocol in PROTOCOLS_ASKED))
SOURCES = ("src", "packages/server/src", "packages/integrations/src", "packages/papers/src")
GROUPS = ("source", "device", "precision", "family")
WORST, LEAST_ROWS = 8, 5


def predicted(rows: int) -> list[dict[str, Any]]:
    """Every run of the sample as the commit on the path prices and predicts it."""
    from precision_time.corpus.protocols import PROTOCOLS, source_name
    from precision_time.corpus.store import load_corpus
    from precision_time.learn.boosting import DEFAULT_SETTINGS
    from precision_time_papers.precision_aware import fit_to

    try:
        from precision_time.learn.measured import measured_table
    except ImportError:  # commits before the table of measured runs had a file of its own
        from precision_time.learn.table import measured_table  # type: ignore[attr-defined,no-redef]

    table = measured_table(stratified([item for item in load_corpus() if item.usable], rows))
    items, twins = table.measurements, table.jobs.twins()
    columns = {"formulas": table.jobs.analytical_s}
    for protocol in PROTOCOLS_ASKED:
        found = columns[f"unseen {protocol}"] = np.full(len(items), np.nan)
        for fold in PROTOCOLS[protocol].split(items, SEED, FOLDS):
            test = np.array(fold.test, dtype=np.intp)
            train = np.flatnonzero(~np.isin(twins, twins[test]))
            train = np.intersect1d(train, np.array(fold.train, dtype=np.intp))
            fitted = fit_to(table, table.jobs, train, trees=DEFAULT_SETTINGS, seed=SEED)
            found[test] = fitted.times(table.jobs.take(test)).step_time_s
    return [
        {
            "key": [
                item.source_ref,
                item.model,
                item.device,
                item.num_devices,
                item.precision,
                item.step_time_s,
            ],
            "source": source_name(item),
            "device": item.device,
            "precision": item.precision,
            "family": job.workload.family,
            "measured_s": item.step_time_s,
            **{name: float(values[index]) for name, values in columns.items()},
        }
        for index, (item, job) in enumerate(zip(items, _jobs(items), strict=True))
    ]


def _jobs(items: Sequence[Any]) -> list[Any]:
    from precision_time.corpus.jobs import job_of

    return [job_of(item) for item in items]


def stratified(items: Sequence[Any], count: int) -> list[Any]:
    """About `count` runs: of every source at most so many, drawn by a seed, in their order."""
    sizes = Counter(item.source for item in items)
    most = next(
        (
            each
            for each in range(1, len(items) + 1)
            if sum(min(size, each) for size in sizes.values()) >= count
        ),
        len(items),
    )
    taken: Counter[str] = Counter()
    kept = []
    for index in np.random.default_rng(SEED).permutation(len(items)).tolist():
        if taken[items[index].source] < most:
            taken[items[index].source] += 1
            kept.append(index)
    return [items[index] for index in sorted(kept)]


def of_commit(folder: Path, rows: int) -> list[dict[str, Any]]:
    """`predicted` by the sources in a work tree, in a process of its own.

    Raises:
        SystemExit: If that commit's code ends in an error, with its last line.
    """
    path = os.pathsep.join(str(folder / each) for each in SOURCES)
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), "--predicted", "--rows", str(rows)],
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        last = done.stderr.strip().rpartition("\n")[2]
        raise SystemExit(f"The code in {folder.name} ended in an error: {last}")
    found: list[dict[str, Any]] = json.loads(done.stdout.rpartition("\n")[2] or done.stdout)
    return found


def errors(rows: Sequence[Mapping[str, Any]], column: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """|predicted - measured| / measured [%]; NaN where the run was not held out."""
    return np.array([100.0 * abs(row[column] / row["measured_s"] - 1.0) for row in rows])


def by_group(values: Any, groups: Sequence[str]) -> dict[str, tuple[float, int]]:
    """Mean of every group, and its rows."""
    names = np.array(groups)
    known = ~np.isnan(values)
    return {
        name: (float(values[known & (names == name)].mean()), int((known & (names == name)).sum()))
        for name in sorted(set(names[known].tolist()))
    }


def compared(before: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Errors on the runs that both sides have, over rows and over sources, and the groups that got worse."""
    old = {json.dumps(row["key"]): row for row in before}
    pairs = [(old[key], row) for row in after if (key := json.dumps(row["key"])) in old]
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    result: dict[str, Any] = {
        "rows": len(pairs),
        "only_before": len(before) - len(pairs),
        "errors": {},
        "worse": {},
    }
    result["only_after"] = len(after) - len(pairs)
    for column in COLUMNS:
        sides = [errors(rows, column) for rows in (left, right)]
        sources = [row["source"] for row in right]
        result["errors"][column] = [
            [float(np.nanmean(side)), float(np.mean([mean for mean, _ in by_group(side, sources).values()]))]
            for side in sides
        ]
        changes = []
        for kind in GROUPS:
            names = [str(row[kind]) for row in right]
            was, now = (by_group(side, names) for side in sides)
            changes += [
                (now[name][0] - was[name][0], kind, name, was[name][0], now[name][0], now[name][1])
                for name in now
                if name in was and now[name][1] >= LEAST_ROWS
            ]
        result["worse"][column] = [
            change for change in sorted(changes, reverse=True)[:WORST] if change[0] > 0.0
        ]
    return result


def told(result: Mapping[str, Any]) -> str:
    """The comparison in words."""
    lines = [
        f"{result['rows']} runs; {result['only_before']} only before, {result['only_after']} only after",
        "",
    ]
    lines.append("| error %, rows / sources | before | after |\n|---|---:|---:|")
    for column, (was, now) in result["errors"].items():
        lines.append(f"| {column} | {was[0]:.1f} / {was[1]:.1f} | {now[0]:.1f} / {now[1]:.1f} |")
    for column, changes in result["worse"].items():
        lines += ["", f"Worse, {column}:"]
        lines += [
            f"  {kind} {name}: {was:.1f} -> {now:.1f} % (n {n})" for _, kind, name, was, now, n in changes
        ]
    return "\n".join(lines)


def main() -> None:
    """Check out the base, ask both sides, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("base", nargs="?", help="the commit to compare with")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--json", type=Path, help="write the comparison to this file, too")
    parser.add_argument("--predicted", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.predicted:
        print(json.dumps(predicted(options.rows)))
        return
    if not options.base:
        parser.error("name the commit to compare with, such as origin/main or HEAD~1")
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder) / "base"
        subprocess.run(
            ["git", "worktree", "add", "--detach", "-q", str(base), options.base], cwd=ROOT, check=True
        )
        try:
            result = compared(of_commit(base, options.rows), of_commit(ROOT, options.rows))
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(base)], cwd=ROOT, check=True)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(told(result))


if __name__ == "__main__":
    main()
