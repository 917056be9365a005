"""Compare this tree with older ones and with other predictors, in one interleaved run: compare.json.

    git worktree add ../before COMMIT
    python benchmarks/compare.py --against before=../before
    python benchmarks/compare.py --against before=../before --peer calculon=CHECKOUT --peer-python PYTHON

Every case runs in a fresh interpreter of each tree in turn (now, before, now, before ...), and the ratio is
taken pair by pair: a machine that is busy slows down both. Figures are CPU seconds of the process, its start
included where a whole command is timed.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cases import DOES_NOT_FIT, SWEEP, SWEEP_SAID, WARM_CALL, WARM_CALL_SAID
from precision_time.corpus.store import load_corpus
from precision_time.io import COMPILED, compiled
from precision_time.render.table import columns_of, markdown_lines
from precision_time.workload.resolve import sizes_that_apply
from run import machine

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "compare.json"
PAGE = HERE.parent / "docs" / "reference" / "speed.md"
NOW = HERE.parent
_JOB = "resnet50 --device A100-SXM4-80GB --gpus 8 --batch-size 256 -p fp16-mixed"
_ROWS = 4_000
"""Of the corpus, evenly spread: what `evaluate` is timed on."""
_FEW = 3
"""Runs of what takes long, which comes last."""
_COLUMNS = (
    "model",
    "model_config",
    "device",
    "devices",
    "nodes",
    "precision",
    "batch_per_device",
    "framework",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One thing that is timed in each tree."""

    name: str
    code: str
    target: float | None
    """Ratio to the oldest tree that is wanted."""
    figure: str = ""
    """What the code prints as JSON; the CPU seconds of the whole process where empty."""
    start: str = ""
    """Code whose process is subtracted: starting the interpreter and importing."""
    repeats: int = 5


def _command(words: str) -> str:
    """As a process that is this program alone."""
    return f"import sys\nsys.argv[1:] = {words!r}.split()\nfrom precision_time.__main__ import run\nrun()"


def cases(rows: Path) -> tuple[Case, ...]:
    """What is timed; `rows` is a CSV of measured steps."""
    evaluate = f"evaluate --measurements {rows} --json"
    price = """
import json, time
from precision_time.corpus.store import load_corpus
try:
    from precision_time.learn.measured import measured_table
except ImportError:  # before December 2026
    from precision_time.learn.table import measured_table
rows = load_corpus()[::10]
start = time.process_time()
measured_table(rows)
print(json.dumps({"seconds": time.process_time() - start}))
"""
    small = "layout llama3-70b -d H100-SXM5-80GB -g 64 --global-batch-size 1024 -p bf16-mixed --json"
    layout = "layout deepseek-v3 -d H100-SXM5-80GB -g 2048 --global-batch-size 15360 -p fp8-mixed --json"
    return (
        Case(name="cold answer (page)", code=_command(f"predict {_JOB}"), target=0.6, repeats=7),
        Case(name="cold answer (--json)", code=_command(f"predict {_JOB} --json"), target=0.6, repeats=7),
        Case(name="warm answer that says everything", code=WARM_CALL_SAID, target=0.75, figure="cpu_s"),
        Case(name="warm answer, a mixture", code=WARM_CALL, target=None, figure="cpu_s"),
        Case(name="a job that does not fit", code=DOES_NOT_FIT, target=0.1, figure="cpu_s"),
        Case(
            name="sweep of 100,000 that says everything",
            code=SWEEP_SAID,
            target=0.5,
            figure="cpu_s",
            repeats=2,
        ),
        Case(name="sweep, mixtures", code=SWEEP, target=None, figure="cpu_s", repeats=2),
        Case(
            name=f"evaluate, {_ROWS:,} rows",
            code=_command(evaluate),
            start=_command("--version"),
            target=0.25,
            repeats=2,
        ),
        Case(
            name="train: pricing a tenth of the corpus", code=price, target=0.5, figure="seconds", repeats=3
        ),
        Case(name="layouts of Llama 3 70B", code=_command(f"{small} --workers 1"), target=0.5, repeats=3),
        Case(name="layouts of DeepSeek-V3", code=_command(f"{layout} --workers 1"), target=0.5, repeats=2),
    )


def write_sample(path: Path) -> None:
    """Measured steps of the corpus as a table that every version reads."""
    rows = [row for row in load_corpus() if row.usable and row.layout and row.layout.dp == row.num_devices]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow((*_COLUMNS, "seq_len", "step_time_s"))
        for row in rows[:: max(len(rows) // _ROWS, 1)][:_ROWS]:
            # Sizes that say something of the run alone are refused today, and were ignored once.
            stated = {name: size for name, size in row.sizes.items() if name != "seq_len"}
            sizes = sizes_that_apply(row.model, stated)
            seq_len = row.seq_len or ""
            batch = row.layout.micro_batch_size if row.layout else 1.0
            shape = (
                row.model,
                json.dumps(sizes) if sizes else "",
                row.device,
                row.num_devices,
                row.num_nodes,
                row.precision,
                batch,
            )
            writer.writerow((*shape, row.framework, seq_len, row.step_time_s))


def seconds(tree: Path, case: Case) -> float:
    """One figure of one tree.

    Raises:
        RuntimeError: If it fails.
    """
    if case.figure:
        figures = json.loads(_run(tree, case.code)[1].splitlines()[-1])
        return float(figures[case.figure])
    whole = _run(tree, case.code)[0]
    return whole - (_run(tree, case.start)[0] if case.start else 0.0)


def _run(tree: Path, code: str) -> tuple[float, str]:
    before = os.times()
    variables = {
        "PYTHONPATH": os.pathsep.join(map(str, (tree / "src", *tree.glob("packages/*/src")))),
        "PYTHONPYCACHEPREFIX": str(Path(tempfile.gettempdir()) / "pyc"),
    }
    variables |= {"PYTHONDONTWRITEBYTECODE": "", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, **variables},
        check=False,
    )
    after = os.times()
    if done.returncode not in (0, 3):
        raise RuntimeError(f"{tree}: {done.stderr[-400:]}")
    spent = after.children_user + after.children_system - before.children_user - before.children_system
    return spent, done.stdout


def compare(trees: Mapping[str, Path], chosen: tuple[Case, ...]) -> list[dict[str, object]]:
    """Median seconds of every case in every tree, and the ratios of this one to the others."""
    found: list[dict[str, object]] = []
    for case in chosen:
        taken: dict[str, list[float]] = {name: [] for name in trees}
        first = 1 if case.repeats > _FEW else 0  # the first run writes the bytecode
        for turn in range(case.repeats + first):
            for name, tree in trees.items():
                figure = seconds(tree, case)
                if turn >= first:
                    taken[name].append(figure)
        row: dict[str, object] = {"case": case.name, "target": case.target}
        row["seconds"] = {name: statistics.median(figures) for name, figures in taken.items()}
        row["ratio"] = {
            name: statistics.median(a / b for a, b in zip(taken["now"], figures, strict=True))
            for name, figures in taken.items()
            if name != "now"
        }
        found.append(row)
        print(json.dumps(row), flush=True)
    return found


def peers(named: Mapping[str, Path], python: str) -> dict[str, dict[str, float]]:
    """Seconds that each predictor takes for one more job, in turn, three times; the best of them."""
    worker = HERE / "peers" / "speed_worker.py"
    answers: dict[str, dict[str, float]] = {}
    for _ in range(3):
        for name, folder in named.items():
            done = subprocess.run(
                [python, str(worker), name, str(folder)], capture_output=True, text=True, check=True
            )
            found = json.loads(done.stdout.splitlines()[-1])
            if name not in answers or found["seconds"] < answers[name]["seconds"]:
                answers[name] = found
        ours = json.loads(_run(NOW, WARM_LAYOUT)[1].splitlines()[-1])
        if "precision-time" not in answers or ours["seconds"] < answers["precision-time"]["seconds"]:
            answers["precision-time"] = ours
    return answers


WARM_LAYOUT = """
import json, statistics, time
from precision_time import predict_time
def ask(rounds):
    start = time.process_time()
    predict_time("gpt3-175b", device="A100-SXM4-80GB", gpus=1024, precision="fp16-mixed", seq_len=2048,
        stack="megatron", tp=8, pp=8, batch_size=1, num_microbatches=rounds, recompute="full", zero_stage=1)
    return time.process_time() - start
ask(96)
print(json.dumps({"seconds": statistics.median(ask(96 + 8 * n) for n in range(30))}))
"""


def lines(document: Mapping[str, Any]) -> list[str]:
    """The page docs/reference/speed.md."""
    measured_on, found = document["machine"], document["cases"]
    others = [name for name in (found[0]["seconds"] if found else ()) if name != "now"]
    page = [
        "# Speed",
        "",
        "Generated by `benchmarks/compare.py`; do not edit. Median CPU seconds, and the median of the",
        f"ratios of interleaved pairs. {measured_on['cores']} cores of {measured_on['cpu']}, Python",
        f"{measured_on['python']}, {measured_on['date']}, commit {measured_on['commit']}.",
        "",
        *markdown_lines(
            columns_of(
                " | ".join(["case", ">now s", *(f">{name} s | >now / {name}" for name in others), ">wanted"])
            ),
            [
                (
                    row["case"],
                    f"{row['seconds']['now']:.3g}",
                    *(
                        text
                        for name in others
                        for text in (f"{row['seconds'][name]:.3g}", f"{row['ratio'][name]:.2f}")
                    ),
                    "" if row["target"] is None else f"{row['target']:g}",
                )
                for row in found
            ],
        ),
    ]
    if "peers" in document:
        page += [
            "",
            "One more job of GPT-3 175B on 1,024 A100, another number of micro batches each time, in the",
            "process that answered the first; each predictor in its own way, with what it reads again each",
            "time. Ours has the interval, the memory, the nearest measured runs and the bounds by fewer",
            "devices.",
            "",
            *markdown_lines(
                columns_of("predictor | >ms per job"),
                [
                    (name, f"{figures['seconds'] * 1e3:.2f}")
                    for name, figures in sorted(
                        document["peers"].items(), key=lambda item: item[1]["seconds"]
                    )
                ],
            ),
        ]
    return page


def _named(text: str) -> tuple[str, Path]:
    name, _, path = text.partition("=")
    return name, Path(path).resolve()


def main() -> int:
    """Run, print a table, and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", action="append", default=[], metavar="NAME=TREE", help="older trees")
    parser.add_argument(
        "--peer", action="append", default=[], metavar="NAME=CHECKOUT", help="other predictors"
    )
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has what they need")
    parser.add_argument("--only", help="cases whose name contains this")
    options = parser.parse_args()
    trees = {"now": NOW, **dict(_named(text) for text in options.against)}
    named = dict(_named(text) for text in options.peer)
    package = NOW / "src" / "precision_time"  # its tables as an installation has them, and as older trees do
    (package / COMPILED).write_text(compiled(package), encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.csv"
        write_sample(rows)
        chosen = tuple(case for case in cases(rows) if not options.only or options.only in case.name)
        found = compare(trees, chosen) if options.against else []
    document: dict[str, Any] = {"machine": machine(), "cases": found}
    if named:
        document["peers"] = peers(named, options.peer_python)
    print("\n".join(lines(document)))
    if not options.only:
        RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))
        from pages import write_page

        write_page(PAGE, "\n".join(lines(document)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
