"""The open benchmark of predictors of training time: `make benchmark`.

    python benchmarks/predictors/run.py [--only NAME ...] [--record] [--limit SECONDS] [--edition N]

Every predictor of entries/ answers the rows of this edition in a process of its own. Those that learn are
fitted fold by fold to runs of other publishers than the rows of the fold. Written: results-N.csv with a line
for each row and variant, results-N.json with every setting, and docs/reference/benchmark.md. A peer that
`fetch.py` has brought answers live (`--record` keeps its answers), another one by recorded/.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from predictors import fetch, page  # noqa: E402
from predictors.contract import PEERS, Answer, of, wrong_with  # noqa: E402
from predictors.facts import COLUMNS, EDITION, Row, corpus_facts, digest, rows_of, told  # noqa: E402
from predictors.worker import load  # noqa: E402

ENTRIES, RECORDED = HERE / "entries", HERE / "recorded"
RESULTS = HERE / f"results-{EDITION}.csv"
FOLDS = 6
LIMIT_S = 900.0
"""For a fold with its fit, or the rows of a source."""
RESULT_COLUMNS = (
    "row", "source", "question", "precision", "predictor", "commit", "how", "predicted_s", "low_s", "high_s",
    "measured_s", "seconds_per_answer", "in_sample", "reason",
)  # fmt: skip


def parts(rows: Sequence[Row], learns: bool) -> list[list[Row]]:
    """Rows that are asked at once: of a fold of publishers where something is learned, else of a source."""
    groups: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["publisher" if learns else "source"]].append(row)
    if not learns:
        return list(groups.values())
    order = sorted(groups, key=lambda name: (-len(groups[name]), name))
    return [[row for name in order[fold::FOLDS] for row in groups[name]] for fold in range(FOLDS)]


def replies(command: Sequence[str], tasks: Sequence[Row], limit_s: float) -> Iterator[Row]:
    """What a worker says to each task; after a death or a hang a new one goes on with the next task."""
    left = list(tasks)
    while left:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        ) as process:  # fmt: skip
            while left:
                task = left.pop(0)
                reason, said = _said(process, json.dumps(task), limit_s)
                if reason:
                    os.killpg(process.pid, signal.SIGKILL)
                    yield {"answers": [{"reason": reason}] * len(task["rows"])}
                    break
                yield said


def _said(process: subprocess.Popen[str], task: str, limit_s: float) -> tuple[str, Row]:
    """Why a process did not answer, or what it answered."""
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(task + "\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as waiting:
            waiting.register(process.stdout, selectors.EVENT_READ)
            if not waiting.select(limit_s):
                return f"hang: no answer in {limit_s:g} s", {}
        said: Row = json.loads(process.stdout.readline())
    except (BrokenPipeError, ValueError):
        return "crash: the process ended", {}
    return "", said


def answered(path: Path, rows: Sequence[Row], known: Path, limit_s: float) -> Iterator[Row]:
    """The lines of the results of one predictor, live."""
    entry = load(path)
    python = fetch.python_of(of(entry, "CHECKOUT")) if of(entry, "CHECKOUT") else Path(sys.executable)
    asked = [(part, variant) for part in parts(rows, of(entry, "LEARNS")) for variant in entry.VARIANTS]
    tasks = [{"rows": [told(row) for row in part], "variant": variant} for part, variant in asked]
    command = [str(python), str(HERE / "worker.py"), str(path), str(known)]
    for (part, variant), reply in zip(asked, replies(command, tasks, limit_s), strict=True):
        answers, spent_s = reply.pop("answers"), reply.pop("seconds_per_answer", None)
        for row, answer in zip(part, answers, strict=True):
            yield _line(entry, variant, row, "live", spent_s, Answer(**answer))


def _line(entry: ModuleType, variant: str, row: Row, how: str, spent_s: float | None, answer: Answer) -> Row:
    return {
        **{name: row[name] for name in ("row", "source", "question", "precision", "measured_s")},
        "predictor": variant, "commit": entry.VERSION[:12], "how": how, "predicted_s": answer.seconds,
        "low_s": answer.low_s, "high_s": answer.high_s, "seconds_per_answer": spent_s,
        "reason": answer.reason, "in_sample": int(row["source"] in of(entry, "FITTED_TO")),
    }  # fmt: skip


def recorded(entry: ModuleType, path: Path, rows: Sequence[Row]) -> Iterator[Row]:
    """The lines of the results of a peer that is not there, from what it once said to the same facts.

    A row of which other facts were told then has no answer; neither has any row with other settings.
    """
    kept = json.loads((RECORDED / f"{path.stem}.json").read_text(encoding="utf-8"))
    for variant, settings in entry.VARIANTS.items():
        said = kept["variants"].get(variant, {})
        same = kept["commit"] == entry.VERSION and said.get("settings") == settings
        for row in rows:
            facts, seconds, reason, spent_s = said.get("answers", {}).get(row["row"], ("", None, "", None))
            if not same:
                seconds, reason = None, "recorded with another commit or other settings"
            elif facts != digest(row):
                seconds, reason = None, "not recorded of these facts of the row"
            yield _line(entry, variant, row, "recorded", spent_s, Answer(seconds=seconds, reason=reason))


def record(entry: ModuleType, path: Path, rows: Sequence[Row], lines: Sequence[Row]) -> None:
    """Keep what a peer said live, with its commit and settings."""
    facts = {row["row"]: digest(row) for row in rows}
    variants: dict[str, Any] = {
        name: {"settings": given, "answers": {}} for name, given in entry.VARIANTS.items()
    }
    for line in lines:
        figures = [
            line[name] and float(f"{line[name]:.5g}") for name in ("predicted_s", "seconds_per_answer")
        ]
        answer = (facts[line["row"]], figures[0], line["reason"], figures[1])
        variants[line["predictor"]]["answers"][line["row"]] = answer
    kept = {"commit": entry.VERSION, "date": time.strftime("%Y-%m-%d"), "variants": variants}
    text = json.dumps(kept, separators=(",", ":")).replace('],"', '],\n"')
    RECORDED.mkdir(exist_ok=True)
    (RECORDED / f"{path.stem}.json").write_text(text + "\n", encoding="utf-8")


def live(entry: ModuleType) -> bool:
    """Whether a predictor can be asked here."""
    peer = of(entry, "CHECKOUT")
    return not peer or (fetch.commit_of(PEERS / peer) == entry.VERSION and fetch.python_of(peer).exists())


def write(lines: Sequence[Row], said: Mapping[str, Any]) -> None:
    """The results in a fixed order, and every setting beside them."""
    order = {name: place for place, name in enumerate(said)}
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, RESULT_COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for line in sorted(lines, key=lambda line: (order[line["predictor"]], line["question"], line["row"])):
            shown = {name: f"{value:.5g}" for name, value in line.items() if isinstance(value, float)}
            writer.writerow({**line, **shown})
    RESULTS.with_suffix(".json").write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Ask everybody, write the results and the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", default=[], metavar="NAME", help="files of entries/, without .py"
    )
    parser.add_argument("--record", action="store_true", help="keep the answers of peers that are here")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds for a fold, or a source")
    options = parser.parse_args()
    rows, lines, said = rows_of(), [], {}
    paths = [path for path in sorted(ENTRIES.glob("*.py")) if not options.only or path.stem in options.only]
    if options.only:
        said = json.loads(RESULTS.with_suffix(".json").read_text(encoding="utf-8"))
        lines = page.read_results(RESULTS)
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "known.json"
        learning = any(of(load(path), "LEARNS") for path in paths)
        known.write_text(json.dumps(corpus_facts() if learning else []), encoding="utf-8")
        for path in paths:
            entry, start = load(path), time.perf_counter()
            wrong = wrong_with(entry, COLUMNS)
            if wrong:
                sys.exit(f"{path.name} is no predictor: " + "; ".join(wrong))
            here = live(entry)
            new = list(answered(path, rows, known, options.limit) if here else recorded(entry, path, rows))
            if here and options.record and of(entry, "CHECKOUT"):
                record(entry, path, rows, new)
            lines = [line for line in lines if line["predictor"] not in entry.VARIANTS] + new
            for variant, given in entry.VARIANTS.items():
                said[variant] = {
                    "file": path.name, "version": entry.VERSION, "settings": given, "cannot": entry.CANNOT,
                    "fitted_to": list(of(entry, "FITTED_TO")), "how": "live" if here else "recorded",
                }  # fmt: skip
            write(lines, said)
            count, spent_s = sum(line["predicted_s"] is not None for line in new), time.perf_counter() - start
            print(f"{path.stem}: {count} answers of {len(new)}, {spent_s:.0f} s", flush=True)
    page.write(RESULTS, said, FOLDS)


if __name__ == "__main__":
    main()
